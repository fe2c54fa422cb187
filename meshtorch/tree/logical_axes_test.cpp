// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/logical_axes.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/testing.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;

const LogicalAxes& where() {
  static const LogicalAxes axes_of{{"batch", axes("dp", "fsdp")},
                                   {"length", whole},
                                   {"vocab", "tp"},
                                   {"heads", "tp"},
                                   {"mlp", "tp"},
                                   {"embed", "fsdp"},
                                   {"embed", "dp"}};
  return axes_of;
}

// The examples of Flax's logical_to_mesh_axes.
TEST(LogicalAxes, ParametersAndActivations) {
  EXPECT_EQ(where().spec({"vocab", "embed"}), P("tp", "fsdp"));
  EXPECT_EQ(where().spec({"embed", "heads"}), P("fsdp", "tp"));
  EXPECT_EQ(where().spec({"batch", "length", "mlp"}), P(axes("dp", "fsdp"), whole, "tp"));
  EXPECT_EQ(where().spec({}), P());
  EXPECT_EQ(where().spec({"-", "mlp", "-"}), P(whole, "tp"));
}

TEST(LogicalAxes, TheFirstRuleWhoseAxesAreFreeWins) {
  const LogicalAxes fallback{{"batch", "dp"}, {"embed", "dp"}, {"embed", "tp"}};
  EXPECT_EQ(fallback.spec({"embed"}), P("dp"));
  EXPECT_EQ(fallback.spec({"batch", "embed"}), P("dp", "tp"));
  // The order of the rules counts, not that of the dims.
  EXPECT_EQ(fallback.spec({"embed", "batch"}), P("tp", "dp"));
  // All axes of a rule or none.
  EXPECT_EQ(LogicalAxes({{"embed", "fsdp"}, {"batch", axes("dp", "fsdp")}, {"batch", "dp"}})
                .spec({"batch", "embed"}),
            P("dp", "fsdp"));
}

TEST(LogicalAxes, OneNameTwice) {
  EXPECT_EQ(LogicalAxes({{"embed", "tp"}}).spec({"embed", "embed"}), P("tp"));
  EXPECT_EQ(LogicalAxes({{"embed", "tp"}, {"embed", "dp"}}).spec({"embed", "embed"}),
            P("tp", "dp"));
}

std::vector<std::string> matched(const LogicalAxes& logical, const std::vector<Leaf>& leaves) {
  static const Mesh mesh({{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
  std::vector<std::string> lines;
  for (const Match& match : Rules(logical).match(mesh, leaves).matches) {
    lines.push_back(text(match.leaf.path, " ", match.spec, " ", match.note));
  }
  return lines;
}

std::string match_error(const LogicalAxes& logical, const Leaf& leaf) {
  return message([&] { matched(logical, {leaf}); });
}

TEST(LogicalAxes, LeavesAreNamedByPathOrByThemselves) {
  const LogicalAxes named = where().with_names(
      {{"(q|k|v)\\.weight", {"heads", "embed"}}, {"\\.weight", {"embed", "mlp"}}, {"", {"heads"}}});
  const std::vector<Leaf> leaves{
      {"q.weight", {8, 8}},
      {"up.weight", {8, 8}},
      {"up.bias", {8}},
      {.path = "q.weight", .shape = {8, 8}, .names = {"-", "vocab"}},
      {.path = "cache", .shape = {8, 8, 8, 8}, .names = {"batch", "length", "embed"}}};
  EXPECT_THAT(
      matched(named, leaves),
      ElementsAre("q.weight P(tp, fsdp) ", "up.weight P(fsdp, tp) ", "up.bias P(tp) ",
                  "q.weight P(-, tp) ", "cache P((dp, fsdp)) embed is whole: its axes are taken"));
}

TEST(LogicalAxes, Errors) {
  EXPECT_EQ(match_error(where(), {.path = "a.q", .shape = {8, 8}, .names = {"heads", "head_dim"}}),
            "[LogicalAxes] a.q dim 1: \"head_dim\" is no logical axis; use one of: batch, length, "
            "vocab, heads, mlp, embed, or add a rule");
  EXPECT_EQ(match_error(where(), {.path = "a.q", .shape = {8}, .names = {"heads", "embed"}}),
            "[LogicalAxes] a.q: has 1 dims and 2 names: heads, embed; name each dim once");
  EXPECT_EQ(match_error(where(), {"a.q", {8}}).substr(0, 34), "[LogicalAxes] a.q: no rule fires; ");
  EXPECT_EQ(message([] { where().spec({"lenght"}); }).substr(0, 54),
            "[LogicalAxes] dim 0: \"lenght\" is no logical axis; use ");
  EXPECT_EQ(message([] {
              where().with_names({{"q", {"heads"}}, {"k", {"hed"}}});
            }).substr(0, 51),
            "[LogicalAxes] names 1 \"k\" dim 0: \"hed\" is no logica");
  EXPECT_EQ(message([] {
              where().with_names({{"(q", {}}});
            }).substr(0, 56),
            "[LogicalAxes] names 0 \"(q\": not a regular expression, un");
  EXPECT_EQ(
      message([] {
        LogicalAxes{{"embed", "tp"}, {"-", "tp"}};
      }),
      "[LogicalAxes] rule 1: \"-\" is not the name of a logical axis; name what the dim is, as "
      "\"embed\" or \"batch\"");
  EXPECT_EQ(message([] {
              LogicalAxes{{"batch", axes("dp", "dp")}};
            }),
            "[PartitionSpec] P((dp, dp)): axis \"dp\" is used twice; an axis shards one dim or is "
            "unreduced, once");
  EXPECT_EQ(
      match_error({{"embed", "ep"}}, {.path = "a.q", .shape = {8}, .names = {"embed"}}),
      "[LogicalAxes] a.q by rule 0 LogicalAxes dim 0: axis \"ep\" is not an axis of mesh (dp=2, "
      "fsdp=2, tp=2); use one of: dp, fsdp, tp");
}

}  // namespace
}  // namespace meshtorch
