// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/activation_rules.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Mesh& mesh() {
  static const Mesh mesh({{"dp", 4}, {"tp", 2}});
  return mesh;
}

const std::vector<std::string> kPaths{"tokens.weight", "norm.weight", "norm.bias", "up.weight"};

std::string match_error(const std::vector<ActivationRule>& rules) {
  return message([&] { match_activations(rules, mesh(), kPaths); });
}

TEST(ActivationRules, TheFirstRuleThatFiresWins) {
  const auto report = match_activations(
      {{"norm", P("dp", "tp")}, {"weight", std::nullopt, P("dp")}}, mesh(), kPaths);
  std::vector<std::string> lines;
  for (const auto& match : report.matches)
    lines.push_back(text(match.path, " ", match.rule, " ", match.note));
  EXPECT_THAT(lines, ElementsAre("tokens.weight 1 ", "norm.weight 0 also fits rule 1",
                                 "norm.bias 0 ", "up.weight 1 "));
  EXPECT_EQ(report.matches[1].input, P("dp", "tp"));
  EXPECT_EQ(report.matches[1].output, std::nullopt);
  EXPECT_EQ(report.matches[3].output, P("dp"));
  EXPECT_THAT(report.shadowed_rules, IsEmpty());
}

TEST(ActivationRules, ARuleOfOneOpLeavesTheOthersToLaterRules) {
  const auto report =
      match_activations({{.pattern = "tokens", .output = P("dp", "tp"), .op = "embedding"},
                         {.pattern = "tokens", .input = P("dp"), .op = "linear"},
                         {.pattern = "tokens"},
                         {.pattern = "tokens|up", .input = P(), .op = "linear"}},
                        mesh(), kPaths);
  EXPECT_EQ(report.to_string(),
            "path           op         rule  input  output     note\n"
            "-------------  ---------  ----  -----  ---------  ----------------\n"
            "tokens.weight  embedding     0         P(dp, tp)\n"
            "tokens.weight  linear        1  P(dp)             also fits rule 3\n"
            "tokens.weight  any           2\n"
            "up.weight      linear        3  P()\n");
}

TEST(ActivationRules, ShadowedRulesAreTold) {
  const auto report =
      match_activations({{"norm", P()}, {"norm\\.weight", P("dp")}}, mesh(), kPaths);
  EXPECT_THAT(report.shadowed_rules, ElementsAre(1));
  EXPECT_EQ(report.to_string(),
            "path         op   rule  input  output  note\n"
            "-----------  ---  ----  -----  ------  ----------------\n"
            "norm.weight  any     0  P()            also fits rule 1\n"
            "norm.bias    any     0  P()\n"
            "rule 1 \"norm\\.weight\" is shadowed: an earlier rule wins every path it fits\n");
}

TEST(ActivationRules, ChildrenOfSequentialModules) {
  const std::vector<std::string> modules{"blocks.0", "blocks.1", "up"};
  const auto report = match_activations({{"norm", P("dp")},
                                         {"blocks", P()},
                                         {.pattern = "up", .output = P("tp"), .op = "module"},
                                         {.pattern = "up|1", .output = P("dp"), .op = "module"},
                                         {"up", P("dp")}},
                                        mesh(), kPaths, modules);
  EXPECT_EQ(report.to_string(),
            "path         op      rule  input  output  note\n"
            "-----------  ------  ----  -----  ------  ----------------\n"
            "norm.weight  any        0  P(dp)\n"
            "norm.bias    any        0  P(dp)\n"
            "up.weight    any        4  P(dp)\n"
            "blocks.0     module     1  P()\n"
            "blocks.1     module     1  P()            also fits rule 3\n"
            "up           module     2         P(tp)   also fits rule 3\n"
            "rule 3 \"up|1\" is shadowed: an earlier rule wins every path it fits\n");
  const auto complaint = [&](const std::string& op) {
    return message([&] {
      match_activations({{.pattern = "down", .op = op}}, mesh(), kPaths, modules);
    });
  };
  EXPECT_EQ(complaint(""),
            "[constrain] rule 0 \"down\": fires for no parameter and for no child of a Sequential; "
            "correct it: paths are as tokens.weight");
  EXPECT_EQ(complaint("module"),
            "[constrain] rule 0 \"down\": fires for no child of a Sequential; correct it: paths are "
            "as blocks.0");
  EXPECT_EQ(message([] { match_activations({{.pattern = "", .op = "module"}}, mesh(), kPaths); }),
            "[constrain] rule 0 \"\": fires for no child of a Sequential; there are none");
}

TEST(ActivationRules, Errors) {
  EXPECT_EQ(
      match_error({{"norm", P()}, {"(up", P()}}),
      "[constrain] rule 1 \"(up\": not a regular expression, unbalanced ( or ), or * + ? { with "
      "nothing to repeat; escape what is meant literally, as in \"\\.weight\"");
  EXPECT_EQ(
      match_error({{"norm", P("dp", "sp")}}),
      "[constrain] rule 0 \"norm\" input dim 1: axis \"sp\" is not an axis of mesh (dp=4, tp=2); "
      "use one of: dp, tp");
  EXPECT_EQ(
      match_error({{.pattern = "norm", .output = P().unreduced("sp")}}),
      "[constrain] rule 0 \"norm\" output unreduced: axis \"sp\" is not an axis of mesh (dp=4, "
      "tp=2); use one of: dp, tp");
  EXPECT_EQ(match_error({{"down", P()}}),
            "[constrain] rule 0 \"down\": fires for no parameter; correct it: paths are as "
            "tokens.weight");
  EXPECT_EQ(
      match_error({{.pattern = "norm", .op = "softmax"}}),
      "[constrain] rule 0 \"norm\": no activation is constrained by op \"softmax\"; use one of: "
      "linear, embedding, layer_norm, rms_norm, group_norm, convolution, module");
}

}  // namespace
}  // namespace meshtorch
