// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/rule/propagate.h>

#include <algorithm>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

struct In {
  Shape shape;
  std::string spec;
};

const Mesh kMesh{{"dp", 4}, {"tp", 2}};

std::string print(const Mesh& mesh, const std::vector<Layout>& layouts) {
  std::vector<std::string> specs;
  for (const auto& layout : layouts) specs.push_back(to_string(mesh, layout));
  return join(specs, ", ");
}

// "operands -> outputs" for operands on a mesh, or "none".
std::string on(const Mesh& mesh, const char* text, const std::vector<In>& inputs,
               std::optional<int> pinned = std::nullopt, const std::vector<Shape>& outputs = {}) {
  std::vector<std::optional<Shape>> shapes;
  std::vector<std::optional<Operand>> operands;
  for (const auto& in : inputs) {
    shapes.emplace_back(in.shape);
    operands.push_back(Operand{in.shape, resolve(mesh, PartitionSpec::parse(in.spec),
                                                 static_cast<std::int64_t>(in.shape.size()))});
  }
  const OpRule rule = parse_rule("aten::op", RuleText::runtime(text), shapes, outputs);
  const auto placement = propagate(rule, mesh, operands, {.pinned = pinned});
  if (!placement) return "none";
  return print(mesh, placement->operands) + " -> " + print(mesh, placement->outputs);
}

std::string of(const char* text, const std::vector<In>& inputs,
               std::optional<int> pinned = std::nullopt, const std::vector<Shape>& outputs = {}) {
  return on(kMesh, text, inputs, pinned, outputs);
}

// The backward of a linear layer: the bias gradient does not run over c, the weight's contracts n.
TEST(Propagate, AnOutputApartFromAFactorIsComplete) {
  const char* backward = "no,nc,oc->nc,oc,o/c; each(0)";
  EXPECT_EQ(of(backward, {{{64, 8}, "P()"}, {{64, 16}, "P(-, tp)"}, {{8, 16}, "P(-, tp)"}}),
            "P(), P(-, tp), P(-, tp) -> P(-, tp), P(-, tp), P()");
  EXPECT_EQ(of(backward, {{{64, 8}, "P(dp)"}, {{64, 16}, "P(dp, tp)"}, {{8, 16}, "P(-, tp)"}}),
            "P(dp), P(dp, tp), P(-, tp) -> P(dp, tp), P(-, tp) unreduced(dp), P() unreduced(dp)");
  // Unless some device would have no part of c: it could not make the bias gradient.
  EXPECT_EQ(of(backward, {{{64, 8}, "P()"}, {{64, 3}, "P(-, tp)"}, {{8, 3}, "P(-, tp)"}}),
            "P(), P(-, tp), P(-, tp) -> P(-, tp), P(-, tp), P()");
  EXPECT_EQ(of(backward, {{{64, 8}, "P()"}, {{64, 1}, "P(-, tp)"}, {{8, 1}, "P(-, tp)"}}),
            "P(tp), P(tp), P() -> P(tp), P() unreduced(tp), P() unreduced(tp)");
}

TEST(Propagate, Matmul) {
  const char* mm = "ik,kj->ij; each";
  EXPECT_EQ(of(mm, {{{64, 32}, "P(dp)"}, {{32, 16}, "P()"}}), "P(dp), P() -> P(dp)");
  EXPECT_EQ(of(mm, {{{64, 32}, "P(dp)"}, {{32, 16}, "P(-, tp)"}}), "P(dp), P(-, tp) -> P(dp, tp)");
  EXPECT_EQ(of(mm, {{{64, 32}, "P(dp, tp)"}, {{32, 16}, "P(tp)"}}),
            "P(dp, tp), P(tp) -> P(dp) unreduced(tp)");
  // The other operand is sliced for free.
  EXPECT_EQ(of(mm, {{{64, 32}, "P(-, tp)"}, {{32, 16}, "P()"}}),
            "P(-, tp), P(tp) -> P() unreduced(tp)");
  // The gradient of a weight: however small the batch, it comes out unreduced.
  EXPECT_EQ(of(mm, {{{512, 8}, "P(-, dp)"}, {{8, 512}, "P(dp)"}}),
            "P(-, dp), P(dp) -> P() unreduced(dp)");
  // Gather the smaller one.
  EXPECT_EQ(of(mm, {{{4096, 32}, "P(tp)"}, {{32, 16}, "P(-, tp)"}}), "P(tp), P() -> P(tp)");
  EXPECT_EQ(of(mm, {{{8, 32}, "P(tp)"}, {{32, 4096}, "P(-, tp)"}}), "P(), P(-, tp) -> P(-, tp)");
  // An unreduced operand flows through where the result is no larger.
  EXPECT_EQ(of(mm, {{{64, 32}, "P() unreduced(dp)"}, {{32, 16}, "P()"}}),
            "P() unreduced(dp), P() -> P() unreduced(dp)");
  EXPECT_EQ(of(mm, {{{64, 16}, "P() unreduced(dp)"}, {{16, 32}, "P()"}}), "P(), P() -> P()");
}

