// SPDX-License-Identifier: Apache-2.0
//
// docs/coverage.md is what the registry says. script/coverage writes it anew.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/ops/registry.h>

namespace meshtorch {
namespace {

constexpr char kPath[] = MESHTORCH_DOCS_DIR "/coverage.md";

std::string page() {
  const auto registry = OpRegistry::built_in();
  return text(
      "# Coverage: ops with a rule\n\n"
      "Written by `script/coverage`; do not edit. ",
      registry.entries().size(),
      " ops, a section a family, in the\n[notation](rule.md) of their rules. Composite ops "
      "(`linear`, "
      "`cross_entropy`) are made of these. Every other\nop gives the right result too: its "
      "operands are "
      "gathered, and `Runtime::fallbacks()` tells.\n\n",
      coverage_table(registry));
}

TEST(Coverage, ThePageIsWhatTheRegistrySays) {
  if (std::getenv("MESHTORCH_WRITE_DOCS") != nullptr) std::ofstream(kPath) << page();
  std::ostringstream written;
  written << std::ifstream(kPath).rdbuf();
  EXPECT_TRUE(written.str() == page()) << "docs/coverage.md is stale; run script/coverage";
}

}  // namespace
}  // namespace meshtorch
