// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {

Rows linears() {
  return {
      row([] { return nn::Identity(); }, real({B, 6})),
      row([] { return nn::Linear(6, 10); }, real({B, 5, 6}))
          .sharded("columns", {{"weight|bias", P("tp")}})
          .sharded("rows", {{"weight", P(whole, "tp")}}, {2}),
      row([] { return nn::Linear(nn::LinearOptions(6, 10).bias(false)); }, real({B, 6}))
          .with("no bias")
          .sharded("columns", {{"weight", P("tp")}})
          .sharded("rows", {{"weight", P(whole, "tp")}}, {1}),
      row([] { return nn::Bilinear(4, 6, 8); }, real({B, 4}), real({B, 6}))
          .sharded("columns", {{"weight|bias", P("tp")}})
          .sharded("rows of input 1", {{"weight", P(whole, "tp")}}, {1, -1})
          .sharded("rows of input 2", {{"weight", P(whole, whole, "tp")}}, {-1, 1}),
      row([] { return nn::Flatten(); }, real({B, 4, 3, 2})).sharded("channels", {}, {1}),
      row(
          [] {
            return nn::Unflatten(nn::UnflattenOptions(1, {4, 3}));
          },
          real({B, 12, 2}))
          .sharded("channels", {}, {1}),
  };
}

}  // namespace meshtorch::modules
