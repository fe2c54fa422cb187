// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/ops/op_call.h>

#include <algorithm>

#include <meshtorch/base/error.h>

namespace meshtorch {

Range Range::of(std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                std::int64_t step, std::int64_t size) {
  if (step < 1) return {.length = -1, .full = false};
  const auto clamped = [size](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t first = clamped(start.value_or(0)), last = clamped(end.value_or(size));
  const std::int64_t length = last <= first ? 0 : (last - first - 1) / step + 1;
  return {length, first == 0 && last == size && step == 1};
}

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

const Attribute& OpCall::value(std::string_view name) const {
  const int found = argument(name);
  note({.argument = found});
  return arguments[found].value_;
}

void OpCall::note(AttributeRead read) const {
  if (std::find(reads_.begin(), reads_.end(), read) == reads_.end()) reads_.push_back(read);
}

bool OpCall::is_none(std::string_view name) const {
  return std::holds_alternative<std::monostate>(value(name));
}

std::int64_t OpCall::integer(std::string_view name, std::int64_t otherwise) const {
  const Attribute& value = this->value(name);
  if (std::holds_alternative<std::monostate>(value)) return otherwise;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  fail({this->name, std::string(name), "is not an integer", ""});
}

bool OpCall::boolean(std::string_view name, bool otherwise) const {
  const Attribute& value = this->value(name);
  if (std::holds_alternative<std::monostate>(value)) return otherwise;
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  fail({this->name, std::string(name), "is not a bool", ""});
}

std::string OpCall::word(std::string_view name, const std::string& otherwise) const {
  const Attribute& value = this->value(name);
  if (std::holds_alternative<std::monostate>(value)) return otherwise;
  if (const auto* word = std::get_if<std::string>(&value)) return *word;
  fail({this->name, std::string(name), "is not a string", ""});
}

std::vector<std::int64_t> OpCall::integers(std::string_view name) const {
  const Attribute& value = this->value(name);
  if (std::holds_alternative<std::monostate>(value)) return {};
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return {*integer};
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) return *list;
  fail({this->name, std::string(name), "is not a list of integers", ""});
}

std::optional<std::int64_t> OpCall::optional_integer(int argument) const {
  const auto* integer = std::get_if<std::int64_t>(&arguments[argument].value_);
  return integer ? std::optional(*integer) : std::nullopt;
}

Range OpCall::range(std::string_view shape) const {
  const AttributeRead read{argument(shape), argument("dim"), argument("start"), argument("end"),
                           argument("step")};
  const Shape sizes =
      arguments[read.argument].is_tensor ? tensor(shape).value_or(Shape{}) : integers(shape);
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const std::int64_t dim = integer("dim");
  if (dim < -rank || dim >= rank)
    fail({name, "dim", text("got ", dim, " for rank ", rank), "give a dim of the tensor"});
  note(read);
  const Range range = Range::of(optional_integer(read.start), optional_integer(read.end),
                                optional_integer(read.step).value_or(1),
                                sizes[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)]);
  if (range.length < 0) fail({name, "step", "is below 1", "give 1 or more"});
  return range;
}

}  // namespace meshtorch
