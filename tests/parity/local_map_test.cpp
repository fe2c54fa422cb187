// SPDX-License-Identifier: Apache-2.0
//
// Per-rank code: what the ranks compute, their gradients, their traffic, against formulas on the whole
// tensors.
#include "compare.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <meshtorch/train/local_map.h>
#include <meshtorch/train/rank_streams.h>
#include <meshtorch/train/remat.h>

namespace mt = meshtorch;
using at::Tensor;
using mt::P;

namespace {

Tensor numbers(at::IntArrayRef sizes, std::uint64_t seed = 1) {
  torch::manual_seed(seed);
  return torch::randn(sizes, torch::kDouble);
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    rows = register_parameter("rows", torch::randn({5, 4}, torch::kDouble));
    again = register_parameter("again", rows);
    shift = register_buffer("shift", torch::ones({4}, torch::kDouble));
  }
  Tensor forward(const Tensor& x) {
    return torch::dropout((x + shift).matmul(rows.t()).relu(), 0.5, is_training()).matmul(again);
  }
  Tensor rows, again, shift;
};
TORCH_MODULE(Tied);

class LocalMap : public testing::Test {
 protected:
  mt::Runtime runtime{{.devices = 8}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

TEST_F(LocalMap, RunsOncePerCoordinateOfTheManualAxes) {
  const Tensor x = numbers({8, 6});
  std::vector<std::int64_t> indices;
  const auto scaled = mt::local_map(
      [&](const Tensor& rows) {
        EXPECT_FALSE(mt::is_sharded(rows));
        EXPECT_EQ(rows.sizes().vec(), (std::vector<std::int64_t>{2, 3}));
        EXPECT_EQ(mt::axis_size("dp"), 4);
        EXPECT_EQ(mt::axis_size({"dp", "tp"}), 8);
        EXPECT_EQ(mt::axis_index({"dp", "tp"}), 2 * mt::axis_index("dp") + mt::axis_index("tp"));
        EXPECT_EQ(mt::axis_index({"tp", "dp"}), 4 * mt::axis_index("tp") + mt::axis_index("dp"));
        indices.push_back(mt::axis_index({"dp", "tp"}));
        return rows * (1 + mt::axis_index("dp"));
      },
      mesh, {P("dp", "tp")}, P("dp", "tp"));
  const Tensor y = scaled(x);
  const Tensor factor = torch::arange(1, 5, torch::kDouble).repeat_interleave(2).unsqueeze(1);
  mt::expect_close(y, x * factor, "rows");
  EXPECT_EQ(mt::sharding_of(y).spec, P("dp", "tp"));
  EXPECT_EQ(indices.size(), 8u / static_cast<std::size_t>(runtime.processes()));
  EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
}

TEST_F(LocalMap, TheOtherAxesAreAutomatic) {
  const Tensor x = numbers({8, 6}), w = numbers({6, 4}, 2);
  const auto product = mt::local_map(
      [&](const Tensor& rows, const Tensor& weight) {
        EXPECT_EQ(rows.sizes().vec(), (std::vector<std::int64_t>{2, 6}));
        EXPECT_EQ(mt::sharding_of(weight).spec, P("tp"));
        EXPECT_EQ(mt::sharding_of(weight).mesh.to_string(), "(tp=2)");
        return rows.matmul(weight).relu();
      },
      mesh, {P("dp"), P()}, P("dp"), {.manual_axes = {"dp"}});
  runtime.ledger().clear();
  const Tensor y = product(x, mt::device_put(w, {mesh, P("tp")}));
  mt::expect_close(y, x.matmul(w).relu(), "product");
  EXPECT_EQ(mt::sharding_of(y).spec, P("dp"));
  // A sum over tp on each rank.
  const auto ranks = 4 / runtime.processes();
  EXPECT_EQ(runtime.ledger().count([](const auto& e) { return e.axes == "tp"; }), ranks)
      << runtime.ledger().to_string();
}

// One collective: what each rank does, and what all of them together give. `dense` has the ranks along a
// new leading dim, in and out.
struct Collective {
  std::string name;
  std::function<Tensor(const Tensor& x)> rank;
  std::function<Tensor(const Tensor& x)> dense;
  std::function<std::int64_t(std::int64_t bytes, std::int64_t n)> traffic;
  int calls_back = 1;  // collectives in backward
};

std::int64_t everyone(std::int64_t bytes, std::int64_t n) { return 2 * (n - 1) * bytes / n; }

Tensor repeat(const Tensor& x, const Tensor& like) {
  std::vector<Tensor> all(static_cast<std::size_t>(like.size(0)), x);
  return torch::stack(all);
}

Tensor joined(const Tensor& x, std::int64_t dim) { return torch::cat(x.unbind(0), dim); }

const std::vector<std::pair<std::int64_t, std::int64_t>> kShift{{0, 1}, {1, 2}, {2, 3}};

std::vector<Collective> collectives() {
  return {
      {"psum", [](const Tensor& x) { return mt::psum(x, "dp"); },
       [](const Tensor& x) { return repeat(x.sum(0), x); }, everyone},
      {"pmean", [](const Tensor& x) { return mt::pmean(x, "dp"); },
       [](const Tensor& x) { return repeat(x.mean(0), x); }, everyone},
      {"pmax", [](const Tensor& x) { return mt::pmax(x, "dp"); },
       [](const Tensor& x) { return repeat(x.amax(0), x); }, everyone, 2},
      {"pmin", [](const Tensor& x) { return mt::pmin(x, "dp"); },
       [](const Tensor& x) { return repeat(x.amin(0), x); }, everyone, 2},
      {"all_gather", [](const Tensor& x) { return mt::all_gather(x, "dp"); },
       [](const Tensor& x) { return repeat(joined(x, 0), x); },
       [](auto bytes, auto n) { return (n - 1) * bytes; }},
      {"all_gather_1", [](const Tensor& x) { return mt::all_gather(x, "dp", -1); },
       [](const Tensor& x) { return repeat(joined(x, 1), x); },
       [](auto bytes, auto n) { return (n - 1) * bytes; }},
      {"all_gather_stacked", [](const Tensor& x) { return mt::all_gather(x, "dp", 1, false); },
       [](const Tensor& x) { return repeat(torch::stack(x.unbind(0), 1), x); },
       [](auto bytes, auto n) { return (n - 1) * bytes; }},
      {"psum_scatter", [](const Tensor& x) { return mt::psum_scatter(x, "dp"); },
       [](const Tensor& x) { return torch::stack(x.sum(0).chunk(x.size(0), 0)); },
       [](auto bytes, auto n) { return (n - 1) * bytes / n; }},
      {"psum_scatter_dropped", [](const Tensor& x) { return mt::psum_scatter(x, "dp", 0, false); },
       [](const Tensor& x) { return torch::stack(x.sum(0).unbind(0)); },
       [](auto bytes, auto n) { return (n - 1) * bytes / n; }},
      {"all_to_all", [](const Tensor& x) { return mt::all_to_all(x, "dp", 0, 1); },
       [](const Tensor& x) {
         std::vector<Tensor> all;
         for (std::int64_t r = 0; r < x.size(0); ++r)
           all.push_back(joined(x.select(1, r).unsqueeze(1), 1));
         return torch::stack(all);
       },
       [](auto bytes, auto n) { return (n - 1) * bytes / n; }},
      {"ppermute", [](const Tensor& x) { return mt::ppermute(x, "dp", kShift); },
       [](const Tensor& x) {
         return torch::cat({torch::zeros_like(x.slice(0, 0, 1)), x.slice(0, 0, 3)});
       },
       [](auto bytes, auto) { return bytes; }},
  };
}

class LocalMapCollectives : public testing::TestWithParam<Collective> {
 protected:
  mt::Runtime runtime{{.devices = 8}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});

  // Rank r has rows [4 r, 4 r + 4); its result is its part along a new leading dim.
  void check(const mt::LocalMapOptions& options, const P& in) {
    const Collective& collective = GetParam();
    Tensor values = numbers({16, 6});
    values.slice(0, 4, 6) = values.slice(0, 0, 2);  // extremes that tie
    Tensor dense = values.clone().requires_grad_();
    Tensor x = mt::device_put(values, {mesh, in}).requires_grad_();
    const Tensor expected = collective.dense(dense.view({4, 4, 6}));
    const Tensor weights = numbers(expected.sizes(), 3);
    const auto f = mt::local_map(
        [&](const Tensor& mine, const Tensor& weight) {
          return (collective.rank(mine * 1).unsqueeze(0) * weight).sin();
        },
        mesh, {P("dp"), P("dp")}, P("dp"), options);
    const Tensor y = f(x, weights);
    mt::expect_close(y, (expected * weights).sin(), "value", 1e-12, 1e-12);
    (expected * weights).sin().sum().backward();
    y.sum().backward();
    mt::expect_close(x.grad(), dense.grad(), "gradient", 1e-12, 1e-12);
  }
};

TEST_P(LocalMapCollectives, AreTheirFormula) { check({}, P("dp")); }

TEST_P(LocalMapCollectives, WithTheOtherAxisAutomatic) {
  check({.manual_axes = {"dp"}}, P("dp"));
  check({.manual_axes = {"dp"}}, P("dp", "tp"));
}

TEST_P(LocalMapCollectives, MoveWhatTheFormulaSays) {
  const Collective& collective = GetParam();
  const Tensor x = mt::device_put(numbers({16, 6}), {mesh, P("dp")}).requires_grad_();
  const auto f =
      mt::local_map([&](const Tensor& mine) { return collective.rank(mine).unsqueeze(0); }, mesh,
                    {P("dp")}, P("dp"));
  runtime.ledger().clear();
  const Tensor y = f(x);
  ASSERT_EQ(runtime.ledger().entries().size(), 1u) << runtime.ledger().to_string();
  const mt::LedgerEntry entry = runtime.ledger().entries().front();
  EXPECT_EQ(entry.axes, "dp");
  EXPECT_EQ(entry.origin, mt::Origin::asked);
  EXPECT_TRUE(collective.name.starts_with(entry.op)) << entry.op;
  const bool gathered = runtime.processes() > 1 && entry.op == "ppermute";
  EXPECT_EQ(entry.bytes, gathered ? 3 * 4 * 6 * 8 : collective.traffic(4 * 6 * 8, 4));
  const Tensor seed = torch::ones_like(y);
  runtime.ledger().clear();
  y.backward(seed);
  const auto back = [&](const auto& e) { return e.op == entry.op + ".backward"; };
  EXPECT_EQ(runtime.ledger().count(back), collective.calls_back) << runtime.ledger().to_string();
  EXPECT_EQ(runtime.ledger().count([&](const auto& e) { return !back(e); }), 0)
      << runtime.ledger().to_string();
}

INSTANTIATE_TEST_SUITE_P(All, LocalMapCollectives, testing::ValuesIn(collectives()),
                         [](const auto& info) { return info.param.name; });

TEST_F(LocalMap, CollectivesOverSeveralAxes) {
  const Tensor x = numbers({16, 3});
  const auto f = mt::local_map(
      [](const Tensor& mine) {
        const Tensor scattered = mt::psum_scatter(mt::all_gather(mine, {"dp", "tp"}), {"tp", "dp"});
        return std::pair(mt::psum(mine, {"dp", "tp"}), scattered);
      },
      mesh, {P(mt::axes("dp", "tp"))}, {P(), P(mt::axes("tp", "dp"))});
  const auto [sum, same] = f(x);
  mt::expect_close(sum, x.view({8, 2, 3}).sum(0), "sum");
  mt::expect_close(same, x * 8, "gathered and scattered");
}

TEST_F(LocalMap, PsumOfATree) {
  const Tensor x = numbers({4, 2});
  const auto f = mt::local_map(
      [](const Tensor& mine) {
        return mt::psum(std::map<std::string, Tensor>{{"a", mine}, {"b", mine * 2}}, "dp");
      },
      mesh, {P("dp")}, P());
  const auto sums = f(x);
  mt::expect_close(sums.at("a"), x.sum(0, true), "a");
  mt::expect_close(sums.at("b"), x.sum(0, true) * 2, "b");
}

TEST_F(LocalMap, GradientsOfWhatAllRanksHaveAreUnreduced) {
  const Tensor x = numbers({16, 5}), w = numbers({5, 3}, 2);
  const Tensor dense = w.clone().requires_grad_();
  const Tensor expected = x.matmul(dense).pow(2).sum();
  expected.backward();

  Tensor weight = mt::replicate(w, mesh).requires_grad_();
  const auto loss = mt::local_map(
      [](const Tensor& rows, const Tensor& own) {
        return mt::psum(rows.matmul(own).pow(2).sum(), {"dp", "tp"});
      },
      mesh, {P(mt::axes("dp", "tp")), P()}, P());
  const Tensor value = loss(x, weight);
  mt::expect_close(value, expected, "loss");
  runtime.ledger().clear();
  value.backward();
  // Nothing but the transpose of psum.
  ASSERT_EQ(runtime.ledger().entries().size(), 1u) << runtime.ledger().to_string();
  EXPECT_EQ(runtime.ledger().entries().front().op, "psum.backward");
  EXPECT_EQ(mt::sharding_of(weight.grad()).spec, P().unreduced("dp", "tp"));
  mt::expect_close(weight.grad(), dense.grad(), "gradient");
}

TEST_F(LocalMap, SummandsComeOutUnreduced) {
  const Tensor x = numbers({16, 5});
  Tensor dense = x.clone().requires_grad_();
  Tensor sharded = mt::device_put(x, {mesh, P("dp")}).requires_grad_();
  const auto f = mt::local_map([](const Tensor& rows) { return rows.exp().sum(0); }, mesh,
                               {P("dp")}, P().unreduced("dp"));
  runtime.ledger().clear();
  const Tensor y = f(sharded);
  EXPECT_TRUE(runtime.ledger().entries().empty());
  EXPECT_EQ(mt::sharding_of(y).spec, P().unreduced("dp"));
  mt::expect_close(y, dense.exp().sum(0), "sum", 1e-12, 1e-12);
  (y * y).sum().backward();
  dense.exp().sum(0).pow(2).sum().backward();
  mt::expect_close(sharded.grad(), dense.grad(), "gradient", 1e-12, 1e-12);
  // And in again.
  const auto sum = mt::local_map([](const Tensor& part) { return mt::psum(part, "dp"); }, mesh,
                                 {P().unreduced("dp")}, P());
  mt::expect_close(sum(y), dense.exp().sum(0), "psum of summands", 1e-12, 1e-12);
}

TEST_F(LocalMap, UnevenPartsFollowTheChunkRule) {
  const Tensor x = numbers({7, 3});
  Tensor dense = x.clone().requires_grad_();
  Tensor rows = x.clone().requires_grad_();
  const auto f = mt::local_map([](const Tensor& mine) { return mine * mt::psum(mine.sum(), "dp"); },
                               mesh, {P("dp")}, P("dp"));
  const Tensor y = f(rows);
  mt::expect_close(y, dense * dense.sum(), "value", 1e-12, 1e-12);
  y.sum().backward();
  (dense * dense.sum()).sum().backward();
  mt::expect_close(rows.grad(), dense.grad(), "gradient of a plain argument", 1e-12, 1e-12);
}

TEST_F(LocalMap, AutogradInside) {
  // The size of a gradient as a loss, and a leaf that fn makes.
  const Tensor x = numbers({8, 5}), w = numbers({5, 1}, 2);
  const auto penalty = [](const Tensor& rows, const Tensor& weight, auto sum) {
    const Tensor at = rows.detach().clone().requires_grad_();
    const Tensor energy = at.matmul(weight).tanh().sum();
    const Tensor slope = torch::autograd::grad({energy}, {at}, {}, true, true)[0];
    return sum(slope.pow(2).sum());
  };
  Tensor dense = w.clone().requires_grad_();
  const Tensor expected = penalty(x, dense, [](const Tensor& s) { return s; });
  expected.backward();
  Tensor weight = mt::replicate(w, mesh).requires_grad_();
  const auto f = mt::local_map(
      [&](const Tensor& rows, const Tensor& mine) {
        return penalty(rows, mine, [](const Tensor& s) { return mt::psum(s, "dp"); });
      },
      mesh, {P("dp"), P()}, P());
  const Tensor value = f(x, weight);
  mt::expect_close(value, expected, "value", 1e-12, 1e-12);
  value.backward();
  mt::expect_close(weight.grad(), dense.grad(), "gradient", 1e-12, 1e-12);
}

TEST_F(LocalMap, SecondDerivativesOfCollectivesInside) {
  const Tensor x = numbers({8, 5});
  const auto f = mt::local_map(
      [](const Tensor& rows) {
        const Tensor at = rows.detach().requires_grad_();
        const Tensor total = mt::psum(at.pow(3).sum(0), "dp").pow(2).sum();
        const Tensor first = torch::autograd::grad({total}, {at}, {}, true, true)[0];
        return torch::autograd::grad({first.sum()}, {at})[0];
      },
      mesh, {P("dp")}, P("dp"));
  // Every rank has the total, and its gradient is that of the sum of all ranks' totals.
  const Tensor at = x.clone().requires_grad_();
  const Tensor total = 4 * at.pow(3).sum(0).pow(2).sum();
  const Tensor first = torch::autograd::grad({total}, {at}, {}, true, true)[0];
  mt::expect_close(f(x), torch::autograd::grad({first.sum()}, {at})[0], "second", 1e-12, 1e-12);
}

TEST_F(LocalMap, DoubleBackwardIsAnError) {
  Tensor x = mt::device_put(numbers({8}), {mesh, P("dp")}).requires_grad_();
  const auto f =
      mt::local_map([](const Tensor& mine) { return mine.pow(3); }, mesh, {P("dp")}, P("dp"));
  const Tensor first = torch::autograd::grad({f(x).sum()}, {x}, {}, true, true)[0];
  mt::expect_close(first, mt::full(x.detach()).pow(2) * 3, "first");
  EXPECT_THAT(mt::message_of([&] { first.sum().backward(); }),
              testing::HasSubstr("double backward"));
}

TEST_F(LocalMap, GraphsAreFreedAndRetained) {
  Tensor x = mt::device_put(numbers({8}), {mesh, P("dp")}).requires_grad_();
  const auto f =
      mt::local_map([](const Tensor& mine) { return mine.pow(3); }, mesh, {P("dp")}, P("dp"));
  const Tensor loss = f(x).sum();
  loss.backward({}, true);
  loss.backward();
  mt::expect_close(x.grad(), mt::full(x.detach()).pow(2) * 6, "twice");
  EXPECT_NE(mt::message_of([&] { loss.backward(); }), "");
  torch::NoGradGuard no_grad;
  EXPECT_FALSE(f(x).requires_grad());
}

// What fails, and what is said.
class LocalMapErrors : public LocalMap {
 protected:
  template <class Fn>
  std::string run(Fn fn, std::vector<mt::RankSpecs> in = {P("dp")}, mt::RankSpecs out = P("dp"),
                  mt::LocalMapOptions options = {}) {
    const Tensor x = numbers({8, 4});
    return mt::message_of([&] { mt::local_map(fn, mesh, in, out, options)(x); });
  }
};

TEST_F(LocalMapErrors, RanksThatAskForDifferentThings) {
  if (runtime.processes() > 1) GTEST_SKIP() << "ranks of one process are compared here";
  EXPECT_EQ(
      run([](const Tensor& x) {
        return mt::axis_index("dp") == 2 ? mt::psum(x, "dp") : mt::pmax(x, "dp");
      }),
      "[local_map] rank (dp=2, tp=0): asked for psum over dp of Double[2, 4], rank (dp=0, tp=0) "
      "asked for pmax over dp of Double[2, 4]; let every rank call the same collectives in one "
      "order, on tensors of one shape and dtype");
  EXPECT_THAT(run([](const Tensor& x) {
                return mt::psum(mt::axis_index("dp") == 1 ? x.to(torch::kFloat) : x, "dp");
              }),
              testing::HasSubstr("rank (dp=1, tp=0): asked for psum over dp of Float[2, 4], rank "
                                 "(dp=0, tp=0) asked for psum over dp of Double[2, 4]"));
  EXPECT_THAT(
      run([](const Tensor& x) { return mt::axis_index("dp") == 0 ? x : mt::psum(x, "dp"); }),
      testing::HasSubstr("rank (dp=1, tp=0): asked for psum over dp of Double[2, 4], rank "
                         "(dp=0, tp=0) returned and asked for nothing"));
  EXPECT_THAT(
      run([](const Tensor& x) {
        const Tensor sum = mt::psum(x, "dp");
        return mt::axis_index("dp") == 3 ? mt::psum(sum, "tp") : sum;
      }),
      testing::HasSubstr("asked for psum over tp of Double[2, 4], rank (dp=0, tp=0) returned, "
                         "after it had asked for psum over dp"));
}

TEST_F(LocalMapErrors, BackwardsThatDiffer) {
  if (runtime.processes() > 1) GTEST_SKIP() << "ranks of one process are compared here";
  Tensor x = mt::device_put(numbers({8, 4}), {mesh, P("dp")}).requires_grad_();
  const auto f = mt::local_map(
      [](const Tensor& mine) {
        const Tensor sum = mt::psum(mine, "dp");
        return mt::axis_index("dp") == 0 ? sum : mine;
      },
      mesh, {P("dp")}, P("dp"));
  const Tensor y = f(x);
  EXPECT_THAT(mt::message_of([&] { y.sum().backward(); }),
              testing::HasSubstr("[local_map.backward] rank (dp=1, tp=0): returned and asked for "
                                 "nothing, rank (dp=0, tp=0) asked for psum.backward"));
}

TEST_F(LocalMapErrors, WhatARankThrowsEndsAll) {
  if (runtime.processes() > 1) GTEST_SKIP() << "the other process would wait";
  int unwound = 0;
  struct Count {
    int& n;
    ~Count() { ++n; }
  };
  EXPECT_EQ(run([&](const Tensor& x) -> Tensor {
              const Count count{unwound};
              if (mt::axis_index("dp") == 2) throw std::runtime_error("mine");
              return mt::psum(x, "dp");
            }),
            "mine");
  EXPECT_EQ(unwound, 5);  // the ranks before it, and itself
  // One that catches everything is ended at its next request.
  EXPECT_EQ(run([&](const Tensor& x) -> Tensor {
              if (mt::axis_index({"dp", "tp"}) == 7) throw std::runtime_error("mine");
              try {
                return mt::psum(x, "dp");
              } catch (const std::exception&) {
              }
              return mt::psum(x, "dp");
            }),
            "mine");
}

TEST_F(LocalMapErrors, NamesAndSpecs) {
  const Tensor x = numbers({8, 4});
  EXPECT_EQ(
      mt::message_of([&] { mt::psum(x, "dp"); }),
      "[psum] is called outside of local_map, where there are no ranks; call it in the "
      "function that local_map runs, or use reshard, which changes how a sharded tensor lies");
  EXPECT_EQ(run([](const Tensor& x) { return mt::psum(x, "tp"); }, {P("dp")}, P("dp"),
                {.manual_axes = {"dp"}}),
            "[psum] axis \"tp\": is automatic in this local_map; name manual axes, each once: dp");
  EXPECT_THAT(run([](const Tensor& x) { return mt::psum(x, "ep"); }),
              testing::HasSubstr("is not an axis of mesh (dp=4, tp=2)"));
  EXPECT_EQ(
      run([](const Tensor& x) { return x; }, {P("tp")}, P(), {.manual_axes = {"dp"}}),
      "[local_map] argument 0: spec P(tp) names axis tp, which is automatic here; name manual "
      "axes only: dp");
  EXPECT_THAT(
      run([](const Tensor& x) { return x; }, {P(), P()}),
      testing::HasSubstr("in_specs: has 2 entries (of pmap: in_axes), fn was given 1 arguments"));
  EXPECT_THAT(run([](const Tensor& x) { return std::pair(x, x); }, {P("dp")}, {P(), P(), P()}),
              testing::HasSubstr("specs: got 3 for a tree of 2 tensors"));
  EXPECT_THAT(run([](const Tensor& x) { return x; }, {P("dp")}, P("dp"), {.manual_axes = {"ep"}}),
              testing::HasSubstr("manual axis \"ep\": is not an axis"));
  EXPECT_THAT(run([](const Tensor& x) { return mt::psum_scatter(x, "dp"); }),
              testing::HasSubstr("dim 0: of size 2 does not divide over 4 ranks"));
  EXPECT_THAT(
      run([](const Tensor& x) {
        return mt::ppermute(x, "dp", {{0, 1}, {2, 1}});
      }),
      testing::HasSubstr("pair (2, 1): has a place that is a source or a destination already"));
  EXPECT_THAT(run([](const Tensor& x) { return mt::all_gather(x, "dp", 2); }),
              testing::HasSubstr("[all_gather] dim 2"));
}

TEST_F(LocalMapErrors, Results) {
  EXPECT_THAT(
      run([](const Tensor& x) { return x.slice(0, 0, mt::axis_index("dp") == 1 ? 1 : 2); }),
      testing::HasSubstr("[local_map] result: rank (dp=1, tp=0) returned [1, 4], expected [2, "
                         "4] as its part by P(dp)"));
  EXPECT_THAT(run([](const Tensor& x) {
                return std::vector<Tensor>(mt::axis_index("dp") == 1 ? 1u : 2u, x);
              }),
              testing::HasSubstr("returned 1 tensors, rank (dp=0, tp=0) 2"));
  EXPECT_THAT(run([](const Tensor& x) { return x + mt::axis_index("dp"); }, {P()}, P(),
                  {.check_equal = true}),
              testing::HasSubstr("differs between ranks along dp"));
  EXPECT_EQ(
      run([](const Tensor& x) { return mt::psum(x, "dp"); }, {P()}, P(), {.check_equal = true}),
      "");
}

TEST_F(LocalMapErrors, WhatComesFromOutside) {
  EXPECT_THAT(run([](const Tensor& x) { return const_cast<Tensor&>(x).add_(1); }),
              testing::HasSubstr("argument 0: fn wrote its argument in place"));
  const Tensor w = numbers({4, 4}).requires_grad_();
  EXPECT_THAT(
      run([&](const Tensor& x) { return x.matmul(w); }),
      testing::HasSubstr("fn closes over a tensor of sizes [4, 4] that requires a gradient"));
  EXPECT_EQ(run([&](const Tensor& x) { return x.matmul(w.detach()); }), "");
  const Tensor made = w * 2;
  EXPECT_THAT(run([&](const Tensor& x) { return x.matmul(made); }),
              testing::HasSubstr("fn closes over a tensor that requires a gradient"));
  const Tensor sharded = mt::replicate(w.detach(), mesh);
  EXPECT_THAT(run([&](const Tensor& x) { return x.matmul(sharded); }),
              testing::HasSubstr("pass it to local_map as an argument"));
  EXPECT_THAT(run([&](const Tensor&) { return mt::psum(sharded, "dp"); }),
              testing::HasSubstr("pass it to local_map as an argument"));
  EXPECT_THAT(run([&](const Tensor&) { return sharded; }),
              testing::HasSubstr("returned a tensor that is P() on (dp=4, tp=2)"));
}

TEST_F(LocalMapErrors, ARanksDevicesAreOfOneProcess) {
  if (runtime.processes() == 1) GTEST_SKIP() << "of several processes";
  const auto crossed = runtime.make_mesh({{"tp", 4}, {"dp", 2}});
  const auto run = [&](const mt::Mesh& on, const std::string& manual) {
    return mt::message_of([&] {
      mt::local_map([](const Tensor& x) { return x; }, on, {P()}, P(), {.manual_axes = {manual}});
    });
  };
  EXPECT_THAT(run(crossed, "dp"), testing::HasSubstr("a rank's devices must be of one process"));
  EXPECT_EQ(run(crossed, "tp"), "");
  const auto mine = mt::sharding_of(mt::replicate(torch::ones({1}), crossed)).mesh;
  const auto first = mine.sub_mesh({"dp"}, {{"tp", 0}});
  EXPECT_EQ(run(first, "dp") == "", runtime.process() == 0);
}

TEST_F(LocalMapErrors, TiedWeightsLieInOneWay) {
  Tied model;
  const auto f = mt::local_map([](Tied& net) { return net->rows.sum(); }, mesh,
                               {mt::RankSpecs([](const std::string& path, const Tensor&) {
                                 return path == "again" ? P("tp") : P();
                               })},
                               P());
  EXPECT_EQ(
      mt::message_of([&] { f(model); }),
      "[local_map] argument 0 again: is one tensor with argument 0 rows, but has spec P(tp), not "
      "P(); give both the same");
}

TEST_F(LocalMap, AnArgumentThatIsThereTwice) {
  Tensor x = mt::device_put(numbers({8, 4}), {mesh, P("dp")}).requires_grad_();
  const auto f = mt::local_map([](const std::vector<Tensor>& both,
                                  const Tensor& third) { return both[0] * both[1] * third; },
                               mesh, {P("dp"), P("dp")}, P("dp"));
  f(std::vector<Tensor>{x, x}, x).sum().backward();
  mt::expect_close(x.grad(), 3 * mt::full(x.detach()).pow(2), "gradient");
}

TEST_F(LocalMapErrors, ALeafThatOneRankClosesOver) {
  const auto alone = runtime.make_mesh({{"dp", runtime.processes()}});
  const Tensor w = numbers({4, 4}).requires_grad_();
  const auto f =
      mt::local_map([&](const Tensor& x) { return x.matmul(w); }, alone, {P("dp")}, P("dp"));
  const Tensor y = f(numbers({8, 4}));
  EXPECT_THAT(mt::message_of([&] { y.sum().backward(); }),
              testing::HasSubstr("backward: fn closes over a tensor of sizes [4, 4]"));
}

TEST_F(LocalMapErrors, AnArgumentThatChangedSince) {
  Tensor x = mt::device_put(numbers({8, 4}), {mesh, P("dp")}).requires_grad_();
  const auto f =
      mt::local_map([](const Tensor& mine) { return mine.pow(2); }, mesh, {P("dp")}, P("dp"));
  const Tensor y = f(x);
  {
    torch::NoGradGuard no_grad;
    x.add_(1);
  }
  EXPECT_THAT(mt::message_of([&] { y.sum().backward(); }),
              testing::HasSubstr("modified by an inplace operation"));
}

TEST_F(LocalMap, ResultsShareNothing) {
  const Tensor x = mt::device_put(numbers({8, 4}), {mesh, P("dp")});
  const Tensor before = mt::full(x).clone();
  const auto same =
      mt::local_map([](const Tensor& mine) { return std::pair(mine, mine.view({-1})); }, mesh,
                    {P("dp")}, P("dp"));
  auto [a, b] = same(x);
  a.add_(1);
  b.mul_(2);
  mt::expect_close(x, before, "argument");
  mt::expect_close(a, before + 1, "first");
  mt::expect_close(b, (before * 2).view({-1}), "second");
  // exp keeps its result for backward; a matmul does not.
  Tensor w = mt::device_put(before, {mesh, P("dp")}).requires_grad_();
  Tensor y =
      mt::local_map([](const Tensor& mine) { return mine.exp(); }, mesh, {P("dp")}, P("dp"))(w);
  y.mul_(3);
  y.sum().backward();
  mt::expect_close(w.grad(), before.exp() * 3, "gradient");
  // Gradients, too: both arguments get the same one.
  Tensor u = mt::device_put(before, {mesh, P("dp")}).requires_grad_();
  Tensor v = mt::device_put(before, {mesh, P("dp")}).requires_grad_();
  const auto sum = mt::local_map([](const Tensor& p, const Tensor& q) { return p + q; }, mesh,
                                 {P("dp"), P("dp")}, P("dp"));
  sum(u, v).sum().backward();
  u.mutable_grad().add_(5);
  mt::expect_close(v.grad(), torch::ones({8, 4}, torch::kDouble), "gradient of the other");
}

TEST_F(LocalMap, EachRankDrawsFromStreamsOfItsOwn) {
  runtime.manual_seed(11);
  const auto draw = mt::local_map(
      [](const Tensor& x) {
        const Tensor before = torch::randn_like(x);
        return before + 0 * mt::psum(x, "dp") + torch::randn_like(x) * 10;
      },
      mesh, {P("dp")}, P("dp"));
  const Tensor zeros = torch::zeros({8, 2}, torch::kDouble);
  const Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const auto draws = runtime.random().draws;
  const Tensor got = draw(zeros);
  EXPECT_TRUE(torch::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_EQ(runtime.random().draws, draws + 1);
  std::vector<Tensor> rows;
  for (std::uint64_t rank = 0; rank < 8; rank += 2) {
    auto generator = at::detail::createCPUGenerator(mt::stream_seed(11, 2 * draws, rank));
    const Tensor first = torch::randn({2, 2}, generator, torch::kDouble);
    rows.push_back(first + torch::randn({2, 2}, generator, torch::kDouble) * 10);
  }
  mt::expect_close(got, torch::cat(rows), "numbers", 0, 0);
  EXPECT_FALSE(torch::equal(mt::full(draw(zeros)), mt::full(got)));
  runtime.manual_seed(11);
  EXPECT_TRUE(torch::equal(mt::full(draw(zeros)), mt::full(got)));
}

TEST_F(LocalMap, TheSameStreamWhereAsked) {
  for (const bool automatic : {false, true}) {
    mt::LocalMapOptions options{.random = mt::RankRandom::same};
    if (automatic) options.manual_axes = {"dp"};
    const auto draw = mt::local_map([](const Tensor& x) { return torch::rand_like(x); }, mesh,
                                    {P("dp")}, P("dp"), options);
    const Tensor rows = mt::full(draw(torch::zeros({4, 100}, torch::kDouble)));
    for (int row = 1; row < 4; ++row) EXPECT_TRUE(torch::equal(rows[0], rows[row]));
    options.random = mt::RankRandom::split;
    const auto split = mt::local_map([](const Tensor& x) { return torch::rand_like(x); }, mesh,
                                     {P("dp")}, P("dp"), options);
    const Tensor other = mt::full(split(torch::zeros({4, 100}, torch::kDouble)));
    for (int row = 1; row < 4; ++row) EXPECT_FALSE(torch::equal(other[0], other[row]));
  }
}

TEST_F(LocalMap, DropoutInsideAndItsRerun) {
  const Tensor x = numbers({8, 64});
  std::vector<Tensor> gradients;
  for (const bool again : {false, true}) {
    runtime.manual_seed(3);
    Tensor w = mt::device_put(x, {mesh, P("dp")}).requires_grad_();
    const auto f = mt::local_map(
        [&](const Tensor& mine) {
          const auto drop = [](const Tensor& t) {
            return mt::psum(torch::dropout(t, 0.5, true).pow(2), "dp");
          };
          return again ? mt::remat(drop, mine) : drop(mine);
        },
        mesh, {P("dp")}, P());
    const Tensor y = f(w);
    gradients.push_back(mt::full(y.detach()));
    y.sum().backward();
    gradients.push_back(mt::full(w.grad()));
  }
  EXPECT_TRUE(torch::equal(gradients[0], gradients[2]));
  EXPECT_TRUE(torch::equal(gradients[1], gradients[3]));
  const double kept = (gradients[1] != 0).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.5, 0.1);
}

// A kernel that knows plain tensors only.
Tensor running_product(const Tensor& x) {
  Tensor result = torch::empty_like(x);
  const double* from = x.const_data_ptr<double>();
  double* to = result.mutable_data_ptr<double>();
  double product = 1;
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = product *= from[i];
  return result;
}

TORCH_LIBRARY(local_map_test, library) {
  library.def("running_product(Tensor x) -> Tensor");
  library.impl("running_product", c10::DispatchKey::CPU, &running_product);
}

TEST_F(LocalMap, AThirdPartyKernelRunsAsItIs) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("local_map_test::running_product", "")
                      .typed<Tensor(const Tensor&)>();
  const Tensor x = numbers({8});
  const auto f =
      mt::local_map([&](const Tensor& mine) { return op.call(mine); }, mesh, {P("dp")}, P("dp"));
  mt::expect_close(f(x), x.view({4, 2}).cumprod(1).view({8}), "product");
}

