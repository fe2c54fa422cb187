// SPDX-License-Identifier: Apache-2.0
//
// Text inside SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace meshtorch {

// With & < > and " as entities: right between tags and in quoted attributes.
std::string escape_markup(std::string_view raw);

}  // namespace meshtorch
