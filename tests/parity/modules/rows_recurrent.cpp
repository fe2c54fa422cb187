// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {

Rows recurrences() {
  const auto x = real({5, B, 4}), x_first = real({B, 5, 4});
  const auto step = real({B, 4}), state = real({B, 6});
  return {
      row([] { return nn::RNN(4, 6); }, x),
      row([] { return nn::LSTM(4, 6); }, x),
      row([] { return nn::GRU(4, 6); }, x),
      row([] { return nn::RNN(nn::RNNOptions(4, 6).nonlinearity(torch::kReLU).batch_first(true)); },
          x_first)
          .with("relu, batch first"),
      row([] { return nn::LSTM(nn::LSTMOptions(4, 6).num_layers(2).bidirectional(true)); }, x)
          .with("two layers, both directions")
          .composed(),
      row([] { return nn::LSTM(nn::LSTMOptions(4, 6).proj_size(2).batch_first(true)); }, x_first)
          .with("projected, batch first"),
      row([] { return nn::GRU(nn::GRUOptions(4, 6).num_layers(2).bidirectional(true)); }, x)
          .with("two layers, both directions")
          .composed(),
      row_of([] { return nn::LSTM(4, 6); },
             [](auto& module, const Tensors& x) {
               return module->forward(x[0], std::make_tuple(x[1], x[2]));
             },
             {x, real({1, B, 6}), real({1, B, 6})})
          .with("given states")
          .composed(),
      row([] { return nn::RNNCell(4, 6); }, step, state),
      row_of([] { return nn::LSTMCell(4, 6); },
             [](auto& module, const Tensors& x) {
               return module->forward(x[0], std::make_tuple(x[1], x[2]));
             },
             {step, state, state}),
      row([] { return nn::GRUCell(4, 6); }, step, state),
  };
}

}  // namespace meshtorch::modules
