// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/partition_spec.h>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>
#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {
namespace {

TEST(PartitionSpec, HoldsDimsAndUnreducedAxes) {
  const PartitionSpec spec = P("dp", whole, axes("fsdp", "tp")).unreduced("pp", "ep");
  EXPECT_EQ(spec.dims(), (std::vector<DimSpec>{{"dp"}, {}, {"fsdp", "tp"}}));
  EXPECT_EQ(spec.unreduced_axes(), (std::vector<std::string>{"ep", "pp"}));
  EXPECT_EQ(spec.reduced(), P("dp", whole, axes("fsdp", "tp")));
}

TEST(PartitionSpec, DropsTrailingWholeDims) {
  EXPECT_EQ(P("dp", whole, whole), P("dp"));
  EXPECT_EQ(P(whole), P());
  EXPECT_NE(P(whole, "dp"), P("dp"));
  EXPECT_EQ(P(axes("dp")), P("dp"));
}

TEST(PartitionSpec, TheOrderOfAxesCountsOnADimAndNotInUnreduced) {
  EXPECT_NE(P(axes("a", "b")), P(axes("b", "a")));
  EXPECT_EQ(P().unreduced("a", "b"), P().unreduced("b").unreduced("a"));
}

TEST(PartitionSpec, PrintsAndParses) {
  const std::pair<PartitionSpec, std::string> cases[] = {
      {P(), "P()"},
      {P("dp"), "P(dp)"},
      {P("dp", axes("fsdp", "tp"), whole, "pp").unreduced("ep"),
       "P(dp, (fsdp, tp), -, pp) unreduced(ep)"},
      {P(whole, "tp").unreduced("a", "b"), "P(-, tp) unreduced(a, b)"},
      {P().unreduced("dp"), "P() unreduced(dp)"},
      {P("unreduced", "P"), "P(unreduced, P)"},
  };
  for (const auto& [spec, form] : cases) {
    EXPECT_EQ(spec.to_string(), form);
    EXPECT_EQ(text(spec), form);
    EXPECT_EQ(P::parse(form), spec) << form;
  }
}

TEST(PartitionSpec, ParsesWhatItWouldNotPrint) {
  EXPECT_EQ(P::parse(" P ( dp,(a ,b),-,- )unreduced ( y,x ) "),
            P("dp", axes("a", "b")).unreduced("x", "y"));
  EXPECT_EQ(P::parse("P((dp), -)"), P("dp"));
}

TEST(PartitionSpecErrors, AnAxisIsUsedOnce) {
  const std::string remedy = "; an axis shards one dim or is unreduced, once";
  EXPECT_EQ(message([] { P("dp", "dp"); }),
            "[PartitionSpec] P(dp, dp): axis \"dp\" is used twice" + remedy);
  EXPECT_EQ(message([] { P(axes("dp", "dp")); }),
            "[PartitionSpec] P((dp, dp)): axis \"dp\" is used twice" + remedy);
  EXPECT_EQ(message([] { P("dp").unreduced("dp"); }),
            "[PartitionSpec] P(dp) unreduced(dp): axis \"dp\" is used twice" + remedy);
  EXPECT_EQ(message([] { P().unreduced("dp").unreduced("dp"); }),
            "[PartitionSpec] P() unreduced(dp, dp): axis \"dp\" is used twice" + remedy);
  EXPECT_EQ(message([] { P::from({{"tp"}, {}, {"tp"}}); }),
            "[PartitionSpec] P(tp, -, tp): axis \"tp\" is used twice" + remedy);
  EXPECT_EQ(message([] { P::parse("P(dp, (fsdp, tp), -) unreduced(dp)"); }),
            "[PartitionSpec] P(dp, (fsdp, tp)) unreduced(dp): axis \"dp\" is used twice" + remedy);
}

TEST(PartitionSpecErrors, NamesAreWellFormed) {
  const std::string remedy =
      " is an ill-formed axis name; names are [A-Za-z_][A-Za-z0-9_]*; several axes on one dim are "
      "axes(\"a\", \"b\")";
  EXPECT_EQ(message([] { P("dp,tp"); }), "[PartitionSpec] P(dp,tp): \"dp,tp\"" + remedy);
  EXPECT_EQ(message([] { P(""); }), "[PartitionSpec] P(): \"\"" + remedy);
  EXPECT_EQ(message([] { P("a").unreduced("2"); }),
            "[PartitionSpec] P(a) unreduced(2): \"2\"" + remedy);
}

TEST(PartitionSpecErrors, Parse) {
  const auto parse = [](const char* form) { return message([&] { P::parse(form); }); };
  const auto expected = [](const char* form, const char* what) {
    return text("[PartitionSpec::parse] \"", form, "\": expected ", what,
                "; write it as \"P(dp, (fsdp, tp), -, pp) unreduced(ep)\"");
  };
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"P\" at column 1, got the end"},
      {"dp", "\"P\" at column 1, got \"d\""},
      {"P", "\"(\" at column 2, got the end"},
      {"P(dp", "\")\" at column 5, got the end"},
      {"P(dp,)", "an axis name at column 6, got \")\""},
      {"P(())", "an axis name at column 4, got \")\""},
      {"P((a, b)", "\")\" at column 9, got the end"},
      {"P(dp) unreduced", "\"(\" at column 16, got the end"},
      {"P(dp) unreduced()", "an axis name at column 17, got \")\""},
      {"P(dp) reduced(tp)", "the end at column 7, got \"r\""},
      {"P(dp)) ", "the end at column 6, got \")\""},
  };
  for (const auto& [form, what] : cases) EXPECT_EQ(parse(form), expected(form, what));
}

TEST(NamedSharding, PrintsSpecAndMesh) {
  const Mesh mesh{{"dp", 4}, {"tp", 2}};
  const NamedSharding sharding{mesh, P("dp", "tp")};
  EXPECT_EQ(sharding.to_string(), "P(dp, tp) on (dp=4, tp=2)");
  EXPECT_EQ(text(sharding), "P(dp, tp) on (dp=4, tp=2)");
  EXPECT_EQ(sharding, (NamedSharding{Mesh{{"dp", 4}, {"tp", 2}}, P("dp", "tp")}));
  EXPECT_NE(sharding, (NamedSharding{mesh, P("dp")}));
}

}  // namespace
}  // namespace meshtorch
