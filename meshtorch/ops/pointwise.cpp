// SPDX-License-Identifier: Apache-2.0
//
// Ops that compute each element of the result from the same element of the operands.
#include <meshtorch/ops/families.h>

namespace meshtorch {
namespace {

void add_unary(Family& family) {
  family.add("...->...; each", {"neg", "positive", "mul.Scalar", "div.Scalar", "_conj",
                                "conj_physical", "resolve_conj", "resolve_neg", "_neg_view"});
  family.add("...->...", {"abs",         "acos",       "acosh",       "angle",
                          "asin",        "asinh",      "atan",        "atanh",
                          "ceil",        "celu",       "clamp",       "clamp_max",
                          "clamp_min",   "cos",        "cosh",        "deg2rad",
                          "digamma",     "elu",        "erf",         "erfc",
                          "erfinv",      "exp",        "exp2",        "expm1",
                          "floor",       "frac",       "gelu",        "hardshrink",
                          "hardsigmoid", "hardswish",  "hardtanh",    "i0",
                          "isinf",       "isnan",      "isneginf",    "isposinf",
                          "leaky_relu",  "lgamma",     "log",         "log10",
                          "log1p",       "log2",       "logical_not", "logit",
                          "mish",        "nan_to_num", "rad2deg",     "reciprocal",
                          "relu",        "relu6",      "round",       "round.decimals",
                          "rsqrt",       "selu",       "sgn",         "sigmoid",
                          "sign",        "signbit",    "silu",        "sin",
                          "sinc",        "sinh",       "softplus",    "softshrink",
                          "sqrt",        "square",     "tan",         "tanh",
                          "threshold",   "trunc",      "bitwise_not"});
  family.add("...->...,...", {"frexp.Tensor", "log_sigmoid_forward"});
}

void add_binary(Family& family) {
  family.add("...,...->...; joint", {"add.Tensor", "sub.Tensor", "rsub.Tensor"});
  family.add("...,...->...; each", {"mul.Tensor"});
  family.add("...,...->...; each(0)", {"div.Tensor"});
  family.add("...,...->...", {"atan2",
                              "copysign.Tensor",
                              "div.Tensor_mode",
                              "floor_divide",
                              "fmax",
                              "fmin",
                              "fmod.Tensor",
                              "heaviside",
                              "hypot",
                              "logaddexp",
                              "logaddexp2",
                              "maximum",
                              "minimum",
                              "nextafter",
                              "pow.Tensor_Tensor",
                              "remainder.Tensor",
                              "xlogy.Tensor",
                              "clamp_max.Tensor",
                              "clamp_min.Tensor",
                              "eq.Tensor",
                              "ne.Tensor",
                              "lt.Tensor",
                              "le.Tensor",
                              "gt.Tensor",
                              "ge.Tensor",
                              "logical_and",
                              "logical_or",
                              "logical_xor",
                              "bitwise_and.Tensor",
                              "bitwise_or.Tensor",
                              "bitwise_xor.Tensor",
                              "bitwise_left_shift.Tensor",
                              "bitwise_right_shift.Tensor",
                              "_prelu_kernel",
                              "bernoulli.Tensor",
                              "masked_fill.Scalar"});
  // With a number in place of one operand. A constant added to every summand would be added too
  // often: add.Scalar is not linear.
  family.add("...->...", {"add.Scalar",         "floor_divide.Scalar", "remainder.Scalar_Tensor",
                          "sub.Scalar",         "rsub.Scalar",         "div.Scalar_mode",
                          "fmod.Scalar",        "remainder.Scalar",    "pow.Tensor_Scalar",
                          "pow.Scalar",         "xlogy.Scalar_Other",  "xlogy.Scalar_Self",
                          "eq.Scalar",          "ne.Scalar",           "lt.Scalar",
                          "le.Scalar",          "gt.Scalar",           "ge.Scalar",
                          "bitwise_and.Scalar", "bitwise_or.Scalar",   "bitwise_xor.Scalar"});
}

void add_ternary(Family& family) {
  family.add("...,...,...->...; joint(1,2)", {"where.self"});
  family.add("...,...,...->...; joint(0) each(1,2)", {"addcmul"});
  family.add("...,...,...->...; joint(0) each(1)", {"addcdiv"});
  family.add("...,...->...", {"lerp.Scalar"});
  family.add("...,...,...->...", {"lerp.Tensor", "clamp.Tensor", "masked_fill.Tensor"});
}

// Linear in the gradient, which is the first operand.
void add_backward(Family& family) {
  family.add("...,...->...; each(0)",
             {"elu_backward", "gelu_backward", "hardshrink_backward", "hardsigmoid_backward",
              "hardswish_backward", "hardtanh_backward", "leaky_relu_backward", "logit_backward",
              "mish_backward", "native_dropout_backward", "sigmoid_backward", "silu_backward",
              "softplus_backward", "softshrink_backward", "tanh_backward", "threshold_backward"});
  family.add("...,...,...->...; each(0)", {"log_sigmoid_backward"});
  family.add("...,...,...->...,...; each(0)", {"_prelu_kernel_backward"});
}

// The values are drawn by global element index (kernels/), so any sharding gives the same ones.
void add_random(Family& family) {
  family.add("...->...,...", {"native_dropout"});
  family.add("...->...", {"bernoulli"});
  family.add("...->...; each reduced", {"bernoulli.p", "uniform", "random", "random.from",
                                        "random.to", "exponential", "normal_functional"});
}

}  // namespace

void add_pointwise(Family& family) {
  add_unary(family);
  add_binary(family);
  add_ternary(family);
  add_backward(family);
  add_random(family);
}

}  // namespace meshtorch
