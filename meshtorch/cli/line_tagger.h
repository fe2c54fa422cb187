// SPDX-License-Identifier: Apache-2.0
//
// Puts a tag before each line of a stream that comes in pieces. A line is passed on when it is
// whole, so that lines of many streams do not mix: at its end, at the stream's end (an end of line
// is added), or at the greatest length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace meshtorch {

class LineTagger {
 public:
  static constexpr std::size_t kLongest = 1 << 20;  // then the line is broken

  explicit LineTagger(std::string tag) : tag_(std::move(tag)) {}

  std::string feed(std::string_view bytes);  // the lines that are whole now, tagged
  std::string finish();                      // the last one, if it has no end of line

 private:
  void put_line(std::string& out);

  std::string tag_;
  std::string line_;
};

}  // namespace meshtorch
