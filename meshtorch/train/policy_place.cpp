// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/policy_place.h>

#include <algorithm>
#include <limits>
#include <set>

#include <meshtorch/tree/path.h>
#include <meshtorch/tree/pattern.h>

namespace meshtorch {
namespace {

// "line 3, column 14" of a byte counted from 1.
std::string line_and_column(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(text.size(), byte == 0 ? 0 : byte - 1));
  const auto line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return meshtorch::text("line ", std::ranges::count(before, '\n') + 1, ", column ",
                         before.size() - line_begin + 1);
}

// "where: what" of "[op] where: what".
std::string without_op(const std::string& message) {
  const std::size_t end = message.starts_with('[') ? message.find("] ") : std::string::npos;
  return end == std::string::npos ? message : message.substr(end + 2);
}

}  // namespace

// JSON lets a key stand twice, and the parser takes the last.
PolicyJson parse_policy_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  const auto refuse_repeated = [&](int, PolicyJson::parse_event_t event, const PolicyJson& value) {
    if (event == PolicyJson::parse_event_t::object_start) keys.emplace_back();
    if (event == PolicyJson::parse_event_t::object_end) keys.pop_back();
    if (event == PolicyJson::parse_event_t::key &&
        !keys.back().insert(value.get<std::string>()).second)
      fail({kPolicyOp, meshtorch::text("key ", value.dump()), "is there twice in one object",
            "keep one of them"});
    return true;
  };
  try {
    return PolicyJson::parse(text, refuse_repeated);
  } catch (const PolicyJson::parse_error& error) {
    const bool early = error.byte > text.size();
    fail({kPolicyOp, line_and_column(text, error.byte),
          early ? "the text ends too early" : "no JSON from here on",
          "check quotes, commas and brackets"});
  } catch (const PolicyJson::exception& error) {
    fail({kPolicyOp, "", "a number that is out of range", "write one that a double can hold"});
  }
}

std::string JsonPlace::string() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

std::string JsonPlace::pattern() const {
  std::string pattern = string();
  compile_pattern(pattern, kPolicyOp, where_);
  return pattern;
}

bool JsonPlace::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

double JsonPlace::number() const {
  if (!value_->is_number()) expected("a number");
  return value_->get<double>();
}

std::int64_t JsonPlace::integer() const {
  if (!value_->is_number_integer()) expected("an integer");
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    expected("an integer of 64 bits");
  }
  return value_->get<std::int64_t>();
}

int JsonPlace::small() const {
  const std::int64_t value = integer();
  if (value < 0 || value > 1000) expected("an integer from 0 to 1000");
  return static_cast<int>(value);
}

std::vector<JsonPlace> JsonPlace::list() const {
  if (!value_->is_array()) expected("an array");
  std::vector<JsonPlace> all;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    all.emplace_back((*value_)[i], text(where_, "[", i, "]"));
  }
  return all;
}

std::vector<std::string> JsonPlace::strings() const {
  std::vector<std::string> all;
  for (const JsonPlace& each : list()) all.push_back(each.string());
  return all;
}

JsonPlace JsonPlace::member(const std::string& key, const PolicyJson& value) const {
  return {value, join_path(where_, key)};
}

std::vector<std::pair<std::string, JsonPlace>> JsonPlace::members() const {
  if (!value_->is_object()) expected("an object");
  std::vector<std::pair<std::string, JsonPlace>> all;
  for (const auto& [key, value] : value_->items()) all.emplace_back(key, member(key, value));
  return all;
}

void JsonPlace::only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : members()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    fail(
        {kPolicyOp, where_, text("\"", key, "\" is not a key here"), "use some of: " + join(keys)});
  }
}

std::optional<JsonPlace> JsonPlace::find(const std::string& key) const {
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return member(key, *found);
}

JsonPlace JsonPlace::get(const std::string& key) const {
  if (const auto found = find(key)) return *found;
  fail({kPolicyOp, where_, text("has no \"", key, "\""), "say it"});
}

void JsonPlace::refuse(const Error& error) const {
  fail({kPolicyOp, where_, without_op(error.what()), ""});
}

void JsonPlace::expected(const std::string& what) const {
  fail({kPolicyOp, where_.empty() ? "the text" : where_,
        text("got ", value_->type_name(), ", expected ", what), "see docs/policy.md"});
}

}  // namespace meshtorch
