// SPDX-License-Identifier: Apache-2.0
//
// For this room's tests: a file with given contents, removed at the end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace meshtorch {

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& contents) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::string(testing::TempDir()) + "meshtorch_" + test->test_suite_name() + "_" +
            test->name() + "_" + std::to_string(counter_++);
    std::ofstream(path_, std::ios::binary) << contents;
  }
  ~ScratchFile() { std::filesystem::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  static inline int counter_ = 0;
  std::string path_;
};

}  // namespace meshtorch
