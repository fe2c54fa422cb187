// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/formula.h>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

const Mesh kMesh{{"dp", 4}, {"tp", 2}};

std::vector<Match> leaves(const Mesh& mesh) {
  return PathRules({{"weight", P("tp")}, {"bias", P()}})
      .match(mesh, {{.path = "weight", .shape = {8, 6}},
                    {.path = "bias", .shape = {8}},
                    {.path = "odd.bias", .shape = {3}}})
      .matches;
}

TEST(ZeroTraffic, IsTheLowerBoundOfEachRing) {
  const auto traffic = zero_traffic(kMesh, leaves(kMesh), "dp");
  // weight: half of 48 floats, bias: 8 floats; three quarters of each travel.
  EXPECT_EQ(traffic.reduce_scatter, (Traffic{1, (96 + 32) * 3 / 4}));
  EXPECT_EQ(traffic.all_gather, traffic.reduce_scatter);
}

TEST(ZeroTraffic, LeavesThatDoNotDivideShareOneAllReduce) {
  const auto traffic = zero_traffic(kMesh, leaves(kMesh), "dp");
  EXPECT_EQ(traffic.whole_leaves, 1);
  EXPECT_EQ(traffic.all_reduce, (Traffic{1, 2 * 12 * 3 / 4}));
}

TEST(ZeroTraffic, NothingOverAnAxisOfOne) {
  const Mesh mesh{{"dp", 1}, {"tp", 2}};
  const auto traffic = zero_traffic(mesh, leaves(mesh), "dp");
  EXPECT_EQ(traffic.reduce_scatter, Traffic{});
  EXPECT_EQ(traffic.all_gather, Traffic{});
  EXPECT_EQ(traffic.all_reduce, Traffic{});
  EXPECT_EQ(traffic.whole_leaves, 0);
}

TEST(ZeroTraffic, ATiedLeafTravelsOnce) {
  const PathRules rules({{"", P()}});
  const auto matches = rules
                           .match(kMesh, {{.path = "a", .shape = {8}, .tie = 0},
                                          {.path = "b", .shape = {8}, .tie = 0}})
                           .matches;
  EXPECT_EQ(zero_traffic(kMesh, matches, "dp").all_gather, (Traffic{1, 24}));
}

TEST(TensorParallelTraffic, IsMegatronsCount) {
  const GptOptions model{.width = 16, .layers = 3};
  const auto traffic = tensor_parallel_traffic(kMesh, model, 2, 8, "tp");
  // An all-reduce over two devices sends what it reduces once.
  EXPECT_EQ(traffic.activations, (Traffic{4 * 3 + 2, (4 * 3 + 2) * (2 * 8 * 16 * 4)}));
  EXPECT_EQ(traffic.loss, (Traffic{3, 3 * (2 * 8 * 4)}));
}

TEST(TensorParallelTraffic, NothingOverAnAxisOfOne) {
  const auto traffic = tensor_parallel_traffic(Mesh{{"dp", 8}, {"tp", 1}}, {}, 2, 8, "tp");
  EXPECT_EQ(traffic.activations, Traffic{});
  EXPECT_EQ(traffic.loss, Traffic{});
}

}  // namespace
}  // namespace meshtorch
