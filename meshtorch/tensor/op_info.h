// SPDX-License-Identifier: Apache-2.0
//
// What the dispatch needs to know of an op's schema, worked out once per op.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace meshtorch {

enum class ArgumentKind { tensor, tensor_list, attribute };

struct ArgumentInfo {
  std::string name;
  ArgumentKind kind = ArgumentKind::attribute;
  bool written = false;
  // A floating-point or Scalar value, a generator, a device: never part of a cache key or a rule.
  bool ignored = false;
};

struct ReturnInfo {
  int written_argument = -1;  // returns this argument itself
  int viewed_argument = -1;   // returns a view of it
};

// How an op is run; most are `generic`.
enum class OpKind {
  generic,   // functional, view or in-place with a functional base
  out,       // writes its results into given tensors: foo.out
  metadata,  // changes sizes or strides in place: t_, unsqueeze_, resize_
  copy,      // copy_
  fill,      // fill_, zero_
  factory,   // *_like, new_*: reads no values of its operand
  alias,     // detach, alias: the same view under another wrapper
};

struct OpInfo {
  std::string name;  // "aten::add_.Tensor"
  std::string base;  // "aten::add.Tensor": the name its rule is under
  OpKind kind = OpKind::generic;
  bool random = false;
  bool writes = false;
  // What comes out, or its size, depends on values on the host: item, nonzero, masked_select.
  bool needs_values = false;
  // Its result is a sum over operands (rule/op_rule.h: joint).
  bool joint = false;
  std::vector<ArgumentInfo> arguments;
  std::vector<ReturnInfo> returns;
  std::optional<c10::OperatorHandle> functional;  // of an in-place or out= op

  int argument(std::string_view name) const;  // position, or -1
  bool gives_views() const { return !returns.empty() && returns[0].viewed_argument >= 0; }
};

OpInfo analyse(const c10::OperatorHandle& op);

}  // namespace meshtorch
