// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/digest.h>

#include <ATen/ATen.h>

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

// The first outputs of splitmix64 from seed 0, as published with the generator.
TEST(Digest, MixIsTheStepOfSplitmix64) {
  EXPECT_EQ(mix(0, 0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(mix(0x9e3779b97f4a7c15u, 0), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(mix(0x9e3779b97f4a7c15u * 2, 0), 0x06c45d188009454fu);
}

TEST(Digest, MixDependsOnTheOrder) { EXPECT_NE(mix(mix(7, 1), 2), mix(mix(7, 2), 1)); }

// Texts of all lengths around the width of a block, and each with one bit flipped.
TEST(Digest, EveryBitAndTheLengthCount) {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  for (std::size_t length = 0; length <= 70; ++length) {
    std::string text(length, '\0');
    seen.insert(hash(text));
    ++count;
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
      seen.insert(hash(text));
      ++count;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Digest, WhereBytesLieCounts) {
  std::string text(96, 'a');
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = 'b';
    seen.insert(hash(text));
    text[i] = 'a';
  }
  EXPECT_EQ(seen.size(), text.size());
}

TEST(Digest, DoesNotDependOnAlignment) {
  const std::string text = "what processes say to each other, in more than one block of bytes";
  for (std::size_t shift = 0; shift < 16; ++shift) {
    const std::string moved = std::string(shift, ' ') + text;
    EXPECT_EQ(hash(moved.data() + shift, text.size()), hash(text));
  }
}

TEST(Digest, ChecksumIsOfTheElementsWhateverTheStrides) {
  const at::Tensor dense = at::randn({5, 7});
  const at::Tensor transposed = dense.t().contiguous().t();
  ASSERT_FALSE(transposed.is_contiguous());
  EXPECT_EQ(checksum(transposed), checksum(dense));
  EXPECT_EQ(checksum(dense.slice(0, 1, 3)), checksum(dense.slice(0, 1, 3).clone()));
  EXPECT_NE(checksum(dense.t()), checksum(dense));
}

TEST(Digest, ChecksumSeesBitsAndDtypes) {
  EXPECT_NE(checksum(at::zeros({2})), checksum(-at::zeros({2})));
  EXPECT_NE(checksum(at::zeros({2}, at::kInt)), checksum(at::zeros({2}, at::kFloat)));
  const at::Tensor complex = at::randn({3}, at::kComplexFloat);
  EXPECT_EQ(checksum(complex.conj()), checksum(complex.conj().resolve_conj()));
  EXPECT_NE(checksum(complex.conj()), checksum(complex));
  at::Tensor leaf = at::ones({2});
  const std::uint64_t plain = checksum(leaf);
  EXPECT_EQ(checksum(leaf.requires_grad_()), plain);
  EXPECT_EQ(checksum(at::empty({0})), checksum(at::empty({0, 3})));
}

}  // namespace
}  // namespace meshtorch
