// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/divisible_dim.h>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

int chosen(const Shape& shape, const PartitionSpec& spec) {
  static const Mesh mesh({{"fsdp", 2}, {"tp", 4}});
  return divisible_dim(mesh, shape, resolve(mesh, spec, static_cast<std::int64_t>(shape.size())),
                       0);
}

TEST(DivisibleDim, TheLargestThatDivides) {
  EXPECT_EQ(chosen({8, 16}, P()), 1);
  EXPECT_EQ(chosen({16, 8}, P()), 0);
  EXPECT_EQ(chosen({8, 8}, P()), 0);
  EXPECT_EQ(chosen({8, 17}, P()), 0);
  EXPECT_EQ(chosen({7, 17}, P()), -1);
}

TEST(DivisibleDim, AfterWhatShardsTheDim) {
  EXPECT_EQ(chosen({8, 12}, P(whole, "tp")), 0);  // 12 over 4 * 2 does not divide
  EXPECT_EQ(chosen({8, 16}, P(whole, "tp")), 1);
  EXPECT_EQ(chosen({7, 12}, P(whole, "tp")), -1);
}

TEST(DivisibleDim, ScalarsAndEmptyDims) {
  EXPECT_EQ(chosen({}, P()), -1);
  EXPECT_EQ(chosen({0}, P()), -1);
  EXPECT_EQ(chosen({0, 2}, P()), 1);
}

}  // namespace
}  // namespace meshtorch
