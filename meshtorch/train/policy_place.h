// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON so that every complaint says where: the value, and its place in the text.
//
//   const PolicyJson json = parse_policy_json(text);
//   const JsonPlace all(json, "");
//   all.only({"rules", "even"});                    // [Policy] "rule" is not a key here; use ...
//   for (const JsonPlace& item : all.get("rules").list()) item.get("axis").string();
//                                                     // [Policy] rules[1].axis: got number, ...
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <meshtorch/base/error.h>

namespace meshtorch {

using PolicyJson = nlohmann::ordered_json;

inline constexpr char kPolicyOp[] = "Policy";  // of every message

// Throws Error with line and column: no JSON, text that ends too early, a key twice in one object.
PolicyJson parse_policy_json(std::string_view text);

// Whatever a value is asked for that it is not is an Error with `where`, "rules[1].paths[0].spec".
class JsonPlace {
 public:
  JsonPlace(const PolicyJson& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  bool is_string() const { return value_->is_string(); }
  bool is_object() const { return value_->is_object(); }
  bool is_null() const { return value_->is_null(); }

  std::string string() const;
  std::string pattern() const;  // a string that is a regular expression
  bool boolean() const;
  double number() const;
  std::int64_t integer() const;
  int small() const;  // an integer from 0 to 1000
  std::vector<JsonPlace> list() const;
  std::vector<std::string> strings() const;
  std::vector<std::pair<std::string, JsonPlace>> members() const;

  // An object that has these keys at most.
  void only(std::initializer_list<std::string_view> keys) const;
  std::optional<JsonPlace> find(const std::string& key) const;
  JsonPlace get(const std::string& key) const;

  // What `make` returns; its Error is told with this place instead of its own op.
  template <class Make>
  auto made(Make make) const {
    try {
      return make();
    } catch (const Error& error) {
      refuse(error);
    }
  }

  [[noreturn]] void expected(const std::string& what) const;

 private:
  [[noreturn]] void refuse(const Error& error) const;
  JsonPlace member(const std::string& key, const PolicyJson& value) const;

  const PolicyJson* value_;
  std::string where_;
};

}  // namespace meshtorch
