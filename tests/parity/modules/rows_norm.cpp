// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

// Scales, offsets and statistics lie with the channels.
Row by_channel(Row row) {
  return std::move(row).sharded("channels", {{"weight|bias|running", P("tp")}}, {1});
}

}  // namespace

Rows norms() {
  const auto x1 = real({B, 4, 6}), x2 = real({B, 4, 5, 3}), x3 = real({B, 4, 3, 2, 3});
  return {
      by_channel(row([] { return nn::BatchNorm1d(4); }, x1)),
      by_channel(row([] { return nn::BatchNorm2d(4); }, x2)),
      by_channel(row([] { return nn::BatchNorm3d(4); }, x3)),
      by_channel(row([] { return nn::BatchNorm1d(4); }, real({B, 4})).with("of [batch, features]")),
      by_channel(row([] { return nn::BatchNorm2d(nn::BatchNormOptions(4).affine(false)); }, x2)
                     .with("not affine")),
      by_channel(
          row([] { return nn::BatchNorm2d(nn::BatchNormOptions(4).track_running_stats(false)); },
              x2)
              .with("no running statistics")),
      by_channel(
          row([] { return nn::BatchNorm2d(nn::BatchNormOptions(4).momentum(std::nullopt)); }, x2)
              .with("cumulative average")),
      by_channel(row([] { return nn::InstanceNorm1d(4); }, x1)),
      by_channel(row([] { return nn::InstanceNorm2d(4); }, x2)),
      by_channel(row([] { return nn::InstanceNorm3d(4); }, x3)),
      by_channel(row([] { return nn::InstanceNorm1d(nn::InstanceNormOptions(4).affine(true)); }, x1)
                     .with("affine")),
      by_channel(row([] { return nn::InstanceNorm2d(nn::InstanceNormOptions(4).affine(true)); }, x2)
                     .with("affine")),
      by_channel(row([] { return nn::InstanceNorm3d(nn::InstanceNormOptions(4).affine(true)); }, x3)
                     .with("affine")),
      by_channel(row(
                     [] {
                       return nn::InstanceNorm2d(
                           nn::InstanceNormOptions(4).affine(true).track_running_stats(true));
                     },
                     x2)
                     .with("affine, running statistics")),
      row([] { return nn::LayerNorm(nn::LayerNormOptions({6})); }, x1)
          .sharded("rows", {}, {1})
          .sharded("features", {{"weight|bias", P("tp")}}, {2}),
      row(
          [] {
            return nn::LayerNorm(nn::LayerNormOptions({4, 6}).elementwise_affine(false));
          },
          x1)
          .with("not affine, two dims"),
      by_channel(row([] { return nn::GroupNorm(2, 4); }, x2)),
      row([] { return nn::GroupNorm(nn::GroupNormOptions(2, 4).affine(false)); }, x1)
          .with("not affine"),
      row([] { return nn::LocalResponseNorm(3); }, x2).sharded("channels", {}, {1}),
      row([] { return nn::CrossMapLRN2d(3); }, x2).sharded("channels", {}, {1}),
  };
}

}  // namespace meshtorch::modules
