// SPDX-License-Identifier: Apache-2.0
//
// Every module class of torch::nn on a mesh: values, gradients and buffers of plain libtorch. The
// classes are read from the installed headers, so a new libtorch's new module fails until it has a row.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "page.h"
#include "run.h"

namespace meshtorch::modules {

// How GoogleTest prints a row.
static void PrintTo(const Row& row, std::ostream* out) { *out << row.module << " " << row.options; }

namespace {

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Without comments: headers show TORCH_MODULE(M) in examples.
std::string code(const std::filesystem::path& path) {
  std::istringstream lines(contents(path));
  std::string text;
  for (std::string line; std::getline(lines, line);) text += line.substr(0, line.find("//")) + "\n";
  return text;
}

std::set<std::string> classes_of_headers() {
  static const std::regex declaration(
      "TORCH_MODULE\\((\\w+)\\)|class (\\w+) : public torch::nn::ModuleHolder<");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::recursive_directory_iterator(MESHTORCH_NN_HEADERS)) {
    if (!file.is_regular_file()) continue;
    const std::string text = code(file.path());
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it) {
      names.insert((*it)[1].matched ? (*it)[1] : (*it)[2]);
    }
  }
  return names;
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const auto& [family, members] : table()) {
    rows.insert(rows.end(), members.begin(), members.end());
  }
  return rows;
}

class ModuleRows : public testing::TestWithParam<Row> {
 protected:
  Runtime runtime_{{.devices = 4, .warn_fallback = false}};
};

TEST(ModuleTable, EveryClassHasARow) {
  std::set<std::string> rows;
  for (const auto& row : all_rows()) rows.insert(row.module);
  const auto classes = classes_of_headers();
  EXPECT_GT(classes.size(), 100u) << "no headers in " MESHTORCH_NN_HEADERS;
  EXPECT_EQ(rows, classes);
}

TEST_P(ModuleRows, BatchSharded) {
  const std::vector<Place> places{
      {{{"dp", 2}}, 4}, {{{"dp", 2}}, 5}, {{{"dp", 4}}, 8}, {{{"dp", 4}}, 5}, {{{"dp", 4}}, 3}};
  for (const auto& place : places) {
    for (const bool training : {true, false}) expect_parity(GetParam(), place, training);
  }
}

TEST_P(ModuleRows, ParametersSharded) {
  const std::vector<Place> places{
      {{{"tp", 4}}, 3}, {{{"dp", 2}, {"tp", 2}}, 4}, {{{"dp", 2}, {"tp", 2}}, 5}};
  for (const auto& layout : GetParam().layouts) {
    for (const auto& place : places) {
      for (const bool training : {true, false}) {
        expect_parity(GetParam(), place, training, layout);
      }
    }
  }
}

std::string name_of_row(const testing::TestParamInfo<Row>& info) {
  return info.param.module + "_" + std::to_string(info.index);
}

INSTANTIATE_TEST_SUITE_P(All, ModuleRows, testing::ValuesIn(all_rows()), name_of_row);

TEST(ModulePage, IsWhatWasMeasured) {
  constexpr char kPath[] = MESHTORCH_DOCS_DIR "/modules.md";
  Runtime runtime({.devices = 2, .warn_fallback = false});
  const std::string measured = page();
  if (std::getenv("MESHTORCH_WRITE_DOCS") != nullptr) std::ofstream(kPath) << measured;
  EXPECT_TRUE(contents(kPath) == measured) << "docs/modules.md is stale; run script/coverage";
}

}  // namespace
}  // namespace meshtorch::modules
