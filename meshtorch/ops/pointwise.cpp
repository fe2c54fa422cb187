// SPDX-License-Identifier: Apache-2.0
//
// Ops that compute each element of the result from the same element of the operands.
#include <meshtorch/ops/families.h>

namespace meshtorch {
namespace {

void add_unary(Family& family) {
  family.add("...->...; each", {"neg", "mul.Scalar", "div.Scalar", "_conj", "_conj_copy",
                                "conj_physical", "_conj_physical", "_neg_view", "_neg_view_copy"});
  family.add("...->...",
             {"abs",         "acos",       "acosh",    "angle",      "asin",           "asinh",
              "atan",        "atanh",      "ceil",     "celu",       "clamp",          "clamp_max",
              "clamp_min",   "cos",        "cosh",     "deg2rad",    "digamma",        "elu",
              "erf",         "erfc",       "erfinv",   "exp",        "exp2",           "expm1",
              "floor",       "frac",       "gelu",     "hardshrink", "hardsigmoid",    "hardswish",
              "hardtanh",    "i0",         "isinf",    "isnan",      "isneginf",       "isposinf",
              "leaky_relu",  "lgamma",     "log",      "log10",      "log1p",          "log2",
              "logical_not", "logit",      "mish",     "mvlgamma",   "nan_to_num",     "polygamma",
              "rad2deg",     "reciprocal", "relu",     "round",      "round.decimals", "rsqrt",
              "sgn",         "sigmoid",    "sign",     "signbit",    "silu",           "sin",
              "sinc",        "sinh",       "softplus", "softshrink", "sqrt",           "tan",
              "tanh",        "threshold",  "trunc",    "bitwise_not"});
  family.add("...->...,...", {"frexp.Tensor", "log_sigmoid_forward"});
}

void add_special(Family& family) {
  family.add("...->...",
             {"special_airy_ai", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
              "special_bessel_y1", "special_entr", "special_erfcx", "special_i0e", "special_i1",
              "special_i1e", "special_log_ndtr", "special_modified_bessel_i0",
              "special_modified_bessel_i1", "special_modified_bessel_k0",
              "special_modified_bessel_k1", "special_ndtri", "special_scaled_modified_bessel_k0",
              "special_scaled_modified_bessel_k1", "special_spherical_bessel_j0"});
  family.add("...,...->...",
             {"special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u",
              "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w",
              "special_hermite_polynomial_h", "special_hermite_polynomial_he",
              "special_laguerre_polynomial_l", "special_legendre_polynomial_p",
              "special_shifted_chebyshev_polynomial_t", "special_shifted_chebyshev_polynomial_u",
              "special_shifted_chebyshev_polynomial_v", "special_shifted_chebyshev_polynomial_w",
              "special_xlog1py", "special_zeta"});
  // With a number in place of one operand.
  family.add("...->...", {"special_chebyshev_polynomial_t.n_scalar",
                          "special_chebyshev_polynomial_t.x_scalar",
                          "special_chebyshev_polynomial_u.n_scalar",
                          "special_chebyshev_polynomial_u.x_scalar",
                          "special_chebyshev_polynomial_v.n_scalar",
                          "special_chebyshev_polynomial_v.x_scalar",
                          "special_chebyshev_polynomial_w.n_scalar",
                          "special_chebyshev_polynomial_w.x_scalar",
                          "special_hermite_polynomial_h.n_scalar",
                          "special_hermite_polynomial_h.x_scalar",
                          "special_hermite_polynomial_he.n_scalar",
                          "special_hermite_polynomial_he.x_scalar",
                          "special_laguerre_polynomial_l.n_scalar",
                          "special_laguerre_polynomial_l.x_scalar",
                          "special_legendre_polynomial_p.n_scalar",
                          "special_legendre_polynomial_p.x_scalar",
                          "special_shifted_chebyshev_polynomial_t.n_scalar",
                          "special_shifted_chebyshev_polynomial_t.x_scalar",
                          "special_shifted_chebyshev_polynomial_u.n_scalar",
                          "special_shifted_chebyshev_polynomial_u.x_scalar",
                          "special_shifted_chebyshev_polynomial_v.n_scalar",
                          "special_shifted_chebyshev_polynomial_v.x_scalar",
                          "special_shifted_chebyshev_polynomial_w.n_scalar",
                          "special_shifted_chebyshev_polynomial_w.x_scalar",
                          "special_xlog1py.other_scalar",
                          "special_xlog1py.self_scalar",
                          "special_zeta.other_scalar",
                          "special_zeta.self_scalar"});
}

void add_binary(Family& family) {
  family.add("...,...->...; joint", {"add.Tensor", "sub.Tensor", "rsub.Tensor", "complex"});
  family.add("...,...->...; each", {"mul.Tensor"});
  family.add("...,...->...; each(0)", {"div.Tensor", "polar", "ldexp.Tensor"});
  family.add("...,...->...", {"atan2",
                              "copysign.Tensor",
                              "div.Tensor_mode",
                              "floor_divide",
                              "fmax",
                              "fmin",
                              "fmod.Tensor",
                              "gcd",
                              "heaviside",
                              "hypot",
                              "igamma",
                              "igammac",
                              "lcm",
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
                              "__lshift__.Tensor",
                              "__rshift__.Tensor",
                              "_add_relu.Tensor",
                              "_prelu_kernel",
                              "bernoulli.Tensor",
                              "masked_fill.Scalar"});
  // With a number in place of one operand. A constant added to every summand would be added too
  // often: add.Scalar is not linear.
  family.add("...->...", {"add.Scalar",
                          "_add_relu.Scalar",
                          "sub.Scalar",
                          "rsub.Scalar",
                          "div.Scalar_mode",
                          "floor_divide.Scalar",
                          "fmod.Scalar",
                          "remainder.Scalar",
                          "remainder.Scalar_Tensor",
                          "pow.Tensor_Scalar",
                          "pow.Scalar",
                          "xlogy.Scalar_Other",
                          "xlogy.Scalar_Self",
                          "copysign.Scalar",
                          "eq.Scalar",
                          "ne.Scalar",
                          "lt.Scalar",
                          "le.Scalar",
                          "gt.Scalar",
                          "ge.Scalar",
                          "bitwise_and.Scalar",
                          "bitwise_or.Scalar",
                          "bitwise_xor.Scalar",
                          "bitwise_and.Scalar_Tensor",
                          "bitwise_or.Scalar_Tensor",
                          "bitwise_xor.Scalar_Tensor",
                          "bitwise_left_shift.Tensor_Scalar",
                          "bitwise_left_shift.Scalar_Tensor",
                          "bitwise_right_shift.Tensor_Scalar",
                          "bitwise_right_shift.Scalar_Tensor",
                          "__lshift__.Scalar",
                          "__rshift__.Scalar"});
}

void add_ternary(Family& family) {
  family.add("...,...,...->...; joint(1,2)", {"where.self"});
  family.add("...,...,...->...; joint(0) each(1,2)", {"addcmul"});
  family.add("...,...,...->...; joint(0) each(1)", {"addcdiv"});
  family.add("...,...->...; joint", {"lerp.Scalar"});
  family.add("...,...,...->...; joint(0,1)", {"lerp.Tensor"});
  family.add("...,...,...->...; joint(0,2)", {"masked_fill.Tensor"});
  family.add("...,...,...->...", {"clamp.Tensor", "_dirichlet_grad"});
}

// Linear in the gradient, which is the first operand.
void add_backward(Family& family) {
  family.add("...,...->...; each(0)",
             {"elu_backward", "gelu_backward", "hardshrink_backward", "hardsigmoid_backward",
              "hardswish_backward", "hardtanh_backward", "leaky_relu_backward", "logit_backward",
              "mish_backward", "native_dropout_backward", "sigmoid_backward", "silu_backward",
              "softplus_backward", "softshrink_backward", "tanh_backward", "threshold_backward"});
  family.add("...,...->...", {"_standard_gamma_grad"});
  family.add("...,...,...->...; each(0)", {"log_sigmoid_backward", "rrelu_with_noise_backward"});
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
  add_special(family);
  add_binary(family);
  add_ternary(family);
  add_backward(family);
  add_random(family);
}

}  // namespace meshtorch
