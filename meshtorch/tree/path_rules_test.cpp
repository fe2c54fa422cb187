// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>
#include <meshtorch/tree/path_rules.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Mesh& mesh() {
  static const Mesh mesh({{"dp", 4}, {"tp", 2}});
  return mesh;
}

std::string match_error(const PathRules& rules, const std::vector<Leaf>& leaves) {
  return message([&] { rules.match(mesh(), leaves); });
}

TEST(PathRules, TheFirstRuleThatFiresWins) {
  const PathRules rules{{"up\\.weight", P("tp")}, {"weight", P(whole, "tp")}};
  const auto report = rules.match(mesh(), {{"a.up.weight", {8, 4}}, {"a.down.weight", {8, 4}}});
  EXPECT_EQ(report.matches[0].rule, 0);
  EXPECT_EQ(report.matches[0].spec, P("tp"));
  EXPECT_EQ(report.matches[0].note, "also fits rule 1");
  EXPECT_EQ(report.matches[1].rule, 1);
  EXPECT_EQ(report.matches[1].spec, P(whole, "tp"));
  EXPECT_EQ(report.matches[1].note, "");
}

TEST(PathRules, ARegexIsSearchedNotMatchedWhole) {
  const PathRules rules{{"^b$", P()}, {"b", P("tp")}};
  const auto report = rules.match(mesh(), {{"abc", {2}}, {"b", {2}}});
  EXPECT_EQ(report.matches[0].rule, 1);
  EXPECT_EQ(report.matches[1].rule, 0);
}

TEST(PathRules, BytesAreThoseOfTheLargestShard) {
  const PathRules rules{{"even", P("dp", "tp")}, {"odd", P("dp")}, {"scalar", P()}};
  const auto report =
      rules.match(mesh(), {{"even", {8, 4}, 4}, {"odd", {5, 3}, 2}, {"scalar", {}, 8}});
  EXPECT_EQ(report.matches[0].bytes_per_device, 2 * 2 * 4);
  EXPECT_EQ(report.matches[1].bytes_per_device, 2 * 3 * 2);
  EXPECT_EQ(report.matches[2].bytes_per_device, 8);
}

TEST(PathRules, UnevenDimsAreNoted) {
  const PathRules rules{{"head", P("tp")}, {"both", P(whole, axes("dp", "tp"))}, {"few", P("dp")}};
  const auto report = rules.match(
      mesh(), {{"head", {50257, 8}}, {"both", {3, 12}}, {"few", {5}}, {"few.even", {8}}});
  EXPECT_EQ(report.matches[0].note, "uneven: dim 0 of 50257 over tp=2");
  EXPECT_EQ(report.matches[1].note, "uneven: dim 1 of 12 over (dp=4, tp=2)");
  EXPECT_EQ(report.matches[2].note, "uneven: dim 0 of 5 over dp=4, 1 empty");
  EXPECT_EQ(report.matches[3].note, "");
}

TEST(PathRules, UnusedAndShadowedRulesAreReported) {
  const PathRules rules{{"weight", P("tp")}, {"up\\.weight", P()}, {"bias", P()}};
  const auto report = rules.match(mesh(), {{"up.weight", {4}}, {"down.weight", {4}}});
  EXPECT_THAT(report.unused_rules, ElementsAre(2));
  EXPECT_THAT(report.shadowed_rules, ElementsAre(1));
}

TEST(PathRules, UnmatchedLeavesAreAnErrorThatNamesThemAll) {
  const PathRules rules{{"weight", P()}};
  const std::vector<Leaf> leaves{{"a.bias", {4}}, {"a.weight", {4, 4}}, {"b.bias", {4}}};
  EXPECT_EQ(match_error(rules, leaves),
            "[PathRules] a.bias, b.bias: no rule fires; add a rule, or call "
            "otherwise(Unmatched::replicate) to leave such leaves whole");

  const auto report = rules.otherwise(Unmatched::replicate).match(mesh(), leaves);
  EXPECT_EQ(report.matches[0].rule, -1);
  EXPECT_EQ(report.matches[0].spec, P());
  EXPECT_EQ(report.matches[1].rule, 0);
}

TEST(PathRules, WithoutRulesOrLeaves) {
  EXPECT_THAT(PathRules{}.match(mesh(), {}).matches, IsEmpty());
  EXPECT_EQ(match_error({}, {{"a", {}}}).substr(0, 31), "[PathRules] a: no rule fires; a");
}

