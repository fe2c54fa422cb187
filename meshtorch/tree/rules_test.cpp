// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/rules.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Mesh& mesh() {
  static const Mesh mesh({{"fsdp", 2}, {"tp", 4}});
  return mesh;
}

std::vector<std::string> lines(const MatchReport& report) {
  std::vector<std::string> lines;
  for (const Match& match : report.matches) {
    lines.push_back(text(match.leaf.path, " ", match.rule,
                         match.added.empty() ? "" : "+" + join(match.added), " ", match.spec,
                         match.note.empty() ? "" : " | " + match.note));
  }
  return lines;
}

std::vector<std::string> lines(const Rules& rules, const std::vector<Leaf>& leaves) {
  return lines(rules.match(mesh(), leaves));
}

std::string match_error(const Rules& rules, const std::vector<Leaf>& leaves) {
  return message([&] { rules.match(mesh(), leaves); });
}

TEST(Rules, AreMadeFromWhateverIsThere) {
  const Leaf leaf{"up.weight", {64, 32}};
  const PathRules paths{{"up", P("tp")}};
  EXPECT_THAT(lines(paths, {leaf}), ElementsAre("up.weight 0 P(tp)"));
  EXPECT_THAT(lines({{"up", P("tp")}}, {leaf}), ElementsAre("up.weight 0 P(tp)"));
  EXPECT_THAT(lines({{"up", P("tp")}, {"up.weight", P()}}, {leaf}),
              ElementsAre("up.weight 0 P(tp) | also fits rule 1"));
  EXPECT_THAT(lines({paths}, {leaf}), ElementsAre("up.weight 0 P(tp)"));
  EXPECT_THAT(lines(FsdpRule("fsdp"), {leaf}), ElementsAre("up.weight 0 P(fsdp)"));
  EXPECT_THAT(lines({paths, FsdpRule("fsdp")}, {leaf}), ElementsAre("up.weight 0+1 P((tp, fsdp))"));
  EXPECT_THAT(Rules().match(mesh(), {}).matches, IsEmpty());
  EXPECT_EQ(Rules(paths), Rules{paths});
  EXPECT_FALSE(Rules(paths) == Rules(paths).even());
}

TEST(Rules, TheFirstThatKnowsALeafDecides) {
  const Rules rules{
      PathRules{{"q", P("tp")}}, LogicalAxes{{"embed", "fsdp"}}.with_names({{"q|norm", {"embed"}}}),
      SpecTable("specs", {{"q.weight", {P("fsdp")}}, {"k.weight", {P("fsdp"), "row"}}}),
      PolicyRule("matrices", [](const Leaf& leaf) -> std::optional<PartitionSpec> {
        if (leaf.shape.size() == 2) return P(whole, "fsdp");
        return std::nullopt;
      })};
  const MatchReport report = rules.match(
      mesh(), {{"q.weight", {8, 8}}, {"norm", {8}}, {"k.weight", {8, 8}}, {"w", {8, 8}}});
  EXPECT_THAT(lines(report),
              ElementsAre("q.weight 0 P(tp) | also fits rule 1, 2, 3", "norm 1 P(fsdp)",
                          "k.weight 2 P(fsdp) | row; also fits rule 3", "w 3 P(-, fsdp)"));
  EXPECT_THAT(report.shadowed_rules, IsEmpty());
  EXPECT_THAT(report.rules,
              ElementsAre("\"q\"", "LogicalAxes", "SpecTable specs", "PolicyRule matrices"));
}

TEST(Rules, ARuleSetThatKnowsEveryLeafEndsTheList) {
  const Rules rules{PathRules{{"q", P("tp")}}.otherwise(Unmatched::replicate),
                    PathRules{{"k", P("tp")}}, FsdpRule("fsdp", {.min_size = 32})};
  const MatchReport report = rules.match(mesh(), {{"q", {8, 8}}, {"k", {8, 8}}, {"b", {8}}});
  EXPECT_THAT(lines(report), ElementsAre("q 0+2 P((tp, fsdp))", "k 2 P(fsdp) | also fits rule 1",
                                         "b -1 P() | not over fsdp: 8 elements of 32"));
  EXPECT_THAT(report.shadowed_rules, ElementsAre(1));
}

TEST(Rules, WhatNothingDecides) {
  const std::vector<Leaf> leaves{
      {"a", {4}}, {.path = "mean", .shape = {4}, .buffer = true}, {"b", {4}}};
  const Rules rules{PathRules{{"q", P("tp")}}, SpecTable("", {})};
  EXPECT_EQ(match_error(rules, leaves),
            "[Rules] a, b: no rule fires; add a rule, or call otherwise(Unmatched::replicate) to "
            "leave such leaves whole");
  EXPECT_THAT(lines(rules.otherwise(Unmatched::replicate), leaves),
              ElementsAre("a -1 P()", "mean -1 P()", "b -1 P()"));
}

