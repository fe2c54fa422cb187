// SPDX-License-Identifier: Apache-2.0
//
// conformance: proves the op rules by brute force. docs/conformance.md says what and how.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

#include "runner.h"

namespace meshtorch::conformance {
namespace {

struct Options {
  std::string cases = MESHTORCH_CASES_DIR;
  std::vector<std::string> ops;
  std::vector<std::string> families;
  std::string line;
  std::string shard = "0/1";
  bool verbose = false;
};

std::vector<Case> all_cases(const Options& options, std::int64_t& failed) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(options.cases)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const auto& path : paths) {
    for (Case& each : read_cases(path.string(), [&](const std::string& problem) {
           std::cout << "FAILED " << problem << "\n";
           ++failed;
         }))
      cases.push_back(std::move(each));
  }
  return cases;
}

bool wanted(const Options& options, const Case& of) {
  auto is_in = [](const std::vector<std::string>& list, const std::string& word) {
    return list.empty() || std::find(list.begin(), list.end(), word) != list.end();
  };
  return is_in(options.ops, of.op) &&
         is_in(options.families, of.where.substr(0, of.where.find('.'))) &&
         (options.line.empty() || options.line == of.where);
}

int run(const Options& options) {
  Runtime runtime({.devices = 8, .warn_fallback = false});
  Tally total;
  std::vector<Case> cases = all_cases(options, total.failed);
  std::erase_if(cases, [&](const Case& of) { return !wanted(options, of); });
  std::size_t index = 0, shards = 1;
  char slash = 0;
  std::istringstream(options.shard) >> index >> slash >> shards;
  if (slash != '/' || shards == 0 || index >= shards)
    fail({"conformance", "--shard", "got \"" + options.shard + "\"", "give i/n with i < n"});
  if (cases.empty())
    fail({"conformance", "", "no case was chosen", "look at --op, --family and --line"});
  Runner runner(std::cout, {.verbose = options.verbose});
  for (std::size_t i = index; i < cases.size(); i += shards) {
    const auto start = std::chrono::steady_clock::now();
    const Tally tally = runner.run(cases[i]);
    total += tally;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (options.verbose || tally.failed > 0)
      std::cout << cases[i].where << " " << cases[i].op << ": " << tally.passed << " passed, "
                << tally.failed << " failed, " << seconds << " s\n"
                << std::flush;
  }
  std::cout << cases.size() << " cases, " << total.threw << " calls that plain libtorch refuses, "
            << total.derived << " of in-place and out= forms\n"
            << total.passed << " passed, " << total.failed << " failed\n";
  return total.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace meshtorch::conformance

int main(int argc, char** argv) {
  meshtorch::conformance::Options options;
  CLI::App app(
      "Proves the op rules: every op of the cases, every legal layout, against plain libtorch");
  app.add_option("--cases", options.cases, "folder of the case files");
  app.add_option("--op", options.ops, "only these ops (mm, sum.dim_IntList)");
  app.add_option("--family", options.families, "only these case files (view, reduce)");
  app.add_option("--line", options.line, "only this line (view.txt:12)");
  app.add_option("--shard", options.shard, "every n-th case, i/n");
  app.add_flag("--verbose", options.verbose, "a line for every case");
  CLI11_PARSE(app, argc, argv);
  try {
    return meshtorch::conformance::run(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n0 passed, 1 failed\n";
    return 1;
  }
}
