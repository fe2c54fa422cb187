// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/scan.h>

#include <algorithm>
#include <charconv>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// Not <cctype>: its answers change with the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_letter(c) || is_digit(c); }

}  // namespace

bool is_name(std::string_view text) {
  return !text.empty() && is_letter(text.front()) && std::ranges::all_of(text, is_name_char);
}

void Scanner::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
}

std::string_view Scanner::take_while(bool (*keep)(char)) {
  const std::size_t begin = at_;
  while (at_ < text_.size() && keep(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

bool Scanner::at_end() {
  skip_blanks();
  return at_ == text_.size();
}

bool Scanner::accept(std::string_view token) {
  skip_blanks();
  if (!text_.substr(at_).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) expected(text('"', token, '"'));
}

void Scanner::expect_end() {
  if (!at_end()) expected("the end");
}

std::string Scanner::name() {
  skip_blanks();
  if (at_ == text_.size() || !is_letter(text_[at_])) expected("an axis name");
  return std::string(take_while(is_name_char));
}

std::vector<std::string> Scanner::names() {
  std::vector<std::string> all{name()};
  while (accept(",")) all.push_back(name());
  return all;
}

std::int64_t Scanner::integer() {
  skip_blanks();
  const std::size_t begin = at_;
  const std::string_view digits = take_while(is_digit);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc{}) return value;
  at_ = begin;
  expected("a size");
}

void Scanner::expected(const std::string& what) {
  const std::string got = at_end() ? "the end" : text('"', text_[at_], '"');
  fail({.op = op_,
        .where = text('"', text_, '"'),
        .what = text("expected ", what, " at column ", at_ + 1, ", got ", got),
        .remedy = remedy_});
}

}  // namespace meshtorch
