// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/pattern.h>

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

}  // namespace

std::regex compile_pattern(const std::string& pattern, const std::string& op,
                           const std::string& where) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
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

}  // namespace meshtorch
