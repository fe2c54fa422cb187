// SPDX-License-Identifier: Apache-2.0
//
// Dotted paths, as libtorch writes them: "layers.3.mlp.up.weight".
#pragma once

#include <string>

namespace meshtorch {

// `name` below `path`; the root's path is empty.
inline std::string join_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace meshtorch
