// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

Row by_channel(Row row) { return std::move(row).sharded("channels", {}, {1}); }

template <class Mode>
auto upsample(double scale, int dims, Mode mode) {
  return [=] {
    return nn::Upsample(
        nn::UpsampleOptions().scale_factor(std::vector<double>(dims, scale)).mode(mode));
  };
}

}  // namespace

Rows pads_and_reorderings() {
  const auto x1 = real({B, 4, 5}), x2 = real({B, 4, 5, 4}), x3 = real({B, 4, 4, 3, 5});
  return {
      by_channel(row([] { return nn::ZeroPad1d(2); }, x1)),
      by_channel(row([] { return nn::ZeroPad2d(2); }, x2)),
      by_channel(row([] { return nn::ZeroPad3d(1); }, x3)),
      by_channel(row([] { return nn::ConstantPad1d(2, 1.5); }, x1)),
      by_channel(row([] { return nn::ConstantPad2d(2, 1.5); }, x2)),
      by_channel(row([] { return nn::ConstantPad3d(1, 1.5); }, x3)),
      by_channel(row([] { return nn::ReflectionPad1d(2); }, x1)),
      by_channel(row([] { return nn::ReflectionPad2d(2); }, x2)),
      by_channel(row([] { return nn::ReflectionPad3d(1); }, x3)),
      by_channel(row([] { return nn::ReplicationPad1d(2); }, x1)),
      by_channel(row([] { return nn::ReplicationPad2d(2); }, x2)),
      by_channel(row([] { return nn::ReplicationPad3d(1); }, x3)),
      by_channel(row(
          [] {
            return nn::Fold(nn::FoldOptions({4, 5}, {2, 2}));
          },
          real({B, 16, 12}))),
      by_channel(row(
          [] {
            return nn::Unfold(nn::UnfoldOptions({2, 3}));
          },
          x2)),
      by_channel(row([] { return nn::PixelShuffle(2); }, real({B, 8, 3, 2}))),
      by_channel(row([] { return nn::PixelUnshuffle(2); }, real({B, 2, 4, 6}))),
      by_channel(row(upsample(2.0, 1, torch::kNearest), x1).with("nearest 1d")),
      by_channel(row(upsample(2.0, 2, torch::kNearest), x2).with("nearest 2d")),
      by_channel(row(upsample(2.0, 3, torch::kNearest), x3).with("nearest 3d")),
      by_channel(row(upsample(1.5, 1, torch::kLinear), x1).with("linear")),
      by_channel(row(upsample(1.5, 2, torch::kBilinear), x2).with("bilinear")),
      by_channel(row(upsample(1.5, 2, torch::kBicubic), x2).with("bicubic")),
      by_channel(row(upsample(1.5, 3, torch::kTrilinear), x3).with("trilinear")),
  };
}

}  // namespace meshtorch::modules
