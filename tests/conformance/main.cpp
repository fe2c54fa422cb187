// SPDX-License-Identifier: Apache-2.0
//
// conformance: proves the op rules by brute force. docs/conformance.md says what and how.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

#include "isolated.h"
#include "page.h"
#include "runner.h"
#include "sabotage.h"

namespace meshtorch::conformance {
namespace {

struct Options {
  std::string cases = MESHTORCH_CASES_DIR;
  std::string page = MESHTORCH_DOCS_DIR "/coverage.md";
  std::vector<std::string> ops;
  std::vector<std::string> families;
  std::string line;
  std::string shard = "0/1";
  bool verbose = false;
  bool write = false;
  bool check = false;
  bool sabotage = false;
  std::size_t every = 1;
  bool whole_table() const { return ops.empty() && families.empty() && line.empty(); }
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

// The cases of this shard, by position: neighbours are alike, so the shards are about equal.
std::vector<Case> shard_of(std::vector<Case> cases, const std::string& shard) {
  std::size_t index = 0, shards = 0;
  char slash = 0;
  std::istringstream(shard) >> index >> slash >> shards;
  if (slash != '/' || index >= shards)
    fail({"conformance", "--shard", "got \"" + shard + "\"", "give i/n with i < n"});
  std::vector<Case> mine;
  for (std::size_t i = index; i < cases.size(); i += shards) mine.push_back(std::move(cases[i]));
  return mine;
}

Tally run_case(const Case& of) {
  const auto [lines, problem] = isolated_lines(
      [&]() -> std::vector<std::string> { return {Runner(std::cout).run(of).to_string()}; }, 300);
  if (problem.empty()) return Tally::parse(lines.at(0));
  std::cout << "FAILED " << of.op << "  " << of.where << "\n  " << of.text << "\n  " << problem
            << "\n";
  return {.failed = 1};
}

Tally run_table(const std::vector<Case>& cases, bool verbose) {
  Tally total;
  for (const Case& each : cases) {
    const auto start = std::chrono::steady_clock::now();
    const Tally tally = run_case(each);
    total += tally;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (!verbose && tally.failed == 0) continue;
    std::cout << each.where << " " << each.op << ": " << tally.passed << " passed, " << tally.failed
              << " failed, " << took.count() << " s\n"
              << std::flush;
  }
  std::cout << cases.size() << " cases; " << total.derived
            << " of the calls are in-place, out= and list forms, " << total.threw
            << " plain libtorch refuses, too\n";
  return total;
}

// The page of the ops; compared, or written.
Tally run_page(const Options& options, const std::vector<Case>& cases) {
  const std::string page = coverage_page(cases);
  if (options.write) std::ofstream(options.page) << page;
  std::ostringstream written;
  written << std::ifstream(options.page).rdbuf();
  if (written.str() == page) return {.passed = 1};
  std::cout << "FAILED " << options.page << " is stale; run script/coverage\n";
  return {.failed = 1};
}

Tally missing_cases(const std::vector<Case>& cases) {
  Tally tally{.passed = 1};
  for (const std::string& op : ops_without_case(cases)) {
    std::cout << "FAILED " << op
              << " has a rule and no case; add a line to tests/conformance/cases\n";
    tally = {.failed = tally.failed + 1};
  }
  return tally;
}

Tally try_sabotage(const Options& options, const std::vector<Case>& cases) {
  const SabotageTally tally = run_sabotage(cases, options.every, options.verbose, std::cout);
  std::cout << tally.detected << " wrong rules detected, " << tally.survived << " not, "
            << tally.equivalent << " changes are equivalent\n";
  return {.passed = tally.detected, .failed = tally.survived};
}

int run(const Options& options) {
  Runtime runtime({.devices = 8, .warn_fallback = false});
  Tally total;
  const std::vector<Case> all = all_cases(options, total.failed);
  std::vector<Case> cases = all;
  std::erase_if(cases, [&](const Case& of) { return !wanted(options, of); });
  if (cases.empty())
    fail({"conformance", "", "no case was chosen", "look at --op, --family and --line"});
  if (options.write || options.check) {
    total += missing_cases(all);
    total += run_page(options, all);
  } else if (options.sabotage) {
    total += try_sabotage(options, shard_of(std::move(cases), options.shard));
  } else {
    total += run_table(shard_of(std::move(cases), options.shard), options.verbose);
    if (options.whole_table()) total += missing_cases(all);
  }
  std::cout << total.passed << " passed, " << total.failed << " failed\n";
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
  app.add_option("--page", options.page, "the page of --write and --check");
  app.add_flag("--write", options.write, "write docs/coverage.md");
  app.add_flag("--check", options.check,
               "every rule has a case and docs/coverage.md is up to date");
  app.add_flag("--sabotage", options.sabotage, "change the rules: every wrong one must be found");
  app.add_option("--every", options.every, "of the sabotage: every n-th op")
      ->check(CLI::PositiveNumber);
  app.add_flag("--verbose", options.verbose, "a line for every case");
  CLI11_PARSE(app, argc, argv);
  try {
    return meshtorch::conformance::run(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n0 passed, 1 failed\n";
    return 1;
  }
}
