// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/sample.h>

#include <cmath>

#include <gtest/gtest.h>

#include <meshtorch/models/testing.h>

namespace meshtorch {
namespace {

// After byte b comes b + 1, surely, over a vocabulary of 128.
torch::Tensor successor(const torch::Tensor& tokens) {
  return 50.0 * torch::one_hot((tokens + 1) % 128, 128).to(torch::kFloat);
}

// 'a' three times as likely as 'b', nothing else.
torch::Tensor coin(const torch::Tensor& tokens) {
  auto logits = torch::full({1, tokens.size(1), 256}, -INFINITY);
  logits.select(2, 'a').fill_(std::log(3.0));
  logits.select(2, 'b').fill_(0.0);
  return logits;
}

double share_of_a(const std::string& text) {
  return static_cast<double>(std::count(text.begin(), text.end(), 'a')) /
         static_cast<double>(text.size());
}

TEST(Sample, follows_the_model) {
  EXPECT_EQ(sample(successor, "a", {.bytes = 5}), "abcdef");
  EXPECT_EQ(sample(successor, "a", {.bytes = 5, .greedy = true}), "abcdef");
  EXPECT_EQ(sample(successor, "a", {.bytes = 0}), "a");
  EXPECT_EQ(sample(successor, "", {.bytes = 2}), "\x0b\x0c") << "begins after a newline";
}

TEST(Sample, frequencies_and_temperature) {
  const auto draw = [](double temperature) {
    return sample(coin, "", {.bytes = 4000, .length = 4, .temperature = temperature});
  };
  EXPECT_NEAR(share_of_a(draw(1.0)), 0.75, 0.02);
  EXPECT_NEAR(share_of_a(draw(0.5)), 0.9, 0.02);
  EXPECT_NEAR(share_of_a(draw(100.0)), 0.5, 0.03);
  EXPECT_EQ(share_of_a(draw(1e-3)), 1.0);
}

TEST(Sample, a_seed_is_a_text) {
  const auto draw = [](std::uint64_t seed) {
    return sample(coin, "", {.bytes = 64, .seed = seed});
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  torch::manual_seed(5);
  const auto before = draw(3);
  torch::manual_seed(6);
  EXPECT_EQ(before, draw(3));
}

TEST(Sample, the_model_sees_the_last_bytes) {
  std::vector<std::int64_t> lengths;
  sample(
      [&](const torch::Tensor& tokens) {
        lengths.push_back(tokens.size(1));
        return successor(tokens);
      },
      "xyz", {.bytes = 4, .length = 5});
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{3, 4, 5, 5}));
}

// SplitMix64 of seed 0 begins e220a8397b1dcdaf 6e789e6aa1b965f4 06c45d188009454f.
TEST(Sample, uniforms) {
  EXPECT_EQ(uniform_at(0, 0), static_cast<double>(0xe220a8397b1dcdaf >> 11) * 0x1p-53);
  EXPECT_EQ(uniform_at(0, 1), static_cast<double>(0x6e789e6aa1b965f4 >> 11) * 0x1p-53);
  EXPECT_EQ(uniform_at(0, 2), static_cast<double>(0x06c45d188009454f >> 11) * 0x1p-53);
}

TEST(Sample, errors) {
  EXPECT_EQ(message([] { sample(coin, "", {.bytes = -1}); }),
            "[sample] bytes: -1 is negative; use at least 0");
  EXPECT_EQ(message([] { sample(coin, "", {.length = 0}); }),
            "[sample] length: 0 is not a size; use at least 1");
  EXPECT_EQ(message([] { sample(coin, "", {.temperature = 0.0}); }),
            "[sample] temperature: 0 is not positive; use greedy for the likeliest byte");
  EXPECT_EQ(
      message([] {
        sample([](auto&) { return torch::zeros({1, 256}); }, "ab");
      }),
      "[sample] logits: shape (1, 256), expected (1, 2, 1 to 256); return the logits of every "
      "position, over bytes");
  EXPECT_EQ(message([] {
              sample([](auto&) { return torch::full({1, 1, 256}, NAN); }, "a");
            }),
            "[sample] logits: not finite; check that the model's training did not diverge");
}

}  // namespace
}  // namespace meshtorch
