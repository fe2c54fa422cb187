// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/base/error.h>

namespace meshtorch {

std::string format(const Problem& problem) {
  std::string message = "[" + problem.op + "] ";
  if (!problem.where.empty()) message += problem.where + ": ";
  message += problem.what;
  if (!problem.remedy.empty()) message += "; " + problem.remedy;
  return message;
}

namespace {
thread_local std::string latest;
}

void fail(const Problem& problem) {
  latest = format(problem);
  throw Error(latest);
}

const std::string& latest_failure() { return latest; }

}  // namespace meshtorch
