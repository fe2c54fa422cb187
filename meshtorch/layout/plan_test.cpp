// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/plan.h>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

Plan plan(const Mesh& mesh, const Shape& shape, const char* from, const char* to) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  return plan_redistribution(mesh, shape, 4, resolve(mesh, P::parse(from), rank),
                             resolve(mesh, P::parse(to), rank));
}

std::string lines(const Mesh& mesh, const Shape& shape, const char* from, const char* to) {
  return to_string(mesh, plan(mesh, shape, from, to));
}

const Mesh square{{"dp", 2}, {"tp", 2}};

TEST(Plan, NothingToDo) {
  EXPECT_EQ(lines(square, {8, 6}, "P(dp, tp)", "P(dp, tp)"), "");
  EXPECT_EQ(plan(square, {8, 6}, "P(dp, tp)", "P(dp, tp)").peak_bytes, 48);
}

TEST(Plan, OneStepOfEachKind) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"P()", "P(-, tp)", "slice(tp): P() -> P(-, tp), free"},
      {"P()", "P((tp, dp))", "slice(tp, dp): P() -> P((tp, dp)), free"},
      {"P()", "P() unreduced(tp)", "mask(tp): P() -> P() unreduced(tp), free"},
      {"P(tp)", "P() unreduced(tp)", "pad(tp): P(tp) -> P() unreduced(tp), free"},
      {"P(dp, tp)", "P(dp)", "all_gather(tp): P(dp, tp) -> P(dp), 48 bytes"},
      {"P((tp, dp))", "P()", "all_gather(tp, dp): P((tp, dp)) -> P(), 144 bytes"},
      {"P(tp) unreduced(dp)", "P(tp)", "all_reduce(dp): P(tp) unreduced(dp) -> P(tp), 96 bytes"},
      {"P() unreduced(dp, tp)", "P()",
       "all_reduce(dp, tp): P() unreduced(dp, tp) -> P(), 288 bytes"},
      {"P() unreduced(dp)", "P(dp)", "reduce_scatter(dp): P() unreduced(dp) -> P(dp), 96 bytes"},
      {"P(tp) unreduced(dp)", "P((tp, dp))",
       "reduce_scatter(dp): P(tp) unreduced(dp) -> P((tp, dp)), 48 bytes"},
      {"P(dp)", "P(-, dp)", "all_to_all(dp): P(dp) -> P(-, dp), 48 bytes"},
      {"P((tp, dp))", "P(-, (tp, dp))",
       "all_to_all(tp, dp): P((tp, dp)) -> P(-, (tp, dp)), 48 bytes"},
      {"P(dp, tp)", "P(tp, dp)", "permute(dp, tp): P(dp, tp) -> P(tp, dp), 48 bytes"},
      {"P((dp, tp))", "P((tp, dp))", "permute(dp, tp): P((dp, tp)) -> P((tp, dp)), 48 bytes"},
      {"P(dp)", "P(tp)", "permute(dp): P(dp) -> P(tp), 96 bytes"},
  };
  for (const auto& [from, to, line] : cases) EXPECT_EQ(lines(square, {8, 6}, from, to), line);
}

TEST(Plan, SlicesBeforeItMoves) {
  EXPECT_EQ(lines(square, {8, 6}, "P(dp)", "P(-, tp)"),
            "slice(tp): P(dp) -> P(dp, tp), free\n"
            "all_gather(dp): P(dp, tp) -> P(-, tp), 48 bytes");
}

TEST(Plan, ReordersBeforeItPads) {
  EXPECT_EQ(lines(square, {8, 6}, "P((dp, tp))", "P(tp) unreduced(dp)"),
            "permute(dp, tp): P((dp, tp)) -> P((tp, dp)), 48 bytes\n"
            "pad(dp): P((tp, dp)) -> P(tp) unreduced(dp), free");
}

TEST(Plan, MasksLast) {
  EXPECT_EQ(lines(square, {8, 6}, "P() unreduced(dp)", "P(dp) unreduced(tp)"),
            "reduce_scatter(dp): P() unreduced(dp) -> P(dp), 96 bytes\n"
            "mask(tp): P(dp) -> P(dp) unreduced(tp), free");
}

