// SPDX-License-Identifier: Apache-2.0
//
// The one exception type of the library and the one grammar of its messages:
//
//   [op] where: what, got vs expected; do this
//
//   [device_put] mlp.up.weight dim 0: axis "tpp" is not an axis of mesh (dp=4, tp=2); use one of: dp, tp
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace meshtorch {

// Thrown for every misuse the library can see. `what()` is the whole message in the grammar above.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The parts of one message; empty parts are left out together with their punctuation.
struct Problem {
  std::string op;      // what the user called: "device_put", "aten::mm", "PartitionSpec"
  std::string where;   // leaf path, operand, dim, axis
  std::string what;    // what is wrong, got vs expected
  std::string remedy;  // what to do about it
};

std::string format(const Problem& problem);

[[noreturn]] void fail(const Problem& problem);

// The message of this thread's latest fail(), empty before any: what a process that unwinds tells the
// others.
const std::string& latest_failure();

// Joins its arguments with operator<<: text("dim ", 3, " of ", name).
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// "a, b, c" of any range of streamable elements.
template <class Range>
std::string join(const Range& range, std::string_view separator = ", ") {
  std::ostringstream out;
  bool first = true;
  for (const auto& element : range) {
    if (!first) out << separator;
    out << element;
    first = false;
  }
  return std::move(out).str();
}

}  // namespace meshtorch
