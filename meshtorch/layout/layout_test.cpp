// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/layout.h>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

const Mesh mesh{{"dp", 4}, {"fsdp", 3}, {"tp", 2}};

TEST(Layout, ResolvesNames) {
  const Layout layout = resolve(mesh, P(whole, axes("tp", "dp")).unreduced("fsdp"), 3);
  ASSERT_EQ(layout.dims.size(), 3u);
  EXPECT_TRUE(layout.dims[0].empty());
  EXPECT_EQ(layout.dims[1][0], 2);
  EXPECT_EQ(layout.dims[1][1], 0);
  EXPECT_TRUE(layout.dims[2].empty());
  EXPECT_EQ(layout.unreduced, AxisSet::of(1));
  EXPECT_EQ(layout.sharded(), AxisSet::of(0) | AxisSet::of(2));
  EXPECT_EQ(layout.dim_of(0), 1);
  EXPECT_EQ(layout.dim_of(1), -1);
}

TEST(Layout, RoundTripsThroughItsSpec) {
  for (const char* form : {"P()", "P(dp)", "P(-, (tp, dp))", "P(tp, fsdp) unreduced(dp)"}) {
    const Layout layout = resolve(mesh, P::parse(form), 2);
    EXPECT_EQ(spec_of(mesh, layout), P::parse(form));
    EXPECT_EQ(to_string(mesh, layout), form);
  }
}

TEST(Layout, ReplicatedMeansNothingShardedAndNothingUnreduced) {
  EXPECT_EQ(Layout::replicated(2), resolve(mesh, P(), 2));
  EXPECT_TRUE(Layout::replicated(0).is_replicated());
  EXPECT_FALSE(resolve(mesh, P("dp"), 1).is_replicated());
  EXPECT_FALSE(resolve(mesh, P().unreduced("dp"), 0).is_replicated());
}

TEST(LayoutErrors, UnknownAxisListsTheNames) {
  const std::string rest =
      "axis \"tpp\" is not an axis of mesh (dp=4, fsdp=3, tp=2); use one of: dp, fsdp, tp";
  EXPECT_EQ(message([] { resolve(mesh, P(whole, "tpp"), 2, "device_put", "mlp.up.weight"); }),
            "[device_put] mlp.up.weight dim 1: " + rest);
  EXPECT_EQ(message([] { resolve(mesh, P("tpp"), 2); }), "[PartitionSpec] dim 0: " + rest);
  EXPECT_EQ(message([] { resolve(mesh, P().unreduced("tpp"), 0, "reshard", "x"); }),
            "[reshard] x unreduced: " + rest);
}

TEST(LayoutErrors, TooManyDims) {
  EXPECT_EQ(message([] { resolve(mesh, P("dp", "tp"), 1, "shard", "norm.weight"); }),
            "[shard] norm.weight: P(dp, tp) names 2 dims, the tensor has 1; drop dims from the "
            "spec");
  EXPECT_EQ(message([] { resolve(mesh, P("dp"), 0); }),
            "[PartitionSpec] P(dp) names 1 dims, the tensor has 0; drop dims from the spec");
}

TEST(LayoutErrors, NoMesh) {
  EXPECT_EQ(message([] { resolve(Mesh(), P("dp"), 1, "device_put", "x"); }),
            "[device_put] x: P(dp) has no mesh; make one with Runtime::make_mesh");
}

}  // namespace
}  // namespace meshtorch
