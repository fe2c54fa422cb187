// SPDX-License-Identifier: Apache-2.0
//
// Shape functions of ops whose results are what one CPU kernel happens to make: buffers for its own
// backward, bytes of another library. The kernel itself is asked, with zeros in place of the operands.
#include <ATen/ATen.h>

#include <meshtorch/kernels/meta_shapes.h>

namespace meshtorch {
namespace {

at::Tensor zeros_for(const at::Tensor& meta) {
  return meta.defined() ? at::zeros(meta.sizes(), meta.options().device(at::kCPU)) : meta;
}

at::Tensor without_value(const at::Tensor& real) {
  return real.defined()
             ? at::empty_strided(real.sizes(), real.strides(), real.options().device(at::kMeta))
             : real;
}

void run_on_zeros(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(count); value != stack->end();
       ++value) {
    if (value->isTensor()) *value = zeros_for(value->toTensor());
  }
  op.callBoxed(stack);
  const std::size_t results = op.schema().returns().size();
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(results); value != stack->end();
       ++value) {
    if (value->isTensor()) *value = without_value(value->toTensor());
  }
}

}  // namespace

void add_shapes_by_running(torch::Library& library) {
  for (const char* name : {"_embedding_bag", "_embedding_bag_forward_only",
                           "_embedding_bag_per_sample_weights_backward", "mkldnn_rnn_layer",
                           "mkldnn_rnn_layer_backward", "_native_multi_head_attention"}) {
    if (!lacks_shape_function(std::string("aten::") + name, "")) continue;
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_zeros>());
  }
}

}  // namespace meshtorch