TEST(PathRules, BadRegex) {
  const auto complaint = [](const std::string& pattern) {
    return message([&] { PathRules{{"weight", P()}, {pattern, P()}}; });
  };
  const std::string remedy = "; escape what is meant literally, as in \"\\.weight\"";
  const std::string head = "[PathRules] rule 1 ";
  EXPECT_EQ(complaint("(q|k"), head +
                                   "\"(q|k\": not a regular expression, unbalanced ( or ), or * + "
                                   "? { with nothing to repeat" +
                                   remedy);
  EXPECT_EQ(complaint("*.weight"), head +
                                       "\"*.weight\": not a regular expression, unbalanced ( or ), "
                                       "or * + ? { with nothing to repeat" +
                                       remedy);
  EXPECT_EQ(complaint("[a"), head + "\"[a\": not a regular expression, unbalanced [ or ]" + remedy);
  EXPECT_EQ(complaint("a{2"),
            head + "\"a{2\": not a regular expression, unbalanced { or }" + remedy);
  EXPECT_EQ(complaint("a\\"),
            head + "\"a\\\": not a regular expression, bad escape after a backslash" + remedy);
}

// Backtracking would take years for the first.
TEST(PathRules, RepetitionsOfRepetitionsAndBackReferences) {
  const PathRules rules{{"(.*)*(.*)*(.*)*w$", P()}, {"(l+)ayer\\1", P("tp")}, {"", P("dp")}};
  const std::string path = "layers.layers.layers.layers.layers.layers.layers.bias";
  const auto report = rules.match(mesh(), {{path, {8}}, {"layerl", {8}}});
  EXPECT_EQ(report.matches[0].rule, 2);
  EXPECT_EQ(report.matches[1].rule, 1);
}

TEST(PathRules, SpecLongerThanTheLeaf) {
  EXPECT_EQ(
      match_error({{"bias", P(whole, "tp")}}, {{"layers.0.bias", {8}}}),
      "[PathRules] layers.0.bias by rule 0 \"bias\": P(-, tp) names 2 dims, the tensor has 1; "
      "drop dims from the spec");
}

TEST(PathRules, UnknownAxis) {
  EXPECT_EQ(match_error({{"weight", P(whole, "tpp")}}, {{"up.weight", {8, 8}}}),
            "[PathRules] up.weight by rule 0 \"weight\" dim 1: axis \"tpp\" is not an axis of mesh "
            "(dp=4, tp=2); use one of: dp, tp");
}

TEST(PathRules, TiedLeavesShareOneRule) {
  const PathRules rules{{"tokens", P("tp")}};
  const auto report =
      rules.match(mesh(), {{"head.weight", {8, 4}, 4, 0}, {"tokens.weight", {8, 4}, 4, 0}});
  EXPECT_EQ(report.matches[0].rule, 0);
  EXPECT_EQ(report.matches[0].spec, P("tp"));
  EXPECT_EQ(report.matches[1].note, "tied to head.weight");
}

TEST(PathRules, TiedLeavesInConflict) {
  EXPECT_EQ(
      match_error({{"tokens", P("tp")}, {"head", P(whole, "tp")}},
                  {{"tokens.weight", {8, 4}, 4, 0}, {"head.weight", {8, 4}, 4, 0}}),
      "[PathRules] head.weight by rule 1 \"head\": P(-, tp) but tokens.weight, the same tensor, "
      "gets P(tp) by rule 0 \"tokens\"; give both the same spec");
}

TEST(MatchReport, Table) {
  const PathRules rules{{"weight", P("tp")}, {"bias", P()}, {"norm", P()}, {"up\\.weight", P()}};
  const auto report = rules.match(mesh(), {{"tokens.weight", {257, 16}, 4, 0},
                                           {"up.weight", {64, 16}},
                                           {"up.bias", {64}},
                                           {"head.weight", {257, 16}, 4, 0}});
  EXPECT_EQ(
      report.to_string(),
      "path           shape      rule  spec   bytes per device  note\n"
      "-------------  ---------  ----  -----  ----------------  "
      "-----------------------------------------------------\n"
      "tokens.weight  [257, 16]     0  P(tp)             8,256  uneven: dim 0 of 257 over tp=2\n"
      "up.weight      [64, 16]      0  P(tp)             2,048  also fits rule 3\n"
      "up.bias        [64]          1  P()                 256\n"
      "head.weight    [257, 16]     0  P(tp)             8,256  tied to tokens.weight; uneven: dim "
      "0 "
      "of 257 over tp=2\n"
      "4 leaves, 10,560 bytes per device\n"
      "rule 2 \"norm\" is unused: it fits no leaf\n"
      "rule 3 \"up\\.weight\" is shadowed: an earlier rule wins every leaf it fits\n");
}

}  // namespace
}  // namespace meshtorch