TEST_F(LocalMap, AMegatronMlpInsideOfDataParallelCode) {
  torch::manual_seed(5);
  torch::nn::Sequential dense(torch::nn::Linear(6, 16), torch::nn::GELU(),
                              torch::nn::Linear(16, 3));
  dense->to(torch::kDouble);
  torch::nn::Sequential model(torch::nn::Linear(6, 16), torch::nn::GELU(),
                              torch::nn::Linear(16, 3));
  model->to(torch::kDouble);
  {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < dense->parameters().size(); ++i)
      model->parameters()[i].copy_(dense->parameters()[i]);
  }
  mt::shard(
      *model, mesh,
      mt::PathRules{
          {"0\\.(weight|bias)", P("tp")}, {"2\\.weight", P(mt::whole, "tp")}, {"2\\.bias", P()}});
  const Tensor x = numbers({8, 6}, 8), y = numbers({8, 3}, 9);
  (dense->forward(x) - y).pow(2).sum().backward();

  const auto losses = mt::local_map(
      [](torch::nn::Sequential& net, const Tensor& rows, const Tensor& targets) {
        return (net->forward(rows) - targets).pow(2).sum();
      },
      mesh, {P(), P("dp"), P("dp")}, P().unreduced("dp"), {.manual_axes = {"dp"}});
  runtime.ledger().clear();
  const Tensor loss = losses(model, x, y);
  loss.backward();
  EXPECT_EQ(runtime.ledger().count([](const auto& e) { return e.axes != "tp"; }), 0)
      << runtime.ledger().to_string();
  // One sum over tp forward and none backward (x needs no gradient), on each rank.
  EXPECT_EQ(runtime.ledger().count([](const auto&) { return true; }), 4 / runtime.processes())
      << runtime.ledger().to_string();
  EXPECT_EQ(mt::sharding_of(model->parameters()[0].grad()).spec, P("tp").unreduced("dp"));
  mt::expect_close(*model, *dense, 1e-12, 1e-12);
}

