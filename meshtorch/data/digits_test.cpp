// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>
#include <meshtorch/data/digits.h>
#include <meshtorch/data/files.h>
#include <meshtorch/data/scratch_file.h>

namespace meshtorch {
namespace {

std::string line(int pixel, int label) {
  std::string out;
  for (int i = 0; i < 64; ++i) out += std::to_string(pixel) + ",";
  return out + std::to_string(label) + "\n";
}

TEST(Digits, TheFileThatIsShipped) {
  const auto all = read_digits(data_file("digits.csv"));
  EXPECT_EQ(all.images.sizes(), (torch::IntArrayRef{1797, 1, 8, 8}));
  EXPECT_EQ(all.images.scalar_type(), torch::kFloat);
  EXPECT_EQ(all.labels.scalar_type(), torch::kInt64);
  EXPECT_EQ(all.images.min().item<float>(), 0);
  EXPECT_EQ(all.images.max().item<float>(), 1);
  EXPECT_EQ(all.labels[1].item<int>(), 1);
  EXPECT_EQ(all.images[0][0][0][3].item<float>(), 13 / 16.0f);
  EXPECT_GT(torch::bincount(all.labels).min().item<int>(), 170);
}

TEST(Digits, SplitsEveryImageOnce) {
  const auto path = data_file("digits.csv");
  const auto digits = load_digits(path);
  EXPECT_EQ(digits.train.size(), 1438);
  EXPECT_EQ(digits.test.size(), 359);
  const auto sum = [](const LabelledImages& part) { return part.images.to(torch::kDouble).sum(); };
  EXPECT_EQ((sum(digits.train) + sum(digits.test)).item<double>(),
            sum(read_digits(path)).item<double>());
  EXPECT_GT(torch::bincount(digits.test.labels, {}, 10).min().item<int>(), 20);
}

TEST(Digits, TheSplitDependsOnTheSeedAlone) {
  const auto path = data_file("digits.csv");
  const auto labels = load_digits(path, {.seed = 1}).test.labels;
  EXPECT_TRUE(torch::equal(labels, load_digits(path, {.seed = 1}).test.labels));
  EXPECT_FALSE(torch::equal(labels, load_digits(path, {.seed = 2}).test.labels));
}

TEST(Digits, Errors) {
  EXPECT_EQ(message([] { read_digits("no/digits.csv"); }),
            "[read_digits] no/digits.csv: cannot be read; check the path");
  const ScratchFile empty("");
  EXPECT_EQ(message([&] { read_digits(empty.path()); }),
            "[read_digits] " + empty.path() + ": the file is empty; give data/digits.csv");
  for (const std::string& bad : {std::string("1,2,3\n"), line(17, 0), line(-1, 0), line(3, 10),
                                 std::string("a,b\n"), std::string("\n"), "0," + line(1, 1)}) {
    const ScratchFile file(line(16, 9) + bad);
    EXPECT_EQ(message([&] { read_digits(file.path()); }),
              "[read_digits] " + file.path() +
                  " line 2: not 64 pixels 0..16 and a label 0..9 with "
                  "commas between; correct the line");
  }
  const ScratchFile two(line(1, 1) + line(2, 2));
  EXPECT_EQ(message([&] { load_digits(two.path()); }),
            "[load_digits] test_every: 5, expected 2 .. 2; both parts need an image");
}

}  // namespace
}  // namespace meshtorch