TEST(Plan, TheExampleOfTheHeader) {
  EXPECT_EQ(lines(square, {8, 6}, "P(tp) unreduced(dp)", "P(-, tp)"),
            "all_to_all(tp): P(tp) unreduced(dp) -> P(-, tp) unreduced(dp), 48 bytes\n"
            "all_reduce(dp): P(-, tp) unreduced(dp) -> P(-, tp), 96 bytes");
}

TEST(Plan, ZeroIsOneReduceScatterAndOneAllGather) {
  const Mesh mesh{{"dp", 4}, {"tp", 2}};
  EXPECT_EQ(lines(mesh, {64, 32}, "P(-, tp) unreduced(dp)", "P(dp, tp)"),
            "reduce_scatter(dp): P(-, tp) unreduced(dp) -> P(dp, tp), 3072 bytes");
  EXPECT_EQ(lines(mesh, {64, 32}, "P(dp, tp)", "P(-, tp)"),
            "all_gather(dp): P(dp, tp) -> P(-, tp), 3072 bytes");
}

TEST(Plan, AxesThatDoNotChangeTakeNoPart) {
  EXPECT_EQ(lines({{"a", 8}, {"b", 8}}, {64}, "P() unreduced(a)", "P()"),
            "all_reduce(a): P() unreduced(a) -> P(), 448 bytes");
  EXPECT_EQ(lines(square, {8}, "P(dp) unreduced(tp)", "P() unreduced(tp)"),
            "all_gather(dp): P(dp) unreduced(tp) -> P() unreduced(tp), 16 bytes");
}

TEST(Plan, AxesOfSizeOneAreFree) {
  const Mesh mesh{{"one", 1}, {"tp", 2}};
  EXPECT_EQ(lines(mesh, {8, 6}, "P(one) unreduced(tp)", "P(one) unreduced(tp)"), "");
  EXPECT_EQ(lines(mesh, {8, 6}, "P(one, tp)", "P(-, tp)"),
            "relabel(one): P(one, tp) -> P(-, tp), free");
  EXPECT_EQ(lines(mesh, {8, 6}, "P((one, tp))", "P((tp, one))"),
            "relabel(one): P((one, tp)) -> P((tp, one)), free");
  EXPECT_EQ(lines(mesh, {8, 6}, "P() unreduced(one)", "P(-, one)"),
            "relabel(one): P() unreduced(one) -> P(-, one), free");
  EXPECT_EQ(lines(mesh, {8, 6}, "P((one, tp))", "P(one)"),
            "all_gather(tp): P((one, tp)) -> P(one), 96 bytes");
  EXPECT_EQ(lines(mesh, {8, 6}, "P(one, tp)", "P(tp, one)"),
            "relabel(one): P(one, tp) -> P(-, tp), free\n"
            "all_to_all(tp): P(-, tp) -> P(tp), 48 bytes\n"
            "relabel(one): P(tp) -> P(tp, one), free");
}

// Closed formulas on one axis of n, for B bytes of the whole tensor.
TEST(Plan, BytesOnOneAxis) {
  for (const std::int64_t n : {2, 3, 4, 8}) {
    const Mesh mesh{{"a", n}};
    const Shape shape{24, 48};
    const std::int64_t whole = 24 * 48 * 4;
    EXPECT_EQ(plan(mesh, shape, "P(a)", "P()").bytes, whole * (n - 1) / n);
    EXPECT_EQ(plan(mesh, shape, "P() unreduced(a)", "P(a)").bytes, whole * (n - 1) / n);
    EXPECT_EQ(plan(mesh, shape, "P() unreduced(a)", "P()").bytes, 2 * whole * (n - 1) / n);
    EXPECT_EQ(plan(mesh, shape, "P(a)", "P(-, a)").bytes, whole / n * (n - 1) / n);
    for (const char* free : {"P(a)", "P(-, a)", "P() unreduced(a)", "P()"}) {
      EXPECT_EQ(plan(mesh, shape, "P()", free).bytes, 0);
    }
    EXPECT_EQ(plan(mesh, shape, "P(a)", "P() unreduced(a)").bytes, 0);
  }
}

