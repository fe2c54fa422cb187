// SPDX-License-Identifier: Apache-2.0
//
// One call of an op as the rules see it: shapes and attributes by schema name, no tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <meshtorch/rule/op_rule.h>

namespace meshtorch {

// Floating-point and Scalar arguments are never attributes: they change from step to step.
using Attribute =
    std::variant<std::monostate, bool, std::int64_t, std::vector<std::int64_t>, std::string>;

class Argument {
 public:
  std::string name;           // as in the schema: "self", "dim"
  std::vector<int> operands;  // for tensors and tensor lists: indices into OpCall::operands
  bool is_tensor = false;     // a tensor, an optional tensor or a list of them

  void set(Attribute value) { value_ = std::move(value); }

 private:
  friend class OpCall;  // the only way to the value, which notes that it was read
  Attribute value_;
};

// What slicing start:end:step takes of a dim, after libtorch's clamping.
struct Range {
  std::int64_t length;  // -1: an ill step
  bool full;            // all elements in order
  static Range of(std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                  std::int64_t step, std::int64_t size);
};

// Something that a rule looked at. All of a call's are what its answer depends on besides shapes, so
// a decision is kept under these alone: an offset or a count that changes from step to step and that
// no rule looks at makes no new one. Positions of arguments.
struct AttributeRead {
  int argument;                                   // its value, or
  int dim = -1, start = -1, end = -1, step = -1;  // the Range of these over the shape it spells
  friend bool operator==(const AttributeRead&, const AttributeRead&) = default;
};

class OpCall {
 public:
  std::string name;  // "aten::sum.dim_IntList", always the functional base
  std::vector<std::optional<Shape>> operands;  // all tensors in schema order, lists flattened
  std::vector<Argument> arguments;             // in schema order

  bool has(std::string_view name) const;      // an argument of this name
  int argument(std::string_view name) const;  // position; throws Error on an unknown name
  const std::optional<Shape>& tensor(
      std::string_view name) const;  // the only tensor of that argument
  bool is_none(std::string_view name) const;
  std::int64_t integer(std::string_view name,
                       std::int64_t otherwise = 0) const;  // monostate -> otherwise
  bool boolean(std::string_view name, bool otherwise = false) const;
  std::vector<std::int64_t> integers(
      std::string_view name) const;  // an int counts as a list of one; none -> {}
  std::string word(std::string_view name, const std::string& otherwise = "") const;
  // What `start`, `end` and `step` take of `dim` of the shape that an argument has (a tensor) or
  // spells (a list): the bounds themselves do not count as read. Throws Error on a step below one.
  Range range(std::string_view shape) const;

  // All reads so far, each once.
  const std::vector<AttributeRead>& reads() const { return reads_; }

 private:
  const Attribute& value(std::string_view name) const;
  void note(AttributeRead read) const;
  std::optional<std::int64_t> optional_integer(int argument) const;

  mutable std::vector<AttributeRead> reads_;
};

}  // namespace meshtorch
