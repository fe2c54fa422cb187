// SPDX-License-Identifier: Apache-2.0
//
// Reads the short text forms of this room ("dp=4,tp=2", "P(dp, -)") left to right. Blanks between
// tokens have no meaning. Every complaint shows the text and the column (from 1) where it stopped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshtorch {

// [A-Za-z_][A-Za-z0-9_]*
bool is_name(std::string_view text);

class Scanner {
 public:
  // `op` and `remedy` go into every message.
  Scanner(std::string_view text, std::string op, std::string remedy)
      : text_(text), op_(std::move(op)), remedy_(std::move(remedy)) {}

  bool at_end();
  bool accept(std::string_view token);  // takes it if it is next
  void expect(std::string_view token);  // throws Error if it is not next
  void expect_end();
  std::string name();                   // throws Error if no name is next
  std::vector<std::string> names();     // one or more, by commas
  std::int64_t integer();               // digits only; throws Error if none, or past 2^63 - 1
  [[noreturn]] void expected(const std::string& what);

 private:
  void skip_blanks();
  std::string_view take_while(bool (*keep)(char));

  std::string_view text_;
  std::string op_;
  std::string remedy_;
  std::size_t at_ = 0;
};

}  // namespace meshtorch
