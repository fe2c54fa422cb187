// SPDX-License-Identifier: Apache-2.0
//
// The README's program is the one that is built and run.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

std::string contents(const std::string& name) {
  std::ostringstream out;
  out << std::ifstream(MESHTORCH_DOCS_DIR "/../" + name).rdbuf();
  return out.str();
}

TEST(Readme, ShowsTheExampleThatIsBuilt) {
  const std::string source = contents("examples/readme.cpp");
  const std::string code = source.substr(source.find('\n') + 1);  // without the license line
  EXPECT_THAT(contents("README.md"), testing::HasSubstr("```cpp\n" + code + "```"));
}

}  // namespace
