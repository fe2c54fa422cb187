// SPDX-License-Identifier: Apache-2.0
//
// The ops whose activations a rule may lay out (tensor/constrain.h), where they are no kernels of ours
// anyway: those are linear.cpp and embedding.cpp. Each is libtorch's own composite between two reshards.
#include <torch/torch.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/conv1d_native.h>
#include <ATen/ops/conv2d_native.h>
#include <ATen/ops/conv3d_native.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/layer_norm_native.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {
namespace {

using Optional = std::optional<at::Tensor>;

// The one that something is asked of.
at::Tensor parameter_of(const Optional& weight, const Optional& bias = std::nullopt) {
  for (const Optional* each : {&weight, &bias}) {
    if (each->has_value() && is_constrained(**each)) return **each;
  }
  return {};
}

template <class Run>
at::Tensor constrained(const char* op, const at::Tensor& parameter, const at::Tensor& input,
                       Run run) {
  return constrained_output(op, parameter, run(constrained_input(op, parameter, input)));
}

at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef shape, const Optional& weight,
                      const Optional& bias, double eps, bool cudnn) {
  return constrained("layer_norm", parameter_of(weight, bias), input, [&](const at::Tensor& x) {
    return at::native::layer_norm_symint(x, shape, weight, bias, eps, cudnn);
  });
}

// libtorch's composite, which its library does not export by name.
at::Tensor own_rms_norm(const at::Tensor& x, c10::SymIntArrayRef shape, const Optional& weight,
                        std::optional<double> eps) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::rms_norm", "");
  torch::jit::Stack stack{x, shape, weight, eps};
  op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, stack);
  return stack.front().toTensor();
}

at::Tensor rms_norm(const at::Tensor& input, c10::SymIntArrayRef shape, const Optional& weight,
                    std::optional<double> eps) {
  return constrained("rms_norm", parameter_of(weight), input,
                     [&](const at::Tensor& x) { return own_rms_norm(x, shape, weight, eps); });
}

at::Tensor group_norm(const at::Tensor& input, std::int64_t groups, const Optional& weight,
                      const Optional& bias, double eps, bool cudnn) {
  return constrained("group_norm", parameter_of(weight, bias), input, [&](const at::Tensor& x) {
    return at::native::group_norm(x, groups, weight, bias, eps, cudnn);
  });
}

// `Padding` is sizes, or "same" and "valid".
template <class Padding,
          at::Tensor (*run)(const at::Tensor&, const at::Tensor&, const Optional&,
                            c10::SymIntArrayRef, Padding, c10::SymIntArrayRef, c10::SymInt)>
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const Optional& bias,
                       c10::SymIntArrayRef stride, Padding padding, c10::SymIntArrayRef dilation,
                       c10::SymInt groups) {
  return constrained("convolution", parameter_of(weight, bias), input, [&](const at::Tensor& x) {
    return run(x, weight, bias, stride, padding, dilation, groups);
  });
}

using Sizes = c10::SymIntArrayRef;
using Name = c10::string_view;

// With autograd, and in inference mode, which goes past it.
template <class Function>
void install(Dispatch& dispatch, const char* op, Function function) {
  dispatch.autograd_library().impl(op, function);
  dispatch.library().impl(op, function);
}

}  // namespace

void install_constrained(Dispatch& dispatch) {
  install(dispatch, "layer_norm", TORCH_FN(layer_norm));
  install(dispatch, "rms_norm", TORCH_FN(rms_norm));
  install(dispatch, "group_norm", TORCH_FN(group_norm));
  install(dispatch, "conv1d", TORCH_FN((convolution<Sizes, at::native::conv1d_symint>)));
  install(dispatch, "conv2d", TORCH_FN((convolution<Sizes, at::native::conv2d_symint>)));
  install(dispatch, "conv3d", TORCH_FN((convolution<Sizes, at::native::conv3d_symint>)));
  install(dispatch, "conv1d.padding",
          TORCH_FN((convolution<Name, at::native::conv1d_padding_symint>)));
  install(dispatch, "conv2d.padding",
          TORCH_FN((convolution<Name, at::native::conv2d_padding_symint>)));
  install(dispatch, "conv3d.padding",
          TORCH_FN((convolution<Name, at::native::conv3d_padding_symint>)));
}

}  // namespace meshtorch
