// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/leaves.h>

#include <ATen/ATen.h>

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;

// A group whose ranks lie on these processes.
GroupRoute group_on(const std::vector<int>& processes) {
  GroupRoute group;
  std::map<int, std::size_t> held;
  for (const int process : processes) {
    if (held[process] == 0) group.processes.push_back(process);
    group.members.push_back({.process = process, .index = held[process]++});
  }
  return group;
}

// "0[0,2)": process 0 combines ranks 0 and 1.
std::vector<std::string> cut(const std::vector<int>& processes) {
  std::vector<std::string> lines;
  for (const Subtree& leaf : leaves_of(group_on(processes))) {
    lines.push_back(std::to_string(leaf.process) + "[" + std::to_string(leaf.begin) + "," +
                    std::to_string(leaf.end) + ")");
  }
  return lines;
}

TEST(Leaves, AreTheLargestSubtreesOfOneProcess) {
  EXPECT_THAT(cut({0, 0, 0}), ElementsAre("0[0,3)"));
  EXPECT_THAT(cut({0, 1}), ElementsAre("0[0,1)", "1[1,2)"));
  EXPECT_THAT(cut({0, 0, 1, 1}), ElementsAre("0[0,2)", "1[2,4)"));
  EXPECT_THAT(cut({0, 0, 0, 0, 1, 1, 1, 1}), ElementsAre("0[0,4)", "1[4,8)"));
}

// Three and three: halves of three ranks, each cut in two and one.
TEST(Leaves, ABlockThatIsNoSubtreeGivesSeveral) {
  EXPECT_THAT(cut({0, 0, 1, 1, 2, 2}),
              ElementsAre("0[0,2)", "1[2,3)", "1[3,4)", "2[4,5)", "2[5,6)"));
  EXPECT_THAT(cut({0, 1, 0, 1}), ElementsAre("0[0,1)", "1[1,2)", "0[2,3)", "1[3,4)"));
  EXPECT_THAT(cut({0, 0, 1}), ElementsAre("0[0,2)", "1[2,3)"));
  EXPECT_THAT(cut({0, 1, 1}), ElementsAre("0[0,1)", "1[1,2)", "1[2,3)"));
  EXPECT_THAT(cut({0, 0, 0, 1, 1}), ElementsAre("0[0,3)", "1[3,5)"));
}

// The parts of all processes, each combined where it lies, give the bits of the whole tree, which is
// written out: other orders of these numbers give other bits.
TEST(Leaves, TogetherAreTheWholeTree) {
  const Shards x = {at::tensor({-667.f}),    at::tensor({-463980.f}), at::tensor({200418.f}),
                    at::tensor({-263784.f}), at::tensor({-772.f}),    at::tensor({73483968.f})};
  const at::Tensor whole = ((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5]);
  ASSERT_FALSE(whole.equal(x[0] + x[1] + x[2] + x[3] + x[4] + x[5]));
  ASSERT_FALSE(whole.equal(((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5])));
  ASSERT_FALSE(whole.equal((x[0] + (x[1] + x[2])) + (x[3] + (x[4] + x[5]))));
  for (const auto& processes : {std::vector<int>{0, 0, 0, 0, 0, 1},
                                {0, 0, 1, 1, 2, 2},
                                {0, 1, 0, 1, 0, 1},
                                {0, 1, 2, 2, 1, 0},
                                {0, 1, 2, 3, 4, 5},
                                {0, 0, 0, 1, 1, 1}}) {
    const GroupRoute group = group_on(processes);
    std::map<int, Shards> held;  // inputs by process
    for (std::size_t rank = 0; rank < x.size(); ++rank) held[processes[rank]].push_back(x[rank]);
    Shards values;
    for (const Subtree& leaf : leaves_of(group))
      values.push_back(combine_leaf(group, leaf, held[leaf.process], Reduction::sum));
    at::Tensor out = at::empty({1});
    combine_leaves(out, group, values, Reduction::sum);
    EXPECT_TRUE(out.equal(whole)) << testing::PrintToString(processes) << out << whole;
  }
}

TEST(Leaves, WriteIntoTheMiddleOfATensor) {
  const GroupRoute group = group_on({0, 1, 2});
  at::Tensor whole = at::zeros({6});
  at::Tensor part = whole.narrow(0, 2, 2);
  combine_leaves(part, group, {at::full({2}, 1.), at::full({2}, 4.), at::full({2}, 3.)},
                 Reduction::max);
  EXPECT_TRUE(whole.equal(at::tensor({0.f, 0.f, 4.f, 4.f, 0.f, 0.f})));
}

}  // namespace
}  // namespace meshtorch
