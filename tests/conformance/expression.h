// SPDX-License-Identifier: Apache-2.0
//
// Sizes in the text of a case: letters, numbers, + - * / (of integers) and parentheses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace meshtorch::conformance {

// What the letters of a case stand for.
using Sizes = std::map<char, std::int64_t>;

class Expression {
 public:
  // Throws Error with `where` (file:line) on bad text.
  Expression(std::string text, const std::string& where);

  const std::string& text() const { return text_; }
  // In order of appearance, each once.
  std::vector<char> letters() const;
  std::int64_t evaluate(const Sizes& sizes) const;
  // "a*b*2" as {a, b, 2}, major to minor; one entry where it is no product of atoms.
  std::vector<std::string> product() const;

 private:
  std::string text_;
};

}  // namespace meshtorch::conformance
