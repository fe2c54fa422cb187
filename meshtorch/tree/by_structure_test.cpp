// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/by_structure.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include <meshtorch/base/testing.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {
namespace {

struct BlockSpecs {
  P up, down;
};
struct ModelSpecs {
  P tokens;
  std::vector<BlockSpecs> layers;
  std::map<std::string, P> heads;
  int width = 3;
};

TEST(ByStructure, IsATableOfTheTreesPaths) {
  const ModelSpecs specs{.tokens = P("tp"),
                         .layers = {{P("tp"), P(whole, "tp")}, {P(), P("dp")}},
                         .heads = {{"lm", P("dp")}}};
  EXPECT_EQ(by_structure(specs), SpecTable("by_structure", {{"tokens", {P("tp")}},
                                                            {"layers.0.up", {P("tp")}},
                                                            {"layers.0.down", {P(whole, "tp")}},
                                                            {"layers.1.up", {P()}},
                                                            {"layers.1.down", {P("dp")}},
                                                            {"heads.lm", {P("dp")}}}));
}

TEST(ByStructure, IsARuleAmongOthers) {
  const Mesh mesh({{"dp", 2}, {"tp", 2}});
  const Rules rules{by_structure(std::map<std::string, P>{{"up", P("tp")}, {"gone", P()}}, "mine"),
                    PathRules{{"", P("dp")}}};
  const MatchReport report = rules.match(mesh, {{"up", {4}}, {"down", {4}}});
  EXPECT_EQ(report.matches[0].spec, P("tp"));
  EXPECT_EQ(report.matches[1].spec, P("dp"));
  EXPECT_THAT(report.unused_entries, testing::ElementsAre(UnusedEntry{0, "gone"}));
}

TEST(ByStructure, NamesOfDims) {
  struct MlpNames {
    std::vector<std::string> up, down;
  };
  struct ModelNames {
    std::map<std::string, MlpNames> layers;
    std::vector<std::string> head;
  };
  const auto where = LogicalAxes{{"mlp", "tp"}, {"embed", whole}}.with_names(names_by_structure(
      ModelNames{{{"a+b", {{"mlp", "embed"}, {"embed", "mlp"}}}}, {"-", "mlp"}}));
  EXPECT_EQ(where.names()[0].pattern, "^layers\\.a\\+b\\.up$");
  const Mesh mesh({{"tp", 2}});
  const MatchReport report = Rules(where)
                                 .otherwise(Unmatched::replicate)
                                 .match(mesh, {{"layers.a+b.up", {4, 4}},
                                               {"layers.a+b.down", {4, 4}},
                                               {"head", {4, 4}},
                                               {"my.head", {4, 4}},
                                               {"layers.aab.up", {4, 4}}});
  std::vector<PartitionSpec> specs;
  for (const Match& match : report.matches) specs.push_back(match.spec);
  EXPECT_THAT(specs, testing::ElementsAre(P("tp"), P(whole, "tp"), P(whole, "tp"), P(), P()));
}

TEST(ByStructure, OnePathTwice) {
  std::map<std::string, std::map<std::string, P>> specs{{"a", {{"b.c", P()}}},
                                                        {"a.b", {{"c", P()}}}};
  EXPECT_EQ(by_structure(specs).entries().size(), 1u);
  specs["a.b"]["c"] = P("tp");
  EXPECT_EQ(
      message([&] { by_structure(specs); }),
      "[by_structure] a.b.c: is there twice, with P() and P(tp); name the parts so that their "
      "paths differ");
}

}  // namespace
}  // namespace meshtorch
