// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/route.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<int> owners(const GroupRoute& group) {
  std::vector<int> owners;
  for (const auto& member : group.members) owners.push_back(member.process);
  return owners;
}

std::vector<std::size_t> indices(const GroupRoute& group) {
  std::vector<std::size_t> indices;
  for (const auto& member : group.members) indices.push_back(member.index);
  return indices;
}

const AxisList kFirst = AxisList::of(0), kSecond = AxisList::of(1);

TEST(Route, PositionsLieOnTheProcessesOfTheirDevices) {
  const Mesh mesh({{"dp", 2}, {"tp", 3}});
  const DevicePlacement placement(mesh, 2);
  EXPECT_THAT(placement.positions_of(0), ElementsAre(0, 1));
  EXPECT_THAT(placement.positions_of(1), ElementsAre(2, 3));
  EXPECT_THAT(placement.positions_of(2), ElementsAre(4, 5));
  EXPECT_THAT(placement.positions_of(3), IsEmpty());
  EXPECT_EQ(placement.process_of(3), 1);
  EXPECT_EQ(placement.index_of(3), 1u);
}

// Devices 0, 2, 1, 3 of two processes with two devices each.
TEST(Route, AMeshMayAlternateBetweenProcesses) {
  const Mesh mesh(std::vector<MeshAxis>{{"dp", 4}}, {0, 2, 1, 3});
  const DevicePlacement placement(mesh, 2);
  EXPECT_THAT(placement.positions_of(0), ElementsAre(0, 2));
  EXPECT_THAT(placement.positions_of(1), ElementsAre(1, 3));
  const auto groups = placement.groups(mesh, kFirst, 1);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(owners(groups[0]), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(indices(groups[0]), ElementsAre(0u, 0u, 1u, 1u));
  EXPECT_THAT(groups[0].ranks_of(1), ElementsAre(1u, 3u));
  EXPECT_THAT(groups[0].ranks_of(2), IsEmpty());
}

TEST(Route, GroupsAreThoseOfWhichAProcessHoldsAMember) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const DevicePlacement placement(mesh, 2);
  const auto inside = placement.groups(mesh, kSecond, 1);
  ASSERT_EQ(inside.size(), 1u);
  EXPECT_FALSE(inside[0].crosses());
  EXPECT_THAT(owners(inside[0]), ElementsAre(1, 1));
  const auto across = placement.groups(mesh, kFirst, 1);
  ASSERT_EQ(across.size(), 2u);
  EXPECT_TRUE(across[0].crosses());
  EXPECT_THAT(across[0].processes, ElementsAre(0, 1));
  EXPECT_THAT(indices(across[1]), ElementsAre(1u, 1u));
}

// The order that all processes share: by the first rank that each holds.
TEST(Route, ProcessesAreListedByTheirFirstRank) {
  const Mesh mesh(std::vector<MeshAxis>{{"dp", 4}}, {5, 1, 4, 2});
  const DevicePlacement placement(mesh, 2);
  EXPECT_THAT(placement.groups(mesh, kFirst, 0)[0].processes, ElementsAre(2, 0, 1));
  EXPECT_THAT(placement.groups(mesh, kFirst, 3), IsEmpty());
}

TEST(Route, RanksFollowTheOrderOfTheAxes) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  AxisList minor_first = kSecond;
  minor_first.push_back(0);
  const auto groups = DevicePlacement(mesh, 1).groups(mesh, minor_first, 0);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_THAT(owners(groups[0]), ElementsAre(0, 2, 1, 3));
}

}  // namespace
}  // namespace meshtorch
