// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

Row table_layouts(Row row) {
  return std::move(row)
      .sharded("rows", {{"weight", P("tp")}})
      .sharded("columns", {{"weight", P(whole, "tp")}});
}

}  // namespace

Rows embeddings() {
  const auto ids = index(10, {B, 3});
  const auto offsets = values([](std::int64_t batch) { return torch::arange(batch) * 3; });
  const auto bag = [](auto mode) {
    return [=] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 6).mode(mode)); };
  };
  return {
      table_layouts(row([] { return nn::Embedding(10, 6); }, ids)),
      table_layouts(
          row([] { return nn::Embedding(nn::EmbeddingOptions(10, 6).padding_idx(2)); }, ids)
              .with("padding_idx")),
      table_layouts(
          row([] { return nn::Embedding(nn::EmbeddingOptions(10, 6).max_norm(1.0)); }, ids)
              .with("max_norm")),
      table_layouts(
          row([] { return nn::Embedding(nn::EmbeddingOptions(10, 6).scale_grad_by_freq(true)); },
              ids)
              .with("scale_grad_by_freq")),
      table_layouts(row([] { return nn::Embedding(nn::EmbeddingOptions(10, 6).sparse(true)); }, ids)
                        .with("sparse: its gradient is dense")),
      table_layouts(row(bag(torch::kSum), ids).with("sum")),
      table_layouts(row(bag(torch::kMean), ids).with("mean")),
      table_layouts(row(bag(torch::kMax), ids).with("max")),
      table_layouts(
          row_of(bag(torch::kSum),
                 [](auto& module, const Tensors& x) { return module->forward(x[0], {}, x[1]); },
                 {ids, real({B, 3})})
              .with("sum, weighted")),
      table_layouts(row_of(bag(torch::kMean),
                           [](auto& module, const Tensors& x) {
                             return module->forward(x[0].flatten(), x[1]);
                           },
                           {ids, offsets})
                        .with("mean, offsets")),
  };
}

}  // namespace meshtorch::modules