TEST(Propagate, ColumnParallelBackwardContractsTheOutputFeatures) {
  EXPECT_EQ(of("ik,kj->ij; each", {{{2048, 256}, "P(dp, tp)"}, {{256, 1024}, "P(tp)"}}),
            "P(dp, tp), P(tp) -> P(dp) unreduced(tp)");
}

TEST(Propagate, AddmmCountsTheBiasOnce) {
  const char* addmm = "j,ik,kj->ij; joint(0) each(1,2)";
  EXPECT_EQ(of(addmm, {{{16}, "P()"}, {{64, 32}, "P(dp, tp)"}, {{32, 16}, "P(tp)"}}),
            "P() unreduced(tp), P(dp, tp), P(tp) -> P(dp) unreduced(tp)");
  EXPECT_EQ(of(addmm, {{{16}, "P(tp)"}, {{64, 32}, "P(dp)"}, {{32, 16}, "P(-, tp)"}}),
            "P(tp), P(dp), P(-, tp) -> P(dp, tp)");
}

TEST(Propagate, Pointwise) {
  const char* add = "...,...->...; joint";
  const char* mul = "...,...->...; each";
  EXPECT_EQ(of(add, {{{8, 4}, "P(dp)"}, {{4}, "P()"}}), "P(dp), P() -> P(dp)");
  EXPECT_EQ(of(add, {{{8, 4}, "P(dp)"}, {{1, 4}, "P(-, tp)"}}), "P(dp, tp), P(-, tp) -> P(dp, tp)");
  EXPECT_EQ(of(add, {{{8, 4}, "P() unreduced(tp)"}, {{8, 4}, "P(tp)"}}), "P(tp), P(tp) -> P(tp)");
  EXPECT_EQ(of("...->...", {{{8, 4}, "P(dp) unreduced(tp)"}}), "P(dp) -> P(dp)");
  EXPECT_EQ(of("...->...; each", {{{8, 4}, "P(dp) unreduced(tp)"}}),
            "P(dp) unreduced(tp) -> P(dp) unreduced(tp)");
  EXPECT_EQ(of(mul, {{{8, 4}, "P() unreduced(dp)"}, {{}, "P()"}}),
            "P() unreduced(dp), P() -> P() unreduced(dp)");
  EXPECT_EQ(of(mul, {{{8, 4}, "P() unreduced(dp)"}, {{8, 4}, "P() unreduced(dp)"}}),
            "P() unreduced(dp), P() -> P() unreduced(dp)");
  EXPECT_EQ(of("...,...,...->...; joint(1,2)",
               {{{4}, "P()"}, {{4}, "P() unreduced(tp)"}, {{4}, "P() unreduced(tp)"}}),
            "P(), P() unreduced(tp), P() unreduced(tp) -> P() unreduced(tp)");
}

TEST(Propagate, UnevenSizes) {
  EXPECT_EQ(of("...,...->...", {{{5, 3}, "P(dp, tp)"}, {{3}, "P()"}}),
            "P(dp, tp), P(tp) -> P(dp, tp)");
}

TEST(Propagate, Residual) {
  const char* add = "...,...->...; joint";
  EXPECT_EQ(of(add, {{{8, 4}, "P()"}, {{8, 4}, "P() unreduced(tp)"}}), "P(), P() -> P()");
  EXPECT_EQ(of(add, {{{8, 4}, "P() unreduced(tp)"}, {{8, 4}, "P() unreduced(tp)"}}),
            "P() unreduced(tp), P() unreduced(tp) -> P() unreduced(tp)");
}

