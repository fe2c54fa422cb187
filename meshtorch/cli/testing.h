// SPDX-License-Identifier: Apache-2.0
//
// For tests of jobs.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace meshtorch {

// What can be read: a process may end while its file in /proc is, which makes an iterator throw.
inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(contents).str();
}

}  // namespace meshtorch
