// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/data/files.h>

#include <cstdlib>
#include <filesystem>

#include <meshtorch/base/error.h>

namespace meshtorch {

std::string data_file(const std::string& name) {
  const char* given = std::getenv("MESHTORCH_DATA");
  const bool named = given != nullptr && *given != '\0';
  const auto path = std::filesystem::path(named ? given : MESHTORCH_DATA_DIR) / name;
  if (!std::filesystem::is_regular_file(path)) {
    fail({"data_file", path.string(), "no such file",
          named ? "MESHTORCH_DATA names this folder: correct or unset it"
                : "set MESHTORCH_DATA to the folder that holds it"});
  }
  return path.string();
}

}  // namespace meshtorch
