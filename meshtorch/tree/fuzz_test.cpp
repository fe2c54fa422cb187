// SPDX-License-Identifier: Apache-2.0
//
// Rules from mutated text: an Error, or a report that holds together. Nothing else may come out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <meshtorch/base/fuzz.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tree/activation_rules.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {
namespace {

constexpr int kCases = 20000;
constexpr std::size_t kLongestPattern = 24;

const Mesh& mesh() {
  static const Mesh mesh({{"dp", 2}, {"tp", 4}});
  return mesh;
}

const std::vector<Leaf>& leaves() {
  static const std::vector<Leaf> leaves{{"tokens.weight", {257, 16}, 4, 0},
                                        {"layers.0.q.weight", {64, 16}},
                                        {"layers.11.q.bias", {64}},
                                        {"scale", {}},
                                        {"empty", {0, 3}},
                                        {"head.weight", {257, 16}, 4, 0}};
  return leaves;
}

const std::vector<std::string> kPatterns{"(q|k|v)\\.(weight|bias)", "^tokens\\.weight$", "",
                                         "layers\\.\\d+\\.q",       "[a-z]+\\.w{1,2}",   ".*",
                                         "(?:head|tokens)",         "\\bscale\\b"};
const std::vector<std::string> kSpecs{"P()",         "P(tp)",
                                      "P(-, tp)",    "P(dp, (tp, dp))",
                                      "P((dp, tp))", "P(tp) unreduced(dp)",
                                      "P(sp)",       "P(-, -, dp) unreduced(tp, dp)"};
const std::vector<std::string> kNames{"embed", "heads", "batch", "-", "mlp"};
const std::vector<std::string> kAxes{"dp", "tp", "fsdp"};

TEST(Fuzz, PartitionSpecText) {
  Mutator mutate(1);
  int read = 0;
  for (int i = 0; i < kCases; ++i) {
    const std::string text = mutate(kSpecs);
    read += only_errors([&] {
      const PartitionSpec spec = PartitionSpec::parse(text);
      EXPECT_EQ(PartitionSpec::parse(spec.to_string()), spec) << text;
    });
  }
  EXPECT_GT(read, kCases / 10);
  EXPECT_LT(read, kCases * 9 / 10);
}

PartitionSpec mutated_spec(Mutator& mutate) { return PartitionSpec::parse(mutate(kSpecs)); }

PathRules mutated_paths(Mutator& mutate) {
  std::vector<PathRule> rules;
  for (std::size_t n = mutate.below(3) + 1; n > 0; --n) {
    rules.push_back({mutate(kPatterns, kLongestPattern),
                     mutate.one_in(3) ? mutated_spec(mutate) : PartitionSpec(),
                     mutate.one_in(4) ? static_cast<std::int64_t>(mutate.below(20)) - 4 : 0});
  }
  return PathRules(rules).otherwise(mutate.one_in(2) ? Unmatched::error : Unmatched::replicate);
}

LogicalAxes mutated_logical(Mutator& mutate) {
  std::vector<LogicalRule> rules;
  for (std::size_t n = mutate.below(5); n > 0; --n) {
    DimSpec on;
    while (mutate.one_in(2)) on.push_back(mutate.one_in(9) ? mutate(kAxes) : mutate.pick(kAxes));
    rules.emplace_back(mutate.one_in(9) ? mutate(kNames) : mutate.pick(kNames), on);
  }
  LogicalNames names;
  for (std::size_t n = mutate.below(3); n > 0; --n) {
    names.push_back(
        {mutate(kPatterns, kLongestPattern), {mutate.pick(kNames), mutate.pick(kNames)}});
  }
  return LogicalAxes(rules).with_names(names);
}

Rule mutated_rule(Mutator& mutate) {
  switch (mutate.below(4)) {
    case 0:
      return mutated_paths(mutate);
    case 1:
      return mutated_logical(mutate);
    case 2:
      return SpecTable("t", {{mutate.pick(leaves()).path, {mutated_spec(mutate)}}});
    default:
      return FsdpRule(mutate.one_in(5) ? mutate(kAxes) : "dp", {.min_size = 8});
  }
}

// Every line adds up with what the same line's layout says.
void check(const MatchReport& report) {
  ASSERT_EQ(report.matches.size(), leaves().size());
  for (std::size_t i = 0; i < leaves().size(); ++i) {
    const Match& match = report.matches[i];
    const auto rank = static_cast<std::int64_t>(match.leaf.shape.size());
    ASSERT_LE(match.spec.dims().size(), match.leaf.shape.size());
    EXPECT_EQ(match.bytes_per_device,
              max_shard_numel(mesh(), match.leaf.shape, resolve(mesh(), match.spec, rank)) * 4);
    EXPECT_LT(match.rule, static_cast<int>(report.rules.size()));
  }
  EXPECT_EQ(report.matches.front().spec, report.matches.back().spec);  // tied
  EXPECT_THAT(report.to_string(), testing::HasSubstr("6 leaves"));
}

TEST(Fuzz, Rules) {
  Mutator mutate(2);
  int matched = 0;
  for (int i = 0; i < kCases; ++i) {
    matched += only_errors([&] {
      std::vector<Rule> parts;
      for (std::size_t n = mutate.below(4); n > 0; --n) parts.push_back(mutated_rule(mutate));
      Rules rules(parts);
      if (mutate.one_in(2)) rules = rules.otherwise(Unmatched::replicate);
      if (mutate.one_in(9)) rules = rules.even();
      check(rules.match(mesh(), leaves()));
    });
  }
  EXPECT_GT(matched, kCases / 20);
  EXPECT_LT(matched, kCases * 9 / 10);
}

TEST(Fuzz, LogicalAxesFailOnlyForNamesWithoutRule) {
  Mutator mutate(3);
  for (int i = 0; i < kCases; ++i) {
    const LogicalAxes where{{"embed", "dp"}, {"heads", axes("tp", "dp")}, {"batch", whole}};
    std::vector<std::string> names;
    for (std::size_t n = mutate.below(4); n > 0; --n) names.push_back(mutate(kNames));
    const bool known = std::ranges::all_of(names, [](const std::string& name) {
      return name == "-" || name == "embed" || name == "heads" || name == "batch";
    });
    EXPECT_EQ(only_errors([&] { where.spec(names); }), known) << join(names);
  }
}

TEST(Fuzz, ActivationRules) {
  Mutator mutate(4);
  std::vector<std::string> paths;
  for (const Leaf& leaf : leaves()) paths.push_back(leaf.path);
  const std::vector<std::string> ops{"", "linear", "embedding", "softmax"};
  int matched = 0;
  for (int i = 0; i < kCases; ++i) {
    matched += only_errors([&] {
      std::vector<ActivationRule> rules;
      for (std::size_t n = mutate.below(3) + 1; n > 0; --n) {
        rules.push_back({.pattern = mutate(kPatterns, kLongestPattern),
                         .op = mutate.one_in(5) ? mutate(ops) : ""});
        if (mutate.one_in(3)) rules.back().input = mutated_spec(mutate);
        if (mutate.one_in(3)) rules.back().output = mutated_spec(mutate);
      }
      const ConstraintReport report = match_activations(rules, mesh(), paths);
      EXPECT_FALSE(report.matches.empty());
      EXPECT_THAT(report.to_string(), testing::StartsWith("path"));
    });
  }
  EXPECT_GT(matched, kCases / 20);
  EXPECT_LT(matched, kCases * 9 / 10);
}

}  // namespace
}  // namespace meshtorch