TEST(Propagate, LayerNormBackwardReducesFirst) {
  const char* text = "ab*,ab*,ab1,ab1,*,*->ab*,*,*; each(0)";
  const std::vector<In> rest = {{{8, 4, 32}, "P(dp)"},
                                {{8, 4, 1}, "P(dp)"},
                                {{8, 4, 1}, "P(dp)"},
                                {{32}, "P()"},
                                {{32}, "P()"}};
  std::vector<In> inputs = {{{8, 4, 32}, "P(dp) unreduced(tp)"}};
  inputs.insert(inputs.end(), rest.begin(), rest.end());
  EXPECT_EQ(of(text, inputs, {}, {{8, 4, 32}, {32}, {32}}),
            "P(dp), P(dp), P(dp), P(dp), P(), P() -> "
            "P(dp), P() unreduced(dp), P() unreduced(dp)");
}

TEST(Propagate, EmbeddingContractsTheVocabulary) {
  const char* text = "vk,...->...k; each(0)";
  EXPECT_EQ(of(text, {{{50257, 64}, "P(tp)"}, {{8, 16}, "P(dp)"}}),
            "P(tp), P(dp) -> P(dp) unreduced(tp)");
  EXPECT_EQ(of(text, {{{50257, 64}, "P(-, tp)"}, {{8, 16}, "P(dp)"}}),
            "P(-, tp), P(dp) -> P(dp, -, tp)");
  // A factor that only the result has is never sharded.
  EXPECT_EQ(
      of("...k,...->vk; each(0)", {{{8, 16, 64}, "P(dp)"}, {{8, 16}, "P(dp)"}}, {}, {{50257, 64}}),
      "P(dp), P(dp) -> P() unreduced(dp)");
}

TEST(Propagate, Sums) {
  EXPECT_EQ(of("ab->; each", {{{8, 4}, "P(dp, tp)"}}), "P(dp, tp) -> P() unreduced(dp, tp)");
  EXPECT_EQ(of("ab->1b; each", {{{8, 4}, "P(dp, tp)"}}), "P(dp, tp) -> P(-, tp) unreduced(dp)");
  EXPECT_EQ(of("ab->a; each", {{{8, 4}, "P(dp) unreduced(tp)"}}),
            "P(dp) unreduced(tp) -> P(dp) unreduced(tp)");
  EXPECT_EQ(of("nc,n,c->,", {{{8, 4}, "P(dp)"}, {{8}, "P(dp)"}, {{4}, "P()"}}),
            "P(dp), P(dp), P() -> P() unreduced(dp), P() unreduced(dp)");
}

TEST(Propagate, WholeDims) {
  // Softmax over a sharded dim: the axis goes to another dim, which moves least.
  EXPECT_EQ(of("...*->...*", {{{8, 4}, "P(-, tp)"}}), "P(tp) -> P(tp)");
  EXPECT_EQ(of("*->*", {{{8}, "P(tp)"}}), "P() -> P()");
  EXPECT_EQ(of("**->", {{{8, 4}, "P(dp, tp)"}}), "P() -> P()");
}

TEST(Propagate, ReducedOutputs) {
  EXPECT_EQ(of("nc*,c->nc*,c; reduced(1)", {{{8, 4, 3}, "P(dp)"}, {{4}, "P()"}}),
            "P(dp), P() -> P(dp), P()");
  EXPECT_EQ(of("ab->**; each reduced", {{{8, 4}, "P(dp) unreduced(tp)"}}),
            "P(dp) unreduced(tp) -> P()");
}

TEST(Propagate, MergedDims) {
  const char* merge = "bsh->(bs)h; each";
  EXPECT_EQ(of(merge, {{{8, 6, 4}, "P(dp, -, tp)"}}), "P(dp, -, tp) -> P(dp, tp)");
  // The minor dim carries a shard where the major one is cut to single elements.
  EXPECT_EQ(of(merge, {{{4, 6, 4}, "P(dp, tp)"}}), "P(dp, tp) -> P((dp, tp))");
  EXPECT_EQ(of(merge, {{{4, 8, 4}, "P((dp, tp))"}}), "P(dp, tp) -> P((dp, tp))");
  EXPECT_EQ(of(merge, {{{8, 6, 4}, "P((dp, tp))"}}), "P((dp, tp)) -> P((dp, tp))");
  EXPECT_EQ(of(merge, {{{6, 8, 4}, "P(dp)"}}), "P(-, -, dp) -> P(-, dp)");
  EXPECT_EQ(of(merge, {{{6, 8, 3}, "P(-, dp)"}}), "P(-, -, dp) -> P(-, dp)");
}