TEST_F(LocalMap, AModuleIsTheRanksWhileItHasItsTurn) {
  Tied model, dense;
  {
    torch::NoGradGuard no_grad;
    dense->rows.copy_(model->rows);
  }
  mt::replicate(*model, mesh);
  model->eval();
  dense->eval();
  const Tensor x = numbers({8, 4});
  std::vector<const void*> memory;
  const auto f = mt::local_map(
      [&](Tied net, const Tensor& rows) {
        EXPECT_FALSE(mt::is_sharded(model->rows));
        const Tensor half = mt::pmean(net->forward(rows), "tp");
        EXPECT_FALSE(net->rows.grad().defined());
        memory.push_back(net->rows.data_ptr());
        return half;
      },
      mesh, {P(), P("dp")}, P("dp"));
  int hooks = 0;
  model->rows.register_hook([&](const Tensor&) { ++hooks; });
  const Tensor y = f(model, x);
  EXPECT_EQ(mt::sharding_of(model->rows).spec, P());
  EXPECT_TRUE(model->rows.requires_grad() && model->rows.is_leaf());
  const Tensor again = f(model, x);
  mt::expect_close(y, dense->forward(x), "value", 1e-12, 1e-12);
  (y.sum() + again.pow(2).sum()).backward();
  (dense->forward(x).sum() + dense->forward(x).pow(2).sum()).backward();
  mt::expect_close(*model, *dense, 1e-12, 1e-12);
  EXPECT_EQ(hooks, 1);
  const auto shards = mt::addressable_shards(model->rows.detach());
  ASSERT_EQ(memory.size(), 2 * shards.size());
  for (std::size_t rank = 0; rank < memory.size(); ++rank)
    EXPECT_EQ(memory[rank], shards[rank % shards.size()].data.data_ptr());
  // Also where a rank fails.
  const auto bad = mt::local_map(
      [&](Tied net, const Tensor& rows) -> Tensor { return mt::psum(net->forward(rows), "no"); },
      mesh, {P(), P("dp")}, P("dp"));
  EXPECT_NE(mt::message_of([&] { bad(model, x); }), "");
  mt::expect_close(*model, *dense, 1e-12, 1e-12);
  {
    torch::NoGradGuard no_grad;
    model->rows.mul_(2);
    dense->rows.mul_(2);
  }
  mt::expect_close(f(model, x), dense->forward(x), "after a step", 1e-12, 1e-12);
  model->train();
  EXPECT_FALSE(torch::allclose(mt::full(f(model, x).detach()), dense->forward(x)));
}

