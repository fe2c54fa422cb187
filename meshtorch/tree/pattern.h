// SPDX-License-Identifier: Apache-2.0
//
// Regular expressions that users write in rules.
#pragma once

#include <regex>
#include <string>

namespace meshtorch {

// ECMAScript. Throws Error with `op`, `where` and why the pattern does not compile, in words that are the
// same on every standard library.
std::regex compile_pattern(const std::string& pattern, const std::string& op,
                           const std::string& where);

}  // namespace meshtorch
