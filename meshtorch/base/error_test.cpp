// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/base/error.h>

#include <vector>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

TEST(Error, HasOneGrammar) {
  EXPECT_EQ(format({.op = "mm", .where = "dim 0", .what = "got 3, expected 4", .remedy = "pad it"}),
            "[mm] dim 0: got 3, expected 4; pad it");
}

TEST(Error, LeavesOutEmptyPartsWithTheirPunctuation) {
  EXPECT_EQ(format({.op = "mm", .what = "got 3"}), "[mm] got 3");
  EXPECT_EQ(format({.op = "mm", .where = "dim 0", .what = "got 3"}), "[mm] dim 0: got 3");
  EXPECT_EQ(format({.op = "mm", .what = "got 3", .remedy = "pad it"}), "[mm] got 3; pad it");
}

TEST(Error, FailThrowsTheMessage) {
  try {
    fail({.op = "mm", .what = "got 3", .remedy = "pad it"});
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[mm] got 3; pad it");
    return;
  }
  FAIL() << "did not throw";
}

TEST(Error, TextAndJoin) {
  EXPECT_EQ(text("dim ", 3, " of ", "x"), "dim 3 of x");
  EXPECT_EQ(join(std::vector<int>{}), "");
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(join(std::vector<int>{1, 2}, "x"), "1x2");
}

}  // namespace
}  // namespace meshtorch