TEST_F(LocalMap, AModuleInsideOfATreeAndRemat) {
  Tied dense;
  dense->eval();
  auto model = std::make_shared<TiedImpl>();
  {
    torch::NoGradGuard no_grad;
    model->rows.copy_(dense->rows);
  }
  model->eval();
  mt::shard(*model, mesh, mt::PathRules{{"rows|again", P(mt::whole, "tp")}});
  const Tensor x = numbers({8, 4});
  const auto f =
      mt::local_map([](std::map<std::string, Tied>& nets,
                       const Tensor& rows) { return mt::remat(nets.at("net"), rows).pow(2).sum(); },
                    mesh, {P(), P("dp")}, P().unreduced("dp"), {.manual_axes = {"dp"}});
  f(std::map<std::string, Tied>{{"net", Tied(model)}}, x).backward();
  dense->forward(x).pow(2).sum().backward();
  mt::expect_close(*model, *dense, 1e-12, 1e-12);
}

struct Batch2 {
  Tensor inputs;
  std::optional<Tensor> mask;
  int scale = 1;
};

TEST_F(LocalMap, TreesOfArgumentsAndResults) {
  Tensor x = numbers({8, 4}).requires_grad_();
  const Batch2 batch{.inputs = x, .mask = torch::ones({8}, torch::kDouble), .scale = 3};
  const auto f = mt::local_map(
      [](const Batch2& mine, double factor) {
        EXPECT_EQ(mine.inputs.size(0), 2);
        return Batch2{.inputs = mine.inputs * mine.scale * factor, .mask = {}, .scale = 7};
      },
      mesh, {P("dp"), P()}, P("dp"));
  const Batch2 result = f(batch, 0.5);
  mt::expect_close(result.inputs, x * 1.5, "inputs");
  EXPECT_FALSE(result.mask);
  EXPECT_EQ(result.scale, 7);
  result.inputs.sum().backward();
  mt::expect_close(x.grad(), torch::full({8, 4}, 1.5, torch::kDouble), "gradient");
  const auto by_path =
      mt::local_map([](const Batch2& mine) { return mine.inputs.sum(0) + *mine.mask; }, mesh,
                    {mt::RankSpecs([](const std::string& path, const Tensor&) {
                      return path == "inputs" ? P("dp") : P();
                    })},
                    P().unreduced("dp"));
  const Batch2 other{.inputs = x, .mask = torch::ones({4}, torch::kDouble)};
  mt::expect_close(by_path(other), x.sum(0) + 4, "by path");
}

