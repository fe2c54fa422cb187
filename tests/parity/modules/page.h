// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace meshtorch::modules {

// docs/modules.md, measured: every row of the table runs on a mesh of two devices.
std::string page();

}  // namespace meshtorch::modules
