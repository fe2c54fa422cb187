// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "row.h"

namespace meshtorch::modules {
namespace {

// Shoeybi et al. 2019, "Megatron-LM": the feed-forward's first weight by columns, the second by rows.
Row megatron(Row row) {
  return std::move(row).sharded(
      "feed-forward", {{"linear1\\.(weight|bias)", P("tp")}, {"linear2\\.weight", P(whole, "tp")}});
}

nn::TransformerEncoderLayer encoder_layer(double dropout = 0) {
  return nn::TransformerEncoderLayer(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(dropout));
}

nn::TransformerDecoderLayer decoder_layer() {
  return nn::TransformerDecoderLayer(
      nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12).dropout(0));
}

nn::Transformer transformer() {
  return nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(12).dropout(0));
}

void no_property(const Tensors&, const Tensors& outputs) {
  EXPECT_TRUE(outputs[0].isfinite().all().item<bool>());
}

}  // namespace

Rows transformers() {
  const auto source = real({5, B, 8}), target = real({3, B, 8});
  return {
      row([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2)); }, target,
          source, source)
          .sharded("output rows", {{"out_proj.weight", P(whole, "tp")}})
          .sharded("packed heads, output rows",
                   {{"in_proj_(weight|bias)", P("tp")}, {"out_proj.weight", P(whole, "tp")}}),
      row(
          [] {
            return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6));
          },
          target, real({5, B, 6}), real({5, B, 6}))
          .with("kdim, vdim")
          .sharded("heads, output rows", {{"[qkv]_proj_weight|in_proj_bias", P("tp")},
                                          {"out_proj.weight", P(whole, "tp")}}),
      row([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).dropout(0.5)); },
          target, source, source)
          .with("dropout")
          .random(no_property)
          .composed(),
      megatron(row([] { return encoder_layer(); }, source)),
      megatron(row([] { return encoder_layer(0.2); }, source).with("dropout").random(no_property))
          .composed(),
      megatron(row([] { return decoder_layer(); }, target, source)).composed(),
      megatron(row([] { return nn::TransformerEncoder(encoder_layer(), 2); }, source)).composed(),
      megatron(row([] { return nn::TransformerDecoder(decoder_layer(), 2); }, target, source))
          .composed(),
      megatron(row([] { return transformer(); }, source, target)).composed(),
  };
}

}  // namespace meshtorch::modules