TEST_F(LocalMap, ScopesModesAndDevicesGoAlong) {
  const Tensor x = mt::device_put(numbers({8, 4}), {mesh, P("dp", "tp")});
  const mt::named_scope outer("train");
  runtime.ledger().clear();
  const auto f = mt::local_map(
      [&](const Tensor& mine) {
        EXPECT_EQ(mt::named_scope::path(), "train");
        EXPECT_EQ(runtime.mode(), mt::Mode::strict);
        EXPECT_FALSE(torch::GradMode::is_enabled());
        const mt::named_scope inner("layer");
        return mt::psum(mine, "dp");
      },
      mesh, {P("dp", "tp")}, P(mt::whole, "tp"));
  const mt::mode_scope strict(mt::Mode::strict);
  torch::NoGradGuard no_grad;
  f(x);
  ASSERT_EQ(runtime.ledger().entries().size(), 1u);
  EXPECT_EQ(runtime.ledger().entries().front().scope, "train/layer");
}

TEST(LocalMapMemory, IsTheRanksDevices) {
  mt::Runtime runtime({.devices = 8, .memory = true});
  const auto mesh = runtime.make_mesh({{"dp", 8}});
  const Tensor x = mt::device_put(torch::zeros({8, 4}), {mesh, P("dp")});
  std::vector<Tensor> kept;
  std::map<std::int64_t, std::int64_t> before;
  for (const auto& shard : mt::addressable_shards(x))
    before[shard.device] = runtime.memory()->live(shard.device);
  mt::local_map(
      [&](const Tensor& mine) {
        kept.push_back(torch::zeros({1000 * (1 + mt::axis_index("dp"))}, torch::kByte));
        return mine;
      },
      mesh, {P("dp")}, P("dp"))(x);
  for (const auto& shard : mt::addressable_shards(x)) {
    EXPECT_EQ(runtime.memory()->live(shard.device) - before[shard.device],
              1000 * (1 + shard.coordinates[0]));
  }
}

