// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/ops/op_call.h>

#include <meshtorch/base/error.h>

namespace meshtorch {

bool OpCall::has(std::string_view name) const {
  for (const auto& argument : arguments) {
    if (argument.name == name) return true;
  }
  return false;
}

int OpCall::argument(std::string_view name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == name) return static_cast<int>(i);
    names.push_back(arguments[i].name);
  }
  fail({this->name, std::string(name), "is not an argument", "use one of: " + join(names)});
}

const std::optional<Shape>& OpCall::tensor(std::string_view name) const {
  const Argument& found = arguments[argument(name)];
  if (found.operands.size() != 1) {
    fail({this->name, std::string(name),
          text("holds ", found.operands.size(), " tensors, expected 1"), "use Argument::operands"});
  }
  return operands[found.operands[0]];
}

std::int64_t OpCall::integer(std::string_view name, std::int64_t otherwise) const {
  const Attribute& value = arguments[argument(name)].value;
  if (std::holds_alternative<std::monostate>(value)) return otherwise;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  fail({this->name, std::string(name), "is not an integer", ""});
}

bool OpCall::boolean(std::string_view name, bool otherwise) const {
  const Attribute& value = arguments[argument(name)].value;
  if (std::holds_alternative<std::monostate>(value)) return otherwise;
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  fail({this->name, std::string(name), "is not a bool", ""});
}

std::vector<std::int64_t> OpCall::integers(std::string_view name) const {
  const Attribute& value = arguments[argument(name)].value;
  if (std::holds_alternative<std::monostate>(value)) return {};
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return {*integer};
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) return *list;
  fail({this->name, std::string(name), "is not a list of integers", ""});
}

}  // namespace meshtorch
