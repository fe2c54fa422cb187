// SPDX-License-Identifier: Apache-2.0
//
// A case with sizes for its letters: a call that can be run. Operands are all tensors in schema order,
// lists flattened, as the dispatch numbers them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <meshtorch/layout/layout.h>

#include "case.h"

namespace meshtorch::conformance {

using Tensors = std::vector<at::Tensor>;

class Instance {
 public:
  // Throws Error where an argument is missing or does not fit the schema.
  Instance(const Case& of, Sizes sizes);

  // No dim is negative.
  bool possible() const;

  const Case& of() const { return of_; }
  const Sizes& sizes() const { return sizes_; }
  std::size_t operands() const { return texts_.size(); }
  const TensorText* operand(std::size_t i) const { return texts_[i]; }  // null: absent
  const std::string& name(std::size_t i) const { return names_[i]; }    // "tensors[1]"
  Shape shape(std::size_t i) const;

  // Plain tensors of the kinds that the text asks for; equal seeds give equal values. Doubles are
  // multiples of 2^-30, so that they can be split into summands without rounding.
  Tensors values(std::uint64_t seed) const;

  // The op's arguments with these operands (undefined: absent).
  torch::jit::Stack stack(const Tensors& operands) const;

 private:
  c10::IValue argument(const c10::Argument& schema, const Value& value) const;
  c10::IValue element(const c10::TypePtr& type, const c10::TypePtr& real_type, const Value& value,
                      const std::string& name) const;

  const Case& of_;
  Sizes sizes_;
  struct Slot {  // one argument of the schema
    enum class Kind { attribute, tensor, list, optional_list } kind = Kind::attribute;
    c10::IValue attribute;
    std::size_t operands = 0;
  };
  std::vector<Slot> slots_;
  std::vector<const TensorText*> texts_;
  std::vector<std::string> names_;
};

// Runs the op through the dispatcher, autograd included. The tensors among the results, lists
// flattened; other results are dropped into `others` where given.
Tensors call(const c10::OperatorHandle& op, torch::jit::Stack stack,
             std::vector<c10::IValue>* others = nullptr);

}  // namespace meshtorch::conformance