TEST(LocalMapMeta, RunsWithoutValues) {
  mt::Runtime runtime({.devices = 8, .meta = true});
  const auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2 * runtime.processes()}});
  for (const bool automatic : {false, true}) {
    Tensor w = mt::device_put(torch::empty({6, 4}), {mesh, P()}).requires_grad_();
    mt::LocalMapOptions options;
    if (automatic) options.manual_axes = {"dp"};
    const auto f = mt::local_map(
        [](const Tensor& rows, const Tensor& mine) {
          return mt::psum(rows.matmul(mine).pow(2).sum(), "dp");
        },
        mesh, {P("dp"), P()}, P(), options);
    runtime.ledger().clear();
    f(torch::empty({8, 6}), w).backward();
    EXPECT_TRUE(mt::is_meta(w.grad()));
    EXPECT_EQ(mt::sharding_of(w.grad()).spec,
              automatic ? P().unreduced("dp") : P().unreduced("dp", "tp"));
    EXPECT_EQ(runtime.ledger().count([](const auto& e) { return e.axes == "dp"; }), 2);
  }
}

TEST_F(LocalMap, Nested) {
  const Tensor x = numbers({8, 6});
  Tensor w = mt::device_put(x, {mesh, P("dp", "tp")}).requires_grad_();
  const auto outer = mt::local_map(
      [](const Tensor& rows) {
        const auto inner =
            mt::local_map([](const Tensor& mine) { return mt::psum(mine.sum(1), "tp"); },
                          mt::sharding_of(rows).mesh, {P(mt::whole, "tp")}, P());
        return mt::psum(inner(rows).pow(2).sum(), "dp");
      },
      mesh, {P("dp")}, P(), {.manual_axes = {"dp"}});
  const Tensor dense = x.clone().requires_grad_();
  const Tensor expected = dense.sum(1).pow(2).sum();
  const Tensor y = outer(w);
  mt::expect_close(y, expected, "value", 1e-12, 1e-12);
  y.backward();
  expected.backward();
  mt::expect_close(w.grad(), dense.grad(), "gradient", 1e-12, 1e-12);
}