TEST(Rules, AnFsdpRuleHidesNoTypo) {
  const std::vector<Leaf> leaves{{"up.weight", {64, 32}},
                                 {"down.weight", {64, 32}},
                                 {"up.bias", {64}},
                                 {.path = "mean", .shape = {64}, .buffer = true}};
  const Rules rules{PathRules{{"up.wieght|down", P("tp")}}, FsdpRule("fsdp"), FsdpRule("tp")};
  EXPECT_EQ(
      match_error(rules, leaves),
      "[Rules] up.bias: no rule fires; add a rule, or call otherwise(Unmatched::replicate) to "
      "leave such leaves whole");
  const std::string small =
      "not over fsdp: 64 elements of 1,024; not over tp: 64 elements of 1,024";
  const auto whole_if_small =
      ElementsAre("up.weight 1+2 P((fsdp, tp))", "down.weight 0+1 P((tp, fsdp)) | uses tp already",
                  "up.bias -1 P() | " + small, "mean -1 P()");
  EXPECT_THAT(lines(rules.otherwise(Unmatched::replicate), leaves), whole_if_small);
  EXPECT_THAT(lines({FsdpRule("fsdp"), FsdpRule("tp")}, leaves),
              ElementsAre("up.weight 0+1 P((fsdp, tp))", "down.weight 0+1 P((fsdp, tp))",
                          "up.bias -1 P() | " + small, "mean -1 P()"));
}

TEST(Rules, TiedLeavesTakeWhatOneOfThemIsGiven) {
  const std::vector<Leaf> leaves{{"head.weight", {8, 4}, 4, 0}, {"tokens.weight", {8, 4}, 4, 0}};
  const SpecTable table("specs", {{"tokens.weight", {P("tp")}}});
  for (const Rules& rules : {Rules(table), Rules(table).otherwise(Unmatched::replicate)}) {
    EXPECT_THAT(lines(rules, leaves),
                ElementsAre("head.weight 0 P(tp)", "tokens.weight 0 P(tp) | tied to head.weight"));
  }
  EXPECT_EQ(match_error({table, PathRules{{"head", P(whole, "tp")}}}, leaves),
            "[Rules] tokens.weight by rule 0 SpecTable specs: P(tp) but head.weight, the same "
            "tensor, gets P(-, tp) by rule 1 \"head\"; give both the same spec");
  EXPECT_THAT(lines({table, FsdpRule("fsdp", {.min_size = 0})}, leaves),
              ElementsAre("head.weight 0+1 P((tp, fsdp))",
                          "tokens.weight 0+1 P((tp, fsdp)) | tied to head.weight"));
}

TEST(Rules, HeadsAreNotCut) {
  const auto complaint = [](std::int64_t heads, std::int64_t rows) {
    return match_error({{.pattern = "k", .spec = P("tp"), .heads = heads}},
                       {{"a.k.weight", {rows, 8}}});
  };
  EXPECT_EQ(complaint(4, 32), "did not throw");
  EXPECT_EQ(complaint(2, 32),
            "[PathRules] a.k.weight by rule 0 \"k\" dim 0: 2 heads over tp=4, fewer than the 4 "
            "devices; take a smaller axis, or replicate groups: split it into two axes and shard these "
            "heads over one of at most 2");
  EXPECT_EQ(complaint(6, 36),
            "[PathRules] a.k.weight by rule 0 \"k\" dim 0: 6 heads over tp=4 would cut heads; take "
            "an axis whose size divides the heads");
  EXPECT_EQ(complaint(5, 32),
            "[PathRules] a.k.weight by rule 0 \"k\" dim 0: 32 is not 5 heads of one size; say how "
            "many heads the dim is");
}

TEST(Rules, HeadsOfTheDimThatHasThem) {
  const PathRule out{.pattern = "out", .spec = P("fsdp", "tp"), .heads = {2, 1}};
  EXPECT_EQ(match_error({out}, {{"out.weight", {8, 32}}}).substr(0, 58),
            "[PathRules] out.weight by rule 0 \"out\" dim 1: 2 heads over");
  EXPECT_EQ(match_error({{.pattern = "out", .spec = P("fsdp"), .heads = {2, 1}}},
                        {{"out.weight", {8, 32}}, {"out.bias", {8}}}),
            "did not throw");
}

TEST(Rules, HeadsThatTheLeafOrTheTableSays) {
  const Leaf leaf{.path = "k", .shape = {32}, .heads = 2};
  EXPECT_EQ(match_error({{"k", P("tp")}}, {leaf}).substr(0, 42),
            "[PathRules] k by rule 0 \"k\" dim 0: 2 heads");
  EXPECT_EQ(match_error({{"k", P("tp"), 8}}, {leaf}), "did not throw");
  EXPECT_EQ(match_error(SpecTable("t", {{"k", {P("tp"), "", 1}}}), {leaf}).substr(0, 51),
            "[SpecTable] k by rule 0 SpecTable t dim 0: 1 heads ");
}

