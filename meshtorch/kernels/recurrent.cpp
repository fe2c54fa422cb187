// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers that start from a plain state: the zeros that torch::nn's modules make where none is
// given. Such a state lies as the input's batch does; whole on every device it would make the layer run
// whole on every device.
#include <ATen/ATen.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

// A state is (layers, batch, hidden); an input without a batch has states without one.
at::Tensor beside(const at::Tensor& input, const at::Tensor& state, bool batch_first) {
  if (!is_sharded(input) || is_sharded(state)) return state;
  const NamedSharding place = sharding_of(input);
  const std::size_t batch = batch_first ? 0 : 1;
  const std::vector<DimSpec>& dims = place.spec.dims();
  if (input.dim() != 3 || state.dim() != 3 || dims.size() <= batch)
    return replicate(state, place.mesh);
  return device_put(state, {place.mesh, PartitionSpec::from({{}, dims[batch]})});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input, at::TensorList states,
                                                    at::TensorList params, bool has_biases,
                                                    std::int64_t num_layers, double dropout,
                                                    bool train, bool bidirectional,
                                                    bool batch_first) {
  std::vector<at::Tensor> placed;
  for (const at::Tensor& state : states) placed.push_back(beside(input, state, batch_first));
  return at::native::lstm(input, placed, params, has_biases, num_layers, dropout, train,
                          bidirectional, batch_first);
}

using Layer = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                 at::TensorList, bool, std::int64_t, double, bool,
                                                 bool, bool);

template <Layer layer>
std::tuple<at::Tensor, at::Tensor> recurrent(const at::Tensor& input, const at::Tensor& state,
                                             at::TensorList params, bool has_biases,
                                             std::int64_t num_layers, double dropout, bool train,
                                             bool bidirectional, bool batch_first) {
  return layer(input, beside(input, state, batch_first), params, has_biases, num_layers, dropout,
               train, bidirectional, batch_first);
}

}  // namespace

void install_recurrent(Dispatch& dispatch) {
  torch::Library& library = dispatch.autograd_library();
  library.impl("lstm.input", TORCH_FN(lstm));
  library.impl("gru.input", TORCH_FN(recurrent<at::native::gru>));
  library.impl("rnn_tanh.input", TORCH_FN(recurrent<at::native::rnn_tanh>));
  library.impl("rnn_relu.input", TORCH_FN(recurrent<at::native::rnn_relu>));
}

}  // namespace meshtorch