TEST(Propagate, SplitDims) {
  const char* split = "(hd)->hd; each";
  EXPECT_EQ(of(split, {{{64}, "P(tp)"}}, {}, {{8, 8}}), "P(tp) -> P(tp)");
  EXPECT_EQ(of(split, {{{64}, "P((dp, tp))"}}, {}, {{8, 8}}), "P((dp, tp)) -> P((dp, tp))");
  EXPECT_EQ(of(split, {{{64}, "P((dp, tp))"}}, {}, {{4, 16}}), "P((dp, tp)) -> P(dp, tp)");
  EXPECT_EQ(of(split, {{{15}, "P(dp)"}}, {}, {{3, 5}}), "P() -> P()");
}

TEST(Propagate, TwoAxesOnOneDim) {
  const char* add = "...,...->...; joint";
  EXPECT_EQ(of(add, {{{64}, "P((tp, dp))"}, {{64}, "P((dp, tp))"}}),
            "P((tp, dp)), P((tp, dp)) -> P((tp, dp))");
  EXPECT_EQ(of(add, {{{64}, "P(tp)"}, {{64}, "P(dp)"}}), "P((tp, dp)), P((tp, dp)) -> P((tp, dp))");
  EXPECT_EQ(of("ik,kj->ij; each", {{{8, 64}, "P(-, (dp, tp))"}, {{64, 8}, "P((dp, tp))"}}),
            "P(-, (dp, tp)), P((dp, tp)) -> P() unreduced(dp, tp)");
}

TEST(Propagate, Pinned) {
  const char* add = "...,...->...; joint";
  EXPECT_EQ(of(add, {{{8}, "P() unreduced(dp)"}, {{8}, "P()"}}, 0),
            "P() unreduced(dp), P() unreduced(dp) -> P() unreduced(dp)");
  EXPECT_EQ(of(add, {{{8}, "P()"}, {{8}, "P() unreduced(dp)"}}, 0), "P(), P() -> P()");
  EXPECT_EQ(of(add, {{{8}, "P()"}, {{8}, "P(tp)"}}, 0), "P(), P() -> P()");
  EXPECT_EQ(of(add, {{{8, 4}, "P(tp)"}, {{4}, "P(tp)"}}, 0), "P(tp), P() -> P(tp)");
  EXPECT_EQ(of(add, {{{64}, "P((tp, dp))"}, {{64}, "P((dp, tp))"}}, 1),
            "P((dp, tp)), P((dp, tp)) -> P((dp, tp))");
  EXPECT_EQ(of("...->...", {{{8}, "P() unreduced(dp)"}}, 0), "none");
  EXPECT_EQ(of("...*->...*", {{{8}, "P(tp)"}}, 0), "none");
  EXPECT_EQ(of("j,ik,kj->ij; joint(0) each(1,2)",
               {{{16}, "P()"}, {{64, 32}, "P(-, tp)"}, {{32, 16}, "P(tp)"}}, 0),
            "none");
}

TEST(Propagate, AxesOfSizeOneStay) {
  const Mesh one{{"dp", 1}, {"tp", 1}};
  EXPECT_EQ(on(one, "ik,kj->ij; each", {{{4, 4}, "P(dp, tp)"}, {{4, 4}, "P(tp)"}}),
            "P(dp, tp), P(tp) -> P(dp) unreduced(tp)");
  EXPECT_EQ(on(one, "...,...->...; joint", {{{4, 4}, "P(-, dp)"}, {{4, 4}, "P(-, dp)"}}),
            "P(-, dp), P(-, dp) -> P(-, dp)");
  EXPECT_EQ(on(one, "bsh->(bs)h; each", {{{8, 6, 4}, "P(dp)"}}), "P(dp) -> P(dp)");
}

