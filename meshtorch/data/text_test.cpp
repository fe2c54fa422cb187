// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>
#include <meshtorch/data/files.h>
#include <meshtorch/data/scratch_file.h>
#include <meshtorch/data/text.h>

namespace meshtorch {
namespace {

// Byte i of the text is i: a token tells where it comes from.
ByteText counting(int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(i);
  const ScratchFile file(bytes);
  return ByteText(file.path());
}

TEST(ByteText, TheLastTenthValidates) {
  const auto text = counting(205);
  EXPECT_EQ(text.train().size(), 185);
  EXPECT_EQ(text.validation().size(), 20);
  EXPECT_EQ(text.train().bytes()[0].item<int>(), 0);
  EXPECT_EQ(text.validation().bytes()[0].item<int>(), 185);
  EXPECT_EQ(text.validation().bytes()[19].item<int>(), 204);
}

TEST(ByteText, Errors) {
  const ScratchFile empty("");
  const ScratchFile small("0123456789");
  const std::string folder = testing::TempDir();
  EXPECT_EQ(message([] { ByteText("no/such/file.txt"); }),
            "[ByteText] no/such/file.txt: no such file; check the path");
  EXPECT_EQ(message([&] { ByteText{folder}; }),
            "[ByteText] " + folder + ": is a folder; give a text file");
  EXPECT_EQ(message([&] { ByteText{empty.path()}; }),
            "[ByteText] " + empty.path() + ": the file is empty; give a text to train on");
  EXPECT_EQ(message([&] { ByteText{small.path()}; }),
            "[ByteText] " + small.path() + ": 10 bytes, expected at least 20; give a longer text");
}

TEST(Tokens, TargetsAreTheNextTokens) {
  const auto batch = counting(200).train().batch({.size = 5, .length = 7}, 3);
  EXPECT_EQ(batch.inputs.sizes(), (torch::IntArrayRef{5, 7}));
  EXPECT_EQ(batch.inputs.scalar_type(), torch::kInt64);
  EXPECT_TRUE(torch::equal(batch.targets, batch.inputs + 1));
  EXPECT_TRUE(torch::equal(batch.inputs.narrow(1, 1, 6), batch.inputs.narrow(1, 0, 6) + 1));
}

TEST(Tokens, ABatchDependsOnSeedAndStepAlone) {
  const auto text = counting(250);
  const BatchOptions options{.size = 8, .length = 4, .seed = 3};
  const auto batch = text.train().batch(options, 10);
  text.train().batch(options, 2);
  EXPECT_TRUE(torch::equal(batch.inputs, text.train().batch(options, 10).inputs));
  EXPECT_FALSE(torch::equal(batch.inputs, text.train().batch(options, 11).inputs));
  const BatchOptions other{.size = 8, .length = 4, .seed = 4};
  EXPECT_FALSE(torch::equal(batch.inputs, text.train().batch(other, 10).inputs));
}

TEST(Tokens, EveryStartIsReachedAndNoneOutside) {
  const auto tokens = counting(40).train();  // 36 tokens
  std::set<std::int64_t> starts;
  for (int step = 0; step < 200; ++step) {
    const auto first =
        tokens.batch({.size = 4, .length = 6}, step).inputs.select(1, 0).contiguous();
    for (int b = 0; b < 4; ++b) starts.insert(first[b].item<std::int64_t>());
  }
  EXPECT_EQ(starts.size(), 30u);
  EXPECT_EQ(*starts.begin(), 0);
  EXPECT_EQ(*starts.rbegin(), 29);  // 29 .. 34, and 35 as the last target
}

TEST(Tokens, WindowsLieEndToEnd) {
  const auto tokens = counting(40).train();  // 36 tokens
  const BatchOptions options{.size = 2, .length = 5};
  ASSERT_EQ(tokens.batches(options), 3);
  const auto last = tokens.window(options, 2);
  EXPECT_EQ(last.inputs[0][0].item<int>(), 20);
  EXPECT_EQ(last.inputs[1][0].item<int>(), 25);
  EXPECT_EQ(last.targets[1][4].item<int>(), 30);
}

TEST(Tokens, TheRowsOfAPartAreThoseOfTheBatch) {
  const auto tokens = counting(250).train();
  const BatchOptions options{.size = 7, .length = 5, .seed = 3};
  const auto whole = tokens.batch(options, 4);
  const auto window = tokens.window(options, 1);
  for (std::int64_t begin = 0; begin <= 7; ++begin) {
    for (std::int64_t end = begin; end <= 7; ++end) {
      const auto part = tokens.batch(options, 4, begin, end);
      ASSERT_EQ(part.inputs.sizes(), (torch::IntArrayRef{end - begin, 5}));
      EXPECT_TRUE(torch::equal(part.inputs, whole.inputs.slice(0, begin, end)));
      EXPECT_TRUE(torch::equal(part.targets, whole.targets.slice(0, begin, end)));
      const auto part_of_window = tokens.window(options, 1, begin, end);
      EXPECT_TRUE(torch::equal(part_of_window.inputs, window.inputs.slice(0, begin, end)));
      EXPECT_TRUE(torch::equal(part_of_window.targets, window.targets.slice(0, begin, end)));
    }
  }
}

TEST(Tokens, Errors) {
  const auto tokens = counting(40).train();
  EXPECT_EQ(message([&] { tokens.batch({.size = 1, .length = 36}, 0); }),
            "[Tokens] batch: a window of 36 tokens and its next one, of 36 tokens in all; give a "
            "longer text or a shorter length");
  EXPECT_EQ(message([&] { tokens.batch({.size = 0, .length = 4}, 0); }),
            "[Tokens] batch: size 0 and length 4, expected at least 1; give positive sizes");
  EXPECT_EQ(
      message([&] { tokens.window({.size = 2, .length = 5}, 3); }),
      "[Tokens] window 3: there are 3 full batches; give an index below that, a smaller batch "
      "or a shorter length");
  for (const auto& [begin, end] : {std::pair{-1, 1}, {2, 1}, {1, 3}}) {
    const std::string expected = "[Tokens] batch: rows [" + std::to_string(begin) + ", " +
                                 std::to_string(end) + ") of 2; give rows within the batch";
    EXPECT_EQ(message([&] { tokens.batch({.size = 2, .length = 5}, 0, begin, end); }), expected);
    EXPECT_EQ(message([&] { tokens.window({.size = 2, .length = 5}, 0, begin, end); }), expected);
  }
}

TEST(DataFile, TheTextThatIsShipped) {
  const ByteText text(data_file("king_james.txt"));
  EXPECT_EQ(text.train().size() + text.validation().size(), 4139038);
  EXPECT_LT(text.train().bytes().max().item<int>(), 128);
}

TEST(DataFile, Errors) {
  const std::string there = data_file("king_james.txt");
  const std::string folder = there.substr(0, there.rfind('/'));
  EXPECT_EQ(message([] { data_file("no.txt"); }),
            "[data_file] " + folder +
                "/no.txt: no such file; set MESHTORCH_DATA to the folder that "
                "holds it");
  setenv("MESHTORCH_DATA", "/nowhere", 1);
  EXPECT_EQ(message([] { data_file("king_james.txt"); }),
            "[data_file] /nowhere/king_james.txt: no such file; MESHTORCH_DATA names this folder: "
            "correct or unset it");
  unsetenv("MESHTORCH_DATA");
}

}  // namespace
}  // namespace meshtorch
