// SPDX-License-Identifier: Apache-2.0
//
// Which dtype is used where, as a value with a text form (jmp's policies, with two more places):
//
//   auto precision = mt::Precision::parse("params=float32,compute=bfloat16,output=float32");
//   mt::Zero<AdamW> optimizer(model->parameters(), {.precision = precision}, AdamWOptions(3e-4));
//   loss = loss_of(precision.cast_to_output(model->forward(precision.cast_to_compute(x))), targets);
//
// Zero keeps master weights in `params` and makes the model's own parameters `compute`; TrainStep does the
// casts of the last line.
//
//   text       ::= dtype | key=dtype {"," key=dtype}         blanks have no meaning
//   key        ::= params | compute | output | reduce | accumulate      each at most once, any order
//   dtype      ::= float32 f32 float | bfloat16 bf16 | float16 f16 half | float64 f64 double
//
// Left out: params float32; compute as params; output as compute; reduce and accumulate float32, or
// float64 where params is. A dtype alone ("bfloat16") stands for params, compute and output. So "" is
// an error, not all defaults.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace meshtorch {

struct Precision {
  at::ScalarType params = at::kFloat;      // of the weights that the optimizer updates
  at::ScalarType compute = at::kFloat;     // of the model's parameters, products and activations
  at::ScalarType output = at::kFloat;      // of what the model returns, and the loss
  at::ScalarType reduce = at::kFloat;      // of gradients on the wire
  at::ScalarType accumulate = at::kFloat;  // of gradients that add up over microbatches

  // Throws Error: unknown key or dtype, a dtype that is not floating point, a key
  // twice, a missing value, a comma too many.
  static Precision parse(std::string_view text);
  // All five keys in the order above, full names; parse gives it back.
  std::string to_string() const;

  // Floating point tensors in the dtype, differentiably. As they are: those that have it, integers,
  // bools, complex and undefined ones.
  at::Tensor cast_to_params(const at::Tensor& x) const;
  at::Tensor cast_to_compute(const at::Tensor& x) const;
  at::Tensor cast_to_output(const at::Tensor& x) const;
  std::vector<at::Tensor> cast_to_params(const std::vector<at::Tensor>& xs) const;
  std::vector<at::Tensor> cast_to_compute(const std::vector<at::Tensor>& xs) const;
  std::vector<at::Tensor> cast_to_output(const std::vector<at::Tensor>& xs) const;

  // float16 has 5 bits of exponent: small gradients vanish without (loss_scale.h). bfloat16 has the 8 of
  // float32.
  bool needs_loss_scale() const { return compute == at::kHalf; }

  bool operator==(const Precision&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Precision& precision);

}  // namespace meshtorch