TEST(Propagate, AbsentOperandsAndFactories) {
  const OpRule rule = parse_rule("aten::op", "ab,b->ab", {Shape{4, 4}, std::nullopt});
  const auto placement =
      propagate(rule, kMesh, {Operand{{4, 4}, resolve(kMesh, P("dp"), 2)}, std::nullopt});
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->operands[1], Layout());
  EXPECT_EQ(print(kMesh, placement->outputs), "P(dp)");
  const auto fresh = propagate(parse_rule("aten::zeros", "->ab", {}, {{4, 4}}), kMesh, {});
  ASSERT_TRUE(fresh);
  EXPECT_EQ(print(kMesh, fresh->outputs), "P()");
}

TEST(Propagate, CountsMovedBytes) {
  const OpRule rule = parse_rule("aten::op", "...*->...", {Shape{8, 4}});
  const auto moved = [&](const char* spec) {
    const Layout layout = resolve(kMesh, PartitionSpec::parse(spec), 2);
    return propagate(rule, kMesh, {Operand{{8, 4}, layout, 4}})->bytes;
  };
  EXPECT_EQ(moved("P(dp)"), 0);
  EXPECT_EQ(moved("P(-, tp)"), 32);               // all-to-all: half of half of 128 bytes
  EXPECT_EQ(moved("P(dp, tp)"), 8);               // of its quarter
  EXPECT_EQ(moved("P() unreduced(dp)"), 2 * 96);  // all-reduce
}

// Every way to use the only axis of a mesh, written out again from the header's words: the chosen
// one is as cheap as any.
struct Choice {
  std::vector<int> operands;  // dim, -1 whole, -2 unreduced
  std::vector<int> outputs;
  bool factor;
};

double price(const OpRule& rule, const std::vector<In>& inputs, const Mesh& mesh, int n,
             const Choice& choice) {
  double moved = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Layout now = resolve(mesh, PartitionSpec::parse(inputs[i].spec),
                               static_cast<std::int64_t>(inputs[i].shape.size()));
    const int from = now.unreduced.contains(0) ? -2 : now.dim_of(0);
    const int to = choice.operands[i];
    double bytes = 4;
    for (auto size : inputs[i].shape) bytes *= static_cast<double>(size);
    if (from >= 0 && to == -2 && !rule.joint[i]) return 1e30;
    if (from == to || from == -1 || to == -2) continue;
    if (from == -2) moved += (to == -1 ? 2.0 : 1.0) * (n - 1) / n * bytes;
    if (from >= 0) moved += (to == -1 ? 1.0 : 1.0 / n) * (n - 1) / n * bytes;
  }
  if (choice.factor && moved == 0) return 0;
  for (std::size_t o = 0; o < rule.outputs.size(); ++o) {
    double bytes = 4;
    for (const auto& dim : rule.outputs[o]) {
      for (int f : dim) bytes *= static_cast<double>(rule.factors[f].size);
    }
    if (choice.outputs[o] == -2) moved += 2.0 * (n - 1) / n * bytes;
  }
  return moved;
}

int find_dim(const OperandFactors& operand, int f) {
  for (std::size_t d = 0; d < operand.size(); ++d) {
    for (int g : operand[d]) {
      if (g == f) return static_cast<int>(d);
    }
  }
  return -1;
}

std::vector<Choice> choices(const OpRule& rule, bool any_sharded, bool any_unreduced) {
  const std::size_t count = rule.operands.size();
  std::vector<Choice> all = {{std::vector<int>(count, -1), std::vector<int>(1, -1), false}};
  for (int f = 0; any_sharded && f < static_cast<int>(rule.factors.size()); ++f) {
    Choice choice{{}, {find_dim(rule.outputs[0], f)}, true};
    const bool contracts = choice.outputs[0] < 0;
    if (contracts) choice.outputs[0] = -2;
    for (std::size_t i = 0; i < count; ++i) {
      const int dim = find_dim(*rule.operands[i], f);
      choice.operands.push_back(dim < 0 && contracts && rule.joint[i] ? -2 : dim);
    }
    if (!rule.factors[f].whole) all.push_back(choice);
  }
  for (std::size_t j = 0; any_unreduced && j < count; ++j) {
    Choice choice{std::vector<int>(count, -1), {-2}, false};
    if (rule.each[j]) choice.operands[j] = -2;
    if (rule.joint[0]) choice.operands.assign(count, -2);
    if (rule.each[j] || rule.joint[j]) all.push_back(choice);
  }
  return all;
}