// The last rank is another process's than the first, where there are several.
TEST_F(LocalMap, WhatTheLastRankAloneUses) {
  const Tensor x = numbers({8, 3}), w = numbers({3}, 2), last = x.slice(0, 6);
  Tensor weight = mt::replicate(w, mesh).requires_grad_();
  const auto is_last = [] { return mt::axis_index({"dp", "tp"}) == 7; };
  const auto summands =
      mt::local_map([&](const Tensor& rows,
                        const Tensor& own) { return is_last() ? (rows * own).sum() : rows.sum(); },
                    mesh, {P("dp"), P()}, P().unreduced("dp", "tp"));
  const Tensor y = summands(x, weight);
  mt::expect_close(y, 2 * x.sum() - last.sum() + (last * w).sum(), "value", 1e-12, 1e-12);
  y.backward();
  EXPECT_EQ(mt::sharding_of(weight.grad()).spec, P().unreduced("dp", "tp"));
  mt::expect_close(weight.grad(), last.sum(0), "gradient", 1e-12, 1e-12);
  // The others' psum is of constants; in backward they have their part in its transpose.
  const auto sum = mt::local_map(
      [&](const Tensor& rows, const Tensor& own) {
        const Tensor mine = is_last() ? (rows * own).sum().pow(2) : rows.sum();
        return mt::psum(mine, {"dp", "tp"});
      },
      mesh, {P("dp"), P()}, P());
  weight.mutable_grad() = Tensor();
  sum(x, weight).backward();
  mt::expect_close(weight.grad(), 2 * (last * w).sum() * last.sum(0), "gradient of psum", 1e-12,
                   1e-12);
}

TEST_F(LocalMap, RanksWhoseResultsLieOtherwise) {
  const Tensor x = numbers({8, 4});
  Tensor w = mt::replicate(numbers({4}, 2), mesh).requires_grad_();
  const auto f = mt::local_map(
      [](const Tensor& rows, const Tensor& own) {
        const bool first = mt::axis_index("dp") == 0;
        return mt::reshard(rows * mt::reshard(own, first ? P("tp") : P()),
                           first ? P(mt::whole, "tp") : P());
      },
      mesh, {P("dp"), P()}, P("dp"), {.manual_axes = {"dp"}});
  const Tensor y = f(x, w);
  EXPECT_EQ(mt::sharding_of(y).spec, P("dp", "tp"));
  mt::expect_close(y, x * mt::full(w.detach()), "value", 1e-12, 1e-12);
  y.sum().backward();
  mt::expect_close(w.grad(), x.sum(0), "gradient", 1e-12, 1e-12);
}

struct DropGradient : torch::autograd::Function<DropGradient> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {Tensor()};
  }
};

TEST_F(LocalMap, ACollectiveWhoseGradientNobodyAsksFor) {
  Tensor x = mt::device_put(numbers({8, 4}), {mesh, P("dp", "tp")}).requires_grad_();
  const auto f = mt::local_map(
      [](const Tensor& rows) {
        return rows + DropGradient::apply(mt::psum(rows, "dp")) + mt::pmean(rows, "dp");
      },
      mesh, {P("dp")}, P("dp"), {.manual_axes = {"dp"}});
  f(x).sum().backward();
  EXPECT_EQ(mt::sharding_of(x.grad()).spec, P("dp", "tp"));
  mt::expect_close(x.grad(), torch::full({8, 4}, 2., torch::kDouble), "gradient", 1e-12, 1e-12);
}

