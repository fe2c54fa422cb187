// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/fsdp_rule.h>

#include <gtest/gtest.h>

#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

// "P(fsdp)", "P() | why not"
std::string added(const Leaf& leaf, const PartitionSpec& given, std::int64_t min_size = 0) {
  static const Mesh mesh({{"fsdp", 2}, {"tp", 4}});
  const auto layout = resolve(mesh, given, static_cast<std::int64_t>(leaf.shape.size()));
  const auto addition = FsdpRule("fsdp", {.min_size = min_size}).add(mesh, leaf, layout);
  EXPECT_EQ(addition.added, addition.layout != layout);
  return to_string(mesh, addition.layout) + (addition.added ? "" : " | " + addition.note);
}

TEST(FsdpRule, AddsItsAxisToTheLargestDimThatDivides) {
  EXPECT_EQ(added({"w", {8, 16}}, P()), "P(-, fsdp)");
  EXPECT_EQ(added({"w", {8, 17}}, P()), "P(fsdp)");
  EXPECT_EQ(added({"w", {8, 16}}, P(whole, "tp")), "P(-, (tp, fsdp))");
  EXPECT_EQ(added({"w", {8, 12}}, P(whole, "tp")), "P(fsdp, tp)");
}

TEST(FsdpRule, LeavesWhatItDoesNotFit) {
  EXPECT_EQ(added({"w", {7, 9}}, P()), "P() | not over fsdp: no dim divides");
  EXPECT_EQ(added({"w", {8}}, P("fsdp")), "P(fsdp) | uses fsdp already");
  EXPECT_EQ(added({"w", {8}}, P().unreduced("fsdp")), "P() unreduced(fsdp) | uses fsdp already");
  EXPECT_EQ(added({"w", {40, 50}}, P(), 2001), "P() | not over fsdp: 2,000 elements of 2,001");
  EXPECT_EQ(added({"w", {40, 50}}, P(), 2000), "P(-, fsdp)");
  EXPECT_EQ(added({.path = "running_mean", .shape = {8}, .buffer = true}, P()), "P() | ");
}

TEST(FsdpRule, Errors) {
  EXPECT_EQ(message([] { FsdpRule(""); }),
            "[FsdpRule] \"\" is an ill-formed axis name; name one axis of the mesh");
  EXPECT_EQ(message([] { FsdpRule("dp", {.min_size = -1}); }),
            "[FsdpRule] min_size: -1 elements; take 0 to shard whatever divides");
  EXPECT_EQ(message([] {
              FsdpRule("dp").add(Mesh({{"tp", 2}}), {"w", {8}}, Layout::replicated(1));
            }),
            "[FsdpRule] w: axis \"dp\" is not an axis of mesh (tp=2); use one of: tp");
}

}  // namespace
}  // namespace meshtorch