TEST(Rules, EvenShardsOnly) {
  const Rules rules =
      Rules{PathRules{{"head", P("tp")}, {"", P(whole, axes("fsdp", "tp"))}}}.even();
  EXPECT_EQ(
      match_error(rules, {{"head.weight", {50257, 8}}}),
      "[PathRules] head.weight by rule 0 \"head\" dim 0: 50257 does not divide over tp=4; pad "
      "it to 50260, shard another dim, or leave out even()");
  EXPECT_EQ(match_error(rules, {{"up.weight", {3, 12}}}),
            "[PathRules] up.weight by rule 1 \"\" dim 1: 12 does not divide over (fsdp=2, tp=4); "
            "pad it to 16, shard another dim, or leave out even()");
  EXPECT_EQ(match_error(rules, {{"up.weight", {3, 16}}}), "did not throw");
}

TEST(Rules, FsdpComesLast) {
  EXPECT_EQ(message([] {
              Rules{FsdpRule("fsdp"), PathRules{{"a", P()}}};
            }),
            "[Rules] PathRules: comes after FsdpRule(fsdp), which adds to what rules before it "
            "decide; put each FsdpRule last");
  EXPECT_EQ(message([] { Rules{FsdpRule("fsdp"), FsdpRule("tp")}; }), "did not throw");
}

TEST(Rules, Text) {
  const Rules rules{
      PathRules{{"q", P("tp"), {8, 1}}, {"norm", P()}},
      LogicalAxes{{"embed", "fsdp"}, {"batch", axes("dp", "fsdp")}, {"length", whole}}.with_names(
          {{"tokens", {"-", "embed"}}}),
      PolicyRule([](const Leaf&) { return std::nullopt; }),
      SpecTable("specs", {{"k.weight", {P("tp"), "row", 2}}}),
      FsdpRule("fsdp", {.min_size = 1 << 16})};
  EXPECT_EQ(rules.even().to_string(),
            "rule 0 \"q\": P(tp), 8 heads in dim 1\n"
            "rule 1 \"norm\": P()\n"
            "rule 2 LogicalAxes: embed: fsdp; batch: (dp, fsdp); length: -\n"
            "  \"tokens\": -, embed\n"
            "rule 3 PolicyRule\n"
            "rule 4 SpecTable specs\n"
            "  k.weight: P(tp), 2 heads, row\n"
            "rule 5 FsdpRule(fsdp): 65,536 elements and more\n"
            "unmatched: an error; uneven: an error\n");
  EXPECT_EQ(Rules(PathRules{}.otherwise(Unmatched::replicate)).to_string(),
            "all else: P()\nunmatched: an error\n");
}

TEST(MatchReport, OfSeveralKinds) {
  const Rules rules{
      SpecTable("specs", {{"up.weight", {P("tp"), "column"}}, {"gone.weight", {P()}}}),
      LogicalAxes{{"embed", "fsdp"}}.with_names({{"norm", {"embed"}}, {"conv", {"embed"}}}),
      PathRules{{"b", P()}, {"c", P()}}, FsdpRule("fsdp")};
  EXPECT_EQ(
      rules.match(mesh(), {{"up.weight", {64, 32}}, {"norm", {16}}, {"bias", {5}}}).to_string(),
      "path       shape     rule  spec           bytes per device  note\n"
      "---------  --------  ----  -------------  ----------------  "
      "----------------------------------\n"
      "up.weight  [64, 32]   0+4  P((tp, fsdp))             1,024  column\n"
      "norm       [16]         1  P(fsdp)                      32  uses fsdp already\n"
      "bias       [5]          2  P()                          20  not over fsdp: 5 elements "
      "of 1,024\n"
      "3 leaves, 1,076 bytes per device\n"
      "rule 3 \"c\" is unused: it fits no leaf\n"
      "rule 0 SpecTable specs: \"gone.weight\" is unused: it fits no leaf\n"
      "rule 1 LogicalAxes: \"conv\" is unused: it fits no leaf\n");
}

TEST(PolicyRule, Errors) {
  EXPECT_EQ(message([] { PolicyRule("experts", nullptr); }),
            "[PolicyRule] experts: the function is empty; give one");
  int calls = 0;
  const PolicyRule fickle([&](const Leaf&) -> std::optional<PartitionSpec> {
    if (calls++ == 0) return P();
    return std::nullopt;
  });
  EXPECT_EQ(
      match_error(fickle, {{"a", {1}}}),
      "[PolicyRule] a: the function gave a spec and then none; make it a function of the leaf "
      "alone");
  EXPECT_EQ(
      match_error(PolicyRule([](const Leaf&) { return P("dp"); }), {{"a.b", {1}}}),
      "[PolicyRule] a.b by rule 0 PolicyRule dim 0: axis \"dp\" is not an axis of mesh (fsdp=2, "
      "tp=4); use one of: fsdp, tp");
}

}  // namespace
}  // namespace meshtorch
