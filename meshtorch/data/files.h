// SPDX-License-Identifier: Apache-2.0
//
// Where the data that comes with meshtorch is (data/README.md says what it is).
#pragma once

#include <string>

namespace meshtorch {

// The path of a file of the data folder: of the folder that the environment variable MESHTORCH_DATA
// names, else of the source tree the library was built from. Throws Error where it is not there.
std::string data_file(const std::string& name);

}  // namespace meshtorch
