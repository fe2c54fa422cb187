// SPDX-License-Identifier: Apache-2.0
//
// ZeRO in every stage trains as one device of plain libtorch does, and moves what its formula says.
#include "compare.h"

#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;
using mt::Reduce;

namespace {

constexpr int kSteps = 30;
constexpr std::int64_t kBatch = 16;

mt::GptOptions gpt_options() {
  return {.vocabulary = 16, .length = 8, .width = 16, .layers = 2, .heads = 2, .tied = true};
}

mt::Gpt make_gpt() {
  torch::manual_seed(7);
  return mt::Gpt(gpt_options());
}

mt::Batch make_batch(int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  const auto tokens = torch::randint(16, {kBatch, 9}, torch::kLong);
  auto targets = tokens.slice(1, 1).clone();
  targets.select(1, 3).fill_(-100);
  return {tokens.slice(1, 0, 8).contiguous(), targets};
}

const std::vector<double>& dense_losses() {
  static const std::vector<double> losses = [] {
    auto model = make_gpt();
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
    std::vector<double> all;
    for (int step = 0; step < kSteps; ++step) {
      const auto batch = make_batch(step);
      auto loss = model->loss(batch.inputs, batch.targets);
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
      all.push_back(loss.item<double>());
    }
    return all;
  }();
  return losses;
}

struct Case {
  std::string name;
  std::vector<mt::MeshAxis> axes;
  P batch;
  mt::ZeroOptions zero;
  std::int64_t microbatches = 1;
};

std::vector<double> losses_of(mt::Runtime& runtime, const Case& c) {
  const auto mesh = runtime.make_mesh(c.axes);
  auto model = make_gpt();
  mt::shard(*model, mesh, mt::gpt_sharding());
  mt::ZeroOptions zero = c.zero;
  zero.clip_norm = 1.0;
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), zero,
                                          torch::optim::AdamWOptions(3e-3));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    for (const auto& micro : mt::microbatches(make_batch(step), c.microbatches, {mesh, c.batch})) {
      std::optional<mt::reduce_scope> last;
      if (micro.last()) last.emplace(optimizer, Reduce::each);
      auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      total += loss.item<double>();
    }
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(total);
  }
  return losses;
}

std::vector<Case> all_cases() {
  struct Place {
    std::string name;
    std::vector<mt::MeshAxis> axes;
    P batch;
  };
  const std::vector<Place> places{
      {"dp8", {{"dp", 8}, {"tp", 1}}, P("dp")},
      {"dp4_tp2", {{"dp", 4}, {"tp", 2}}, P("dp")},
      {"rep2_dp2_tp2", {{"rep", 2}, {"dp", 2}, {"tp", 2}}, P("dp")},
      {"hybrid2_2_2", {{"rep", 2}, {"dp", 2}, {"tp", 2}}, P(mt::axes("rep", "dp"))}};
  std::vector<Case> cases;
  for (const auto& place : places) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t count : {1, 2, 8}) {
        // Small buckets, so that there are several.
        Case c{place.name + "_stage" + std::to_string(stage) + "_m" + std::to_string(count),
               place.axes,
               place.batch,
               {.axis = "dp", .stage = stage, .bucket_bytes = 4096},
               count};
        cases.push_back(c);
        if (count != 2) continue;
        const bool once = stage <= 1;
        c.zero.reduce = once ? Reduce::each : Reduce::once;
        c.name += once ? "_each" : "_once";
        cases.push_back(c);
        if (stage != 3) continue;
        c.zero.keep_gathered = true;
        c.name += "_kept";
        cases.push_back(c);
      }
    }
  }
  return cases;
}

class ZeroParity : public testing::TestWithParam<Case> {};

