// SPDX-License-Identifier: Apache-2.0
//
// For tests only: a call of an op from text.
//
//   aten::sum.dim_IntList(self=<8,4,6>, dim=[-1], keepdim=true)
//
// <8,4> a tensor's shape, ? an absent tensor, <8><4>? a list of tensors, 3 an int, [1,2] a list of
// ints, true a bool, none nothing, another word a string. Arguments may be unnamed.
#pragma once

#include <string>
#include <string_view>

#include <meshtorch/ops/op_call.h>

namespace meshtorch {

class CallText {
 public:
  static OpCall parse(std::string_view text) { return CallText(text).call(); }

 private:
  explicit CallText(std::string_view text) : rest_(text) {}

  OpCall call() {
    OpCall call;
    call.name = until("(");
    rest_.remove_prefix(1);
    while (!rest_.empty() && rest_.front() != ')') {
      call.arguments.push_back(argument(call.operands));
      while (!rest_.empty() && (rest_.front() == ',' || rest_.front() == ' '))
        rest_.remove_prefix(1);
    }
    return call;
  }

  Argument argument(std::vector<std::optional<Shape>>& operands) {
    Argument argument;
    const std::size_t equals = rest_.find_first_of("=<[,)");
    if (equals != std::string_view::npos && rest_[equals] == '=') {
      argument.name = until("=");
      rest_.remove_prefix(1);
    }
    argument.is_tensor = rest_.front() == '<' || rest_.front() == '?';
    while (!rest_.empty() && (rest_.front() == '<' || rest_.front() == '?')) {
      argument.operands.push_back(static_cast<int>(operands.size()));
      if (rest_.front() == '<') {
        operands.emplace_back(integers('>'));
      } else {
        operands.emplace_back(std::nullopt);
        rest_.remove_prefix(1);
      }
    }
    if (!argument.is_tensor) argument.set(value());
    return argument;
  }

  Attribute value() {
    if (rest_.front() == '[') return integers(']');
    const std::string word = until(",)");
    if (word == "none") return std::monostate();
    if (word == "true" || word == "false") return word == "true";
    if (word.find_first_not_of("-0123456789") == std::string::npos)
      return std::int64_t{std::stoll(word)};
    return word;
  }

  std::vector<std::int64_t> integers(char close) {
    rest_.remove_prefix(1);
    std::vector<std::int64_t> list;
    while (rest_.front() != close) {
      list.push_back(std::stoll(until(std::string(",") + close)));
      if (rest_.front() == ',') rest_.remove_prefix(1);
    }
    rest_.remove_prefix(1);
    return list;
  }

  std::string until(std::string_view stops) {
    const std::size_t end = rest_.find_first_of(stops);
    const std::string taken(rest_.substr(0, end));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

}  // namespace meshtorch
