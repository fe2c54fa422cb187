// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/axis.h>

#include <vector>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

TEST(AxisSet, IsASet) {
  AxisSet set = AxisSet::of(7) | AxisSet::of(2);
  set.insert(2);
  EXPECT_EQ(set.size(), 2);
  EXPECT_TRUE(set.contains(7));
  std::vector<int> axes;
  for (const int axis : set) axes.push_back(axis);
  EXPECT_EQ(axes, (std::vector<int>{2, 7}));
  set.erase(7);
  EXPECT_EQ(set, AxisSet::of(2));
  EXPECT_EQ(set - AxisSet::of(2), AxisSet());
  EXPECT_TRUE((set & AxisSet::of(3)).empty());
}

TEST(AxisList, KeepsOrderUpToTheLastAxis) {
  AxisList list;
  for (const int axis : {3, 0, 7, 1, 2, 6, 5, 4}) list.push_back(axis);
  EXPECT_EQ(list.size(), kMaxAxes);
  EXPECT_EQ(list.front(), 3);
  EXPECT_EQ(list[2], 7);
  EXPECT_EQ(list.back(), 4);
  EXPECT_EQ(list.set().size(), kMaxAxes);
  list.pop_back();
  EXPECT_EQ(list.back(), 5);
  EXPECT_FALSE(list.contains(4));
}

TEST(AxisList, WithoutKeepsTheOrderOfTheRest) {
  AxisList list;
  for (const int axis : {3, 0, 7}) list.push_back(axis);
  const AxisList rest = list.without(AxisSet::of(0));
  EXPECT_EQ(rest.size(), 2);
  EXPECT_EQ(rest[0], 3);
  EXPECT_EQ(rest[1], 7);
  EXPECT_TRUE(AxisList::of(1).without(AxisSet::of(1)).empty());
}

}  // namespace
}  // namespace meshtorch
