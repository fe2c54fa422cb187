// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

// A convolution's weight is [out, in / groups, ...], a transposed one's [in, out / groups, ...].
Row conv_layouts(Row row) {
  return std::move(row)
      .sharded("output channels", {{"weight|bias", P("tp")}})
      .sharded("input channels", {{"weight", P(whole, "tp")}}, {1});
}

Row transposed_layouts(Row row) {
  return std::move(row)
      .sharded("output channels", {{"weight", P(whole, "tp")}, {"bias", P("tp")}})
      .sharded("input channels", {{"weight", P("tp")}}, {1});
}

}  // namespace

Rows convolutions() {
  return {
      conv_layouts(row([] { return nn::Conv1d(4, 6, 3); }, real({B, 4, 9}))),
      conv_layouts(row([] { return nn::Conv2d(nn::Conv2dOptions(4, 6, 3).stride(2).padding(1)); },
                       real({B, 4, 7, 6}))),
      conv_layouts(row([] { return nn::Conv3d(4, 6, 2); }, real({B, 4, 4, 3, 3}))),
      row([] { return nn::Conv1d(nn::Conv1dOptions(4, 8, 3).groups(4)); }, real({B, 4, 6}))
          .with("depthwise")
          .sharded("groups", {{"weight|bias", P("tp")}}, {1}),
      row([] { return nn::Conv2d(nn::Conv2dOptions(4, 8, 3).groups(2)); }, real({B, 4, 5, 5}))
          .with("groups")
          .sharded("groups", {{"weight|bias", P("tp")}}, {1}),
      row([] { return nn::Conv3d(nn::Conv3dOptions(4, 8, 2).groups(2)); }, real({B, 4, 3, 3, 3}))
          .with("groups")
          .sharded("groups", {{"weight|bias", P("tp")}}, {1}),
      row(
          [] {
            return nn::Conv2d(
                nn::Conv2dOptions(4, 6, 3).padding(torch::kSame).dilation(2).bias(false));
          },
          real({B, 4, 6, 6}))
          .with("same padding, dilation, no bias"),
      row(
          [] {
            return nn::Conv2d(nn::Conv2dOptions(4, 6, 3).padding(1).padding_mode(torch::kCircular));
          },
          real({B, 4, 5, 5}))
          .with("circular padding"),
      transposed_layouts(row([] { return nn::ConvTranspose1d(4, 6, 3); }, real({B, 4, 5}))),
      transposed_layouts(row(
          [] {
            return nn::ConvTranspose2d(
                nn::ConvTranspose2dOptions(4, 6, 3).stride(2).padding(1).output_padding(1));
          },
          real({B, 4, 4, 3}))),
      transposed_layouts(row([] { return nn::ConvTranspose3d(4, 6, 2); }, real({B, 4, 3, 2, 3}))),
      row([] { return nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 8, 2).groups(2)); },
          real({B, 4, 3, 3}))
          .with("groups")
          .sharded("groups", {{"weight|bias", P("tp")}}, {1}),
  };
}

}  // namespace meshtorch::modules
