// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/base/markup.h>

namespace meshtorch {

std::string escape_markup(std::string_view raw) {
  std::string out;
  for (const char c : raw) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace meshtorch
