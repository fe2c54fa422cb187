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

// Whether the compiled `pattern` is found in `path`. Throws Error with `op` and the path where the search
// itself gives up (a pattern that backtracks without end).
bool search_pattern(const std::regex& compiled, const std::string& path, const std::string& op,
                    const std::string& pattern);

// The pattern that is found in this path alone: "^up\\.weight$".
std::string exact_pattern(const std::string& path);

}  // namespace meshtorch
