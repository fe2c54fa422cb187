// SPDX-License-Identifier: Apache-2.0
//
// Fresh tensors after the shape of another, and copies. A fresh tensor takes the dims of its model
// and never its unreduced axes: the values do not depend on it.
#include <algorithm>

#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

constexpr const char* kFresh = "; each reduced";

OpRule fresh(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  const Shape size = call.integers("size");
  const std::string in = letters(self.size());
  const std::string out = size == self ? in : std::string(size.size(), '*');
  return sized(rule_for(call, in + "->" + out + kFresh, {size}), call, "size");
}

// at::ScalarType: integers and bool do not commute with a sum.
bool truncates(std::int64_t type) { return (type >= 0 && type <= 4) || type == 11; }

OpRule convert(const OpCall& call) {
  const std::string dims = letters(shape_of(call, "self").size());
  return rule_for(call,
                  dims + "->" + dims + (truncates(call.integer("dtype", -1)) ? "" : "; each"));
}

}  // namespace

void add_create(Family& family) {
  family.add("...->...; each reduced",
             {"zeros_like", "empty_like", "ones_like", "full_like", "rand_like", "randn_like",
              "randint_like", "randint_like.low_dtype", "fill.Scalar"});
  // Drawn by global element index (kernels/).
  family.add("...->...; each reduced", {"cauchy", "log_normal", "geometric"});
  family.add("...,...->...", {"normal.Tensor_Tensor"});
  family.add("...->...", {"normal.Tensor_float", "normal.float_Tensor"});
  // Drawn once for all devices, from whole operands: by a generator of the caller's, or by libtorch's
  // own rejection loops.
  family.add("...->...", {"rand_like.generator", "randn_like.generator", "randint_like.generator",
                          "randint_like.low_generator_dtype", "poisson", "_standard_gamma"});
  family.add("...,->...", {"randint_like.Tensor", "randint_like.Tensor_generator"});
  family.add("...,...->...", {"binomial"});
  family.add("...*->...*", {"_sample_dirichlet", "multinomial"});
  family.add("ab->**; each reduced", fresh,
             {"new_zeros", "new_empty", "new_empty_strided", "new_full", "new_ones"});
  family.add("->*", {"linspace.Scalar_Tensor", "linspace.Tensor_Scalar", "logspace.Scalar_Tensor",
                     "logspace.Tensor_Scalar"});
  family.add(",->*", {"linspace.Tensor_Tensor", "logspace.Tensor_Tensor"});
  family.add("...->...; each", {"clone", "zero", "lift_fresh_copy", "_lazy_clone"});
  family.add("...->...; each", convert, {"_to_copy"});
  family.add("...,->...; joint", {"fill.Tensor"});
  family.add("...,...->...; joint", {"copy"});
}

}  // namespace meshtorch
