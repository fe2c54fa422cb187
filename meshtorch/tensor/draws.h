// SPDX-License-Identifier: Apache-2.0
//
// Going back in the streams of random numbers.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <meshtorch/tensor/runtime.h>

namespace meshtorch {

// Where all generators stand that a function of these inputs may draw from: libtorch's default ones of
// the CPU and of the inputs' devices, the runtime's where there is one.
class Draws {
 public:
  static Draws of(const std::vector<at::Tensor>& inputs);
  Draws now() const { return Draws(generators_); }
  void restore();

 private:
  explicit Draws(std::vector<at::Generator> generators);

  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
  std::optional<Runtime::RandomState> sharded_;
};

// Everything that is drawn while it lives is undone: the program's next numbers are as without it.
class undrawn_scope {
 public:
  undrawn_scope() : before_(Draws::of({})) {}
  ~undrawn_scope() { before_.restore(); }
  undrawn_scope(const undrawn_scope&) = delete;
  undrawn_scope& operator=(const undrawn_scope&) = delete;

 private:
  Draws before_;
};

}  // namespace meshtorch