TEST(Plan, UnevenBytesAreThoseOfTheBusiestDevice) {
  const Mesh mesh{{"a", 2}};
  EXPECT_EQ(plan(mesh, {5}, "P(a)", "P()").bytes, 3 * 4);
  EXPECT_EQ(plan(mesh, {5}, "P() unreduced(a)", "P(a)").bytes, 3 * 4);
  EXPECT_EQ(plan(mesh, {5}, "P() unreduced(a)", "P()").bytes, 5 * 4);
  EXPECT_EQ(plan(mesh, {5, 7}, "P(a)", "P(-, a)").bytes, 9 * 4);
  EXPECT_EQ(plan(mesh, {1}, "P(a)", "P()").bytes, 1 * 4);
  EXPECT_EQ(plan(mesh, {0}, "P(a)", "P()").bytes, 0);
}

TEST(Plan, IsDeterministic) {
  const Mesh mesh{{"a", 2}, {"b", 2}, {"c", 2}};
  const std::string first = lines(mesh, {8, 8, 8}, "P((a, b)) unreduced(c)", "P(c, b, a)");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lines(mesh, {8, 8, 8}, "P((a, b)) unreduced(c)", "P(c, b, a)"), first);
  }
}

TEST(Plan, EightAxesEndInTime) {
  const Mesh mesh{{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}, {"e", 2}, {"f", 2}, {"g", 2}, {"h", 2}};
  const Plan found = plan(mesh, {64, 64, 64, 64}, "P((a, b), (c, d), e) unreduced(f, g, h)",
                          "P((h, g), f, (a, b), (e, d, c))");
  EXPECT_EQ(found.bytes, 2097152);
  EXPECT_EQ(found.steps.size(), 3u);
}

TEST(Plan, StepKindsHaveNamesAndCollectivesAreMarked) {
  EXPECT_EQ(name(StepKind::relabel), "relabel");
  for (const StepKind free : {StepKind::slice, StepKind::mask, StepKind::pad, StepKind::relabel}) {
    EXPECT_FALSE(is_collective(free)) << name(free);
  }
  for (const StepKind kind : {StepKind::all_gather, StepKind::all_reduce, StepKind::reduce_scatter,
                              StepKind::all_to_all, StepKind::permute}) {
    EXPECT_TRUE(is_collective(kind)) << name(kind);
  }
}

TEST(Transfers, SourceIsTheNearestReplica) {
  const Layout from = resolve(square, P("tp"), 1), to = resolve(square, P("dp"), 1);
  EXPECT_EQ(transfers(square, {4}, from, to),
            (std::vector<Transfer>{{0, 1, {{0, 2}}}, {3, 2, {{2, 4}}}}));
}

TEST(Transfers, ListNothingThatIsHeldOrEmpty) {
  const Layout from = resolve(square, P(axes("dp", "tp")), 1), to = resolve(square, P(), 1);
  EXPECT_TRUE(transfers(square, {0}, from, to).empty());
  EXPECT_TRUE(transfers(square, {4}, to, from).empty());
  EXPECT_TRUE(transfers(square, {}, Layout::replicated(0), Layout::replicated(0)).empty());
  EXPECT_EQ(transfers(square, {1}, from, to),
            (std::vector<Transfer>{{0, 1, {{0, 1}}}, {0, 2, {{0, 1}}}, {0, 3, {{0, 1}}}}));
}

TEST(TransfersErrors, KeepUnreducedAxes) {
  const Layout from = resolve(square, P("dp"), 1), to = resolve(square, P().unreduced("dp"), 1);
  EXPECT_EQ(message([&] { transfers(square, {4}, from, to); }),
            "[transfers] P(dp) -> P() unreduced(dp): a permute keeps the unreduced axes; reduce, "
            "mask or pad in a step of its own");
}

TEST(PlanErrors, RanksAgree) {
  const Layout one = Layout::replicated(1), two = Layout::replicated(2);
  EXPECT_EQ(message([&] { plan_redistribution(square, {4, 4}, 4, one, two); }),
            "[plan_redistribution] from: the layout has 1 dims, the shape 2; resolve the spec for "
            "this rank");
  EXPECT_EQ(message([&] { plan_redistribution(square, {4}, 4, one, two); }),
            "[plan_redistribution] to: the layout has 2 dims, the shape 1; resolve the spec for "
            "this rank");
}

}  // namespace
}  // namespace meshtorch
