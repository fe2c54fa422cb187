// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

const std::vector<PathRule> kAlternating{{"0\\.(weight|bias)", P("tp")},
                                         {"2\\.weight", P(whole, "tp")}};

at::Tensor through(const std::vector<std::shared_ptr<nn::Module>>& layers, at::Tensor x) {
  for (const auto& layer : layers) {
    x = layer->as<nn::Linear>() ? layer->as<nn::Linear>()->forward(x)
                                : layer->as<nn::ReLU>()->forward(x);
  }
  return x;
}

}  // namespace

Rows containers() {
  const auto x = real({B, 4});
  return {
      row([] { return nn::Sequential(nn::Linear(4, 6), nn::ReLU(), nn::Linear(6, 2)); }, x)
          .sharded("columns, rows", kAlternating),
      row_of([] { return nn::ModuleList(nn::Linear(4, 6), nn::ReLU(), nn::Linear(6, 2)); },
             [](auto& list, const Tensors& x) {
               return through({list->begin(), list->end()}, x[0]);
             },
             {x})
          .sharded("columns, rows", kAlternating),
      row_of(
          [] {
            nn::ModuleDict dict;
            dict->update({{"0", nn::Linear(4, 6).ptr()}, {"2", nn::Linear(6, 2).ptr()}});
            return dict;
          },
          [](auto& dict, const Tensors& x) { return through(dict->values(), x[0]); }, {x})
          .sharded("columns, rows", kAlternating),
      row_of(
          [] {
            return nn::ParameterList(torch::randn({4, 6}), torch::randn({6}));
          },
          [](auto& list, const Tensors& x) { return torch::addmm((*list)[1], x[0], (*list)[0]); },
          {x})
          .sharded("columns", {{"0", P(whole, "tp")}, {"1", P("tp")}}),
      row_of(
          [] {
            nn::ParameterDict dict;
            dict->insert("scale", torch::randn({4}));
            dict->insert("offset", torch::randn({4}));
            return dict;
          },
          [](auto& dict, const Tensors& x) { return x[0] * dict["scale"] + dict["offset"]; }, {x})
          .sharded("features", {{"scale|offset", P("tp")}}, {1}),
      row([] { return nn::Functional(torch::log_softmax, 1, std::nullopt); }, x)
          .sharded("softmax dim", {}, {1}),
  };
}

}  // namespace meshtorch::modules
