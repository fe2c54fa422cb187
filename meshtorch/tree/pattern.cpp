// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/pattern.h>

#include <string_view>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// The standard library's own words differ from version to version.
const char* reason(std::regex_constants::error_type code) {
  namespace errors = std::regex_constants;
  // libstdc++ gives this code also where a quantifier comes first.
  if (code == errors::error_paren) return "unbalanced ( or ), or * + ? { with nothing to repeat";
  if (code == errors::error_brack) return "unbalanced [ or ]";
  if (code == errors::error_brace) return "unbalanced { or }";
  if (code == errors::error_badbrace) return "bad range in { }";
  if (code == errors::error_range) return "bad range in [ ]";
  if (code == errors::error_escape) return "bad escape after a backslash";
  if (code == errors::error_badrepeat) return "* + ? { with nothing to repeat";
  if (code == errors::error_ctype) return "unknown character class";
  if (code == errors::error_backref) return "reference to a group that does not exist";
  return "too complex, or ill-formed";
}

// libstdc++ backtracks, which takes seconds for ".**w" and a path of twenty characters. Its other
// engine takes time that grows with path times pattern, but knows no back references.
std::regex compile(const std::string& pattern) {
  constexpr auto kFlags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  try {
    return std::regex(pattern, kFlags | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    if (error.code() != std::regex_constants::error_complexity) throw;
  }
#endif
  return std::regex(pattern, kFlags);
}

}  // namespace

std::regex compile_pattern(const std::string& pattern, const std::string& op,
                           const std::string& where) {
  try {
    return compile(pattern);
  } catch (const std::regex_error& error) {
    fail({.op = op,
          .where = where,
          .what = text("not a regular expression, ", reason(error.code())),
          .remedy = "escape what is meant literally, as in \"\\.weight\""});
  }
}

bool search_pattern(const std::regex& compiled, const std::string& path, const std::string& op,
                    const std::string& pattern) {
  try {
    return std::regex_search(path, compiled);
  } catch (const std::regex_error&) {
    fail({.op = op,
          .where = path,
          .what = text("searching \"", pattern, "\" in it takes too long"),
          .remedy = "write a pattern without repetitions of repetitions"});
  }
}

std::string exact_pattern(const std::string& path) {
  std::string pattern = "^";
  for (const char c : path) {
    if (std::string_view(R"(^$\.*+?()[]{}|)").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

}  // namespace meshtorch
