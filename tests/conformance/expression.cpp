// SPDX-License-Identifier: Apache-2.0
#include "expression.h"

#include <algorithm>
#include <cctype>

#include <meshtorch/base/error.h>

namespace meshtorch::conformance {
namespace {

// sum: product (+|- product)*    product: atom (*|/ atom)*    atom: number | letter | -atom | (sum)
class Evaluation {
 public:
  Evaluation(const std::string& text, const Sizes& sizes) : text_(text), sizes_(sizes) {}

  std::int64_t run() {
    const std::int64_t value = sum();
    if (at_ != text_.size()) bad("an operator");
    return value;
  }

 private:
  [[noreturn]] void bad(const std::string& expected) const {
    fail({"conformance", "", text("cannot read \"", text_, "\" at column ", at_ + 1),
          "expected " + expected});
  }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::int64_t sum() {
    std::int64_t value = product();
    while (true) {
      if (take('+')) {
        value += product();
      } else if (take('-')) {
        value -= product();
      } else {
        return value;
      }
    }
  }
  std::int64_t product() {
    std::int64_t value = atom();
    while (true) {
      if (take('*')) {
        value *= atom();
      } else if (take('/')) {
        const std::int64_t divisor = atom();
        if (divisor == 0) bad("no division by zero");
        value /= divisor;
      } else {
        return value;
      }
    }
  }
  std::int64_t atom() {
    if (take('-')) return -atom();
    if (take('(')) {
      const std::int64_t value = sum();
      if (!take(')')) bad(")");
      return value;
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      std::size_t digits = 0;
      const std::int64_t value = std::stoll(text_.substr(at_), &digits);
      at_ += digits;
      return value;
    }
    if (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) {
      const auto found = sizes_.find(text_[at_]);
      if (found == sizes_.end()) bad("a letter with a size");
      ++at_;
      return found->second;
    }
    bad("a number or a letter");
  }

  const std::string& text_;
  const Sizes& sizes_;
  std::size_t at_ = 0;
};

}  // namespace

Expression::Expression(std::string text, const std::string& where) : text_(std::move(text)) {
  Sizes any;
  for (const char letter : letters()) any[letter] = 5;
  try {
    evaluate(any);
  } catch (const Error& error) {
    throw Error(where + ": " + error.what());
  }
}

std::vector<char> Expression::letters() const {
  std::vector<char> found;
  for (const char c : text_) {
    if (std::isalpha(static_cast<unsigned char>(c)) &&
        std::find(found.begin(), found.end(), c) == found.end())
      found.push_back(c);
  }
  return found;
}

std::int64_t Expression::evaluate(const Sizes& sizes) const {
  return Evaluation(text_, sizes).run();
}

std::vector<std::string> Expression::product() const {
  if (text_.find_first_of("+-/()") != std::string::npos) return {text_};
  std::vector<std::string> atoms(1);
  for (const char c : text_) {
    if (c == '*') {
      atoms.emplace_back();
    } else {
      atoms.back() += c;
    }
  }
  return atoms;
}

}  // namespace meshtorch::conformance
