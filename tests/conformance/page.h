// SPDX-License-Identifier: Apache-2.0
//
// docs/coverage.md: a function of the registry, the cases and plain libtorch.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "case.h"

namespace meshtorch::conformance {

// Ops with a rule and without a case, and ops with a case and without a rule.
std::vector<std::string> ops_without_case(const std::vector<Case>& cases);

// What each op's rule leaves out although plain libtorch shows a way, by op; runs each case in a process
// of its own.
std::map<std::string, std::vector<std::string>> all_missed(const std::vector<Case>& cases);

// The page. Throws where there are no cases.
std::string coverage_page(const std::vector<Case>& cases);

}  // namespace meshtorch::conformance