TEST_P(ZeroParity, ThirtyStepsEqualPlainLibtorch) {
  mt::Runtime runtime({.devices = 8});
  const auto losses = losses_of(runtime, GetParam());
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(losses[step] / dense_losses()[step], 1.0, 1e-6) << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(Modes, ZeroParity, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

// What a step moves over dp, in units of the parameters' local bytes times (d-1)/d.
struct Mode {
  std::string name;
  mt::ZeroOptions zero;
  std::function<std::int64_t(std::int64_t m)> units;
};

std::vector<Mode> modes() {
  using M = std::int64_t;
  return {
      {"stage0_each", {.stage = 0, .reduce = Reduce::each}, [](M m) { return 2 * m; }},
      {"stage0_once", {.stage = 0}, [](M) { return 2; }},
      {"stage1_once", {.stage = 1}, [](M) { return 2; }},
      {"stage1_each", {.stage = 1, .reduce = Reduce::each}, [](M m) { return m + 1; }},
      {"stage2_each", {.stage = 2}, [](M m) { return m + 1; }},
      {"stage2_once", {.stage = 2, .reduce = Reduce::once}, [](M) { return 2; }},
      {"stage3_each", {.stage = 3}, [](M m) { return 3 * m; }},
      {"stage3_once", {.stage = 3, .reduce = Reduce::once}, [](M m) { return 2 * m + 1; }},
      {"stage3_kept_once",
       {.stage = 3, .reduce = Reduce::once, .keep_gathered = true},
       [](M) { return 2; }},
      {"stage3_kept_each", {.stage = 3, .keep_gathered = true}, [](M m) { return m + 1; }},
  };
}

class ZeroTraffic : public testing::TestWithParam<Mode> {};

// Steps of products only, of an input that has a gradient: backward reads every parameter.
void expect_traffic(mt::Runtime& runtime, const mt::Mesh& mesh, const Mode& mode,
                    std::int64_t count, std::int64_t bucket, const std::vector<std::int64_t>& x) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(torch::nn::LinearOptions(16, 32).bias(false)),
                              torch::nn::Tanh(),
                              torch::nn::Linear(torch::nn::LinearOptions(32, 16).bias(false)));
  mt::shard(*model, mesh, {{"0", P("tp")}, {"2", P(mt::whole, "tp")}});
  mt::ZeroOptions zero = mode.zero;
  zero.bucket_bytes = bucket;
  mt::Zero<torch::optim::SGD> optimizer(model->parameters(), zero, torch::optim::SGDOptions(0.1));
  const std::int64_t local = 2 * 16 * 32 * 4 / mesh.axis_size("tp");
  const std::int64_t d = mesh.axis_size("dp");
  const auto& ledger = runtime.ledger();
  for (int step = 0; step < 3; ++step) {
    runtime.ledger().clear();
    for (std::int64_t i = 0; i < count; ++i) {
      std::optional<mt::reduce_scope> last;
      if (i + 1 == count) last.emplace(optimizer, Reduce::each);
      auto input = mt::device_put(torch::randn(x), {mesh, P("dp")}).requires_grad_();
      model->forward(input).square().sum().backward();
    }
    optimizer.step();
    optimizer.zero_grad();
    const auto over_dp = [](const auto& entry) { return entry.axes == "dp"; };
    EXPECT_EQ(ledger.bytes(over_dp), mode.units(count) * local * (d - 1) / d)
        << mesh << " m " << count << " bucket " << bucket << " step " << step << "\n"
        << ledger.to_string();
    EXPECT_EQ(ledger.count([](const auto& entry) {
      return entry.axes == "dp" && entry.op.rfind("Zero::", 0) != 0;
    }),
              0)
        << ledger.to_string();
    if (zero.stage != 3 || zero.keep_gathered || step == 0 || bucket < local) continue;
    // As recorded: both parameters at once, in forward and in backward.
    EXPECT_EQ(
        ledger.count([](const auto& entry) { return entry.kind == mt::Collective::all_gather; }),
        2 * count)
        << ledger.to_string();
  }
}

TEST_P(ZeroTraffic, EqualsTheFormula) {
  mt::Runtime runtime({.devices = 8});
  for (const auto& axes :
       std::vector<std::vector<mt::MeshAxis>>{{{"dp", 8}, {"tp", 1}}, {{"dp", 4}, {"tp", 2}}}) {
    const auto mesh = runtime.make_mesh(axes);
    for (const std::int64_t count : {1, 2, 8}) {
      for (const std::int64_t bucket : {1, 4096, 1 << 20}) {
        expect_traffic(runtime, mesh, GetParam(), count, bucket, {8, 16});
        if (count == 2) expect_traffic(runtime, mesh, GetParam(), count, bucket, {8, 3, 16});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ZeroTraffic, testing::ValuesIn(modes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