TEST_F(LocalMapErrors, AnExtremeWhoseGraphIsFreed) {
  EXPECT_THAT(run([](const Tensor& rows) {
                const torch::AutoGradMode grad(true);
                const Tensor x = rows.detach().requires_grad_();
                const Tensor y = mt::pmax(x, "dp").sum();
                torch::autograd::grad({y}, {x});
                return torch::autograd::grad({y}, {x})[0];
              }),
              testing::HasSubstr("[pmax.backward] the graph was run before and is freed"));
}

struct CounterImpl : torch::nn::Module {
  CounterImpl() {
    weight = register_parameter("weight", torch::ones({}, torch::kDouble));
    count = register_buffer("count", torch::arange(8., torch::kDouble));
  }
  Tensor forward(const Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      count.add_(1);
    }
    return (x * weight * count).sum();
  }
  Tensor weight, count;
};
TORCH_MODULE(Counter);

TEST_F(LocalMap, ABufferOfEachRankThatIsWrittenAndUsed) {
  for (const auto& axes : {std::vector<mt::MeshAxis>{{"dp", 8}}, {{"dp", 4}, {"tp", 2}}}) {
    const mt::Mesh mesh = runtime.make_mesh(axes);
    Counter counter;
    mt::shard(*counter, mesh, mt::PathRules{{"weight", P()}, {"count", P("dp")}});
    const Tensor x = numbers({8}), next = torch::arange(1., 9., torch::kDouble);
    const auto f =
        mt::local_map([](Counter& mine, const Tensor& x) { return mine->forward(x); }, mesh,
                      {mt::RankSpecs([](const std::string& path, const Tensor&) {
                         return path == "count" ? P("dp") : P();
                       }),
                       P("dp")},
                      P().unreduced("dp"), {.manual_axes = {"dp"}});
    f(counter, x).backward();
    mt::expect_close(counter->count, next, "count", 1e-12, 1e-12);
    mt::expect_close(counter->weight.grad(), x.dot(next), "gradient", 1e-12, 1e-12);
    // Written since: by the program, by another call.
    Tensor y = f(counter, x);
    {
      const torch::NoGradGuard no_grad;
      counter->count.zero_();
    }
    const auto written = testing::HasSubstr("modified by an inplace operation");
    EXPECT_THAT(mt::message_of([&] { y.backward(); }), written);
    y = f(counter, x);
    f(counter, x);
    EXPECT_THAT(mt::message_of([&] { y.backward(); }), written);
  }
}

TEST_F(LocalMapErrors, ABufferThatAllRanksShareIsAsBefore) {
  Counter counter;
  mt::replicate(*counter, mesh);
  const auto f = mt::local_map([](Counter& mine, const Tensor& x) { return mine->forward(x); },
                               mesh, {P(), P()}, P());
  EXPECT_THAT(mt::message_of([&] { f(counter, numbers({8})); }),
              testing::HasSubstr("argument 0 count: fn wrote a buffer of which every rank has a "
                                 "copy; use pmap"));
  for (const auto& shard : mt::addressable_shards(counter->count))
    mt::expect_close(shard.data, torch::arange(8., torch::kDouble), "count");
}

TEST_F(LocalMap, ActivationsLieAsIsAskedAlongTheAutomaticAxes) {
  torch::nn::Sequential model(torch::nn::Linear(6, 6),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  model->to(torch::kDouble);
  const Tensor x = numbers({8, 4, 6});
  const Tensor expected = model->forward(x);
  mt::replicate(*model, mesh);
  const auto f = mt::local_map(
      [](torch::nn::Sequential net, const Tensor& rows) { return net->forward(rows); }, mesh,
      {P(), P("dp")}, P("dp"), {.manual_axes = {"dp"}});
  EXPECT_EQ(mt::sharding_of(f(model, x)).spec, P("dp"));
  mt::constrain(*model, {{R"(^1\.weight$)", P("dp", "tp")}});
  const Tensor y = f(model, x);
  EXPECT_EQ(mt::sharding_of(y).spec, P("dp", "tp"));
  mt::expect_close(y, expected, "value", 1e-12, 1e-12);
}

// Accumulation per data-parallel rank: unreduced gradients of each microbatch, one reduction a step.
TEST_F(LocalMap, GradientsGoToZero) {
  for (const int stage : {1, 3}) {
    torch::manual_seed(5);
    torch::nn::Sequential dense(torch::nn::Linear(8, 16), torch::nn::Tanh(),
                                torch::nn::Linear(16, 4));
    dense->to(torch::kDouble);
    auto model = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(dense->clone());
    const Tensor x = numbers({16, 8}, 8), y = numbers({16, 4}, 9);
    const auto options = torch::optim::AdamWOptions(1e-2);
    torch::optim::AdamW reference(dense->parameters(), options);
    mt::shard(
        *model, mesh,
        mt::PathRules{
            {"0\\.(weight|bias)", P("tp")}, {"2\\.weight", P(mt::whole, "tp")}, {"2\\.bias", P()}});
    mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .stage = stage},
                                            options);
    const auto loss = mt::local_map(
        [](torch::nn::Sequential net, const Tensor& rows, const Tensor& targets) {
          return (net->forward(rows) - targets).pow(2).sum() / 16;
        },
        mesh, {P(), P("dp"), P("dp")}, P().unreduced("dp"), {.manual_axes = {"dp"}});
    for (int step = 0; step < 3; ++step) {
      ((dense->forward(x) - y).pow(2).sum() / 16).backward();
      reference.step();
      reference.zero_grad();
      for (const int half : {0, 1}) {
        const auto rows = torch::indexing::Slice(8 * half, 8 * half + 8);
        loss(torch::nn::Sequential(model), x.index({rows}), y.index({rows})).backward();
      }
      optimizer.step();
      optimizer.zero_grad();
    }
    mt::expect_close(*model, *dense, 1e-9, 1e-10);
  }
}

TEST_F(LocalMap, InferenceModeAndAutocastGoAlong) {
  const Tensor x = mt::device_put(torch::randn({8, 4}), {mesh, P("dp")});
  const auto f = mt::local_map([](const Tensor& rows) { return rows.matmul(rows.t()); }, mesh,
                               {P("dp")}, P("dp"));
  {
    const c10::InferenceMode inference;
    EXPECT_EQ(f(x).scalar_type(), torch::kFloat);
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_EQ(f(x).scalar_type(), torch::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST_F(LocalMap, EachRanksTurnsAreInTheTrace) {
  mt::Trace trace;
  mt::local_map([](const Tensor& rows) { return mt::psum(rows, "dp"); }, mesh, {P("dp")},
                P())(numbers({8, 4}));
  std::size_t turns = 0;
  const std::string json = trace.to_json(), name = "\"name\":\"local_map\"";
  for (auto at = json.find(name); at != std::string::npos; at = json.find(name, at + 1)) ++turns;
  EXPECT_EQ(turns, 16u / static_cast<std::size_t>(runtime.processes())) << json.substr(0, 2000);
}

}  // namespace
