// SPDX-License-Identifier: Apache-2.0
//
// The sizes that the letters of a case take on a mesh.
#pragma once

#include <string>
#include <vector>

#include <meshtorch/mesh/mesh.h>

#include "case.h"

namespace meshtorch::conformance {

struct Regime {
  std::string name;  // "even", "uneven", "small", "zero a"
  Sizes sizes;
  bool zero() const { return name.starts_with("zero"); }
};

// even     multiples of the number of devices, neighbours differ
// uneven   5 and 7
// small    1 and one less than the devices: some devices hold nothing
// zero     each letter in turn
// Never below the case's min(letter); a regime equal to an earlier one is left out.
std::vector<Regime> regimes(const Case& of, const Mesh& mesh);

// "a=4 b=8"
std::string describe(const Sizes& sizes);

}  // namespace meshtorch::conformance
