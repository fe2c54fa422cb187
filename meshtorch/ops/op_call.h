// SPDX-License-Identifier: Apache-2.0
//
// One call of an op as the rules see it: shapes and attributes by schema name, no tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <meshtorch/rule/op_rule.h>

namespace meshtorch {

// Floating-point and Scalar arguments are never attributes: they change from step to step.
using Attribute =
    std::variant<std::monostate, bool, std::int64_t, std::vector<std::int64_t>, std::string>;

struct Argument {
  std::string name;           // as in the schema: "self", "dim"
  std::vector<int> operands;  // for tensors and tensor lists: indices into OpCall::operands
  bool is_tensor = false;     // a tensor, an optional tensor or a list of them
  Attribute value;            // else
};

struct OpCall {
  std::string name;  // "aten::sum.dim_IntList", always the functional base
  std::vector<std::optional<Shape>> operands;  // all tensors in schema order, lists flattened
  std::vector<Argument> arguments;             // in schema order

  bool has(std::string_view name) const;      // an argument of this name
  int argument(std::string_view name) const;  // position; throws Error on an unknown name
  const std::optional<Shape>& tensor(
      std::string_view name) const;  // the only tensor of that argument
  std::int64_t integer(std::string_view name,
                       std::int64_t otherwise = 0) const;  // monostate -> otherwise
  bool boolean(std::string_view name, bool otherwise = false) const;
  std::vector<std::int64_t> integers(
      std::string_view name) const;  // an int counts as a list of one; none -> {}
};

}  // namespace meshtorch