void expect_cheapest(const char* text, std::vector<In> inputs) {
  for (int n : {1, 2, 3, 4}) {
    const Mesh mesh({{"x", n}});
    std::vector<std::vector<std::string>> specs;
    for (const auto& in : inputs) {
      specs.push_back({"P()", "P() unreduced(x)", "P(x)"});
      if (in.shape.size() > 1) specs.back().push_back("P(-, x)");
    }
    std::size_t total = 1;
    for (const auto& list : specs) total *= list.size();
    for (std::size_t code = 0; code < total; ++code) {
      std::vector<std::optional<Shape>> shapes;
      std::vector<std::optional<Operand>> operands;
      bool any_sharded = false;
      bool any_unreduced = false;
      std::size_t rest = code;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        In& in = inputs[i];
        in.spec = specs[i][rest % specs[i].size()];
        rest /= specs[i].size();
        const Layout layout = resolve(mesh, PartitionSpec::parse(in.spec),
                                      static_cast<std::int64_t>(in.shape.size()));
        any_sharded |= layout.dim_of(0) >= 0;
        any_unreduced |= !layout.unreduced.empty();
        shapes.emplace_back(in.shape);
        operands.push_back(Operand{in.shape, layout});
      }
      const OpRule rule = parse_rule("aten::op", RuleText::runtime(text), shapes);
      const auto placement = propagate(rule, mesh, operands);
      ASSERT_TRUE(placement);
      Choice taken{{}, {}, false};
      for (const auto& layout : placement->operands) {
        taken.operands.push_back(layout.unreduced.contains(0) ? -2 : layout.dim_of(0));
        taken.factor |= taken.operands.back() >= 0;
      }
      const Layout& out = placement->outputs[0];
      taken.outputs.push_back(out.unreduced.contains(0) ? -2 : out.dim_of(0));
      double least = 1e30;
      for (const auto& choice : choices(rule, any_sharded, any_unreduced)) {
        // Beside a partial sum only what somebody sharded so is sharded.
        bool lies = false;
        for (std::size_t i = 0; i < inputs.size(); ++i)
          lies |= choice.operands[i] >= 0 && operands[i]->layout.dim_of(0) == choice.operands[i];
        const bool linear = std::ranges::find(rule.each, true) != rule.each.end();
        if (choice.factor && any_unreduced && linear && !lies) continue;
        least = std::min(least, price(rule, inputs, mesh, n, choice));
      }
      EXPECT_NEAR(price(rule, inputs, mesh, n, taken), least, 1e-6)
          << text << " n=" << n << ": " << inputs[0].spec << ", " << inputs.back().spec << " took "
          << print(mesh, placement->operands);
    }
  }
}

TEST(Propagate, TheCheapestOfAllWays) {
  for (std::int64_t i : {4, 12, 64}) {
    for (std::int64_t k : {4, 24}) {
      for (std::int64_t j : {4, 48}) {
        expect_cheapest("ik,kj->ij; each", {{{i, k}, ""}, {{k, j}, ""}});
      }
    }
    expect_cheapest("ab,ab->ab; joint", {{{i, 8}, ""}, {{i, 8}, ""}});
    expect_cheapest("ab,b->ab; joint", {{{i, 8}, ""}, {{8}, ""}});
    expect_cheapest("ab,b->ab; each", {{{i, 8}, ""}, {{8}, ""}});
    expect_cheapest("ab->a; each", {{{i, 8}, ""}});
    expect_cheapest("ab->", {{{i, 8}, ""}});
    expect_cheapest("a*->a", {{{i, 8}, ""}});
  }
}

TEST(Propagate, RefusesOtherOperands) {
  const OpRule rule = parse_rule("aten::op", "a->a", {Shape{4}});
  const auto error = [&](const std::vector<std::optional<Operand>>& operands) -> std::string {
    try {
      propagate(rule, kMesh, operands);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({}),
            "[aten::op] got 0 operands, expected 1; bind the rule to the operands of this call");
  EXPECT_EQ(error({std::nullopt}),
            "[aten::op] operand 0: is not the one that the rule was bound to; "
            "bind the rule to the shapes of this call");
}

}  // namespace
}  // namespace meshtorch
