// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/line_tagger.h>

#include <algorithm>

namespace meshtorch {

std::string LineTagger::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t room = kLongest - line_.size();
    const std::size_t end = std::min(bytes.find('\n'), room);
    line_ += bytes.substr(0, end);
    const bool whole = end < bytes.size() && bytes[end] == '\n';
    bytes.remove_prefix(std::min(end + whole, bytes.size()));
    if (whole || line_.size() == kLongest) put_line(out);
  }
  return out;
}

std::string LineTagger::finish() {
  std::string out;
  if (!line_.empty()) put_line(out);
  return out;
}

void LineTagger::put_line(std::string& out) {
  out += tag_;
  out += line_;
  out += '\n';
  line_.clear();
}

}  // namespace meshtorch
