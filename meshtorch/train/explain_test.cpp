// SPDX-License-Identifier: Apache-2.0
//
// What explain says is held against the ledger of a step, and against the closed formulas of
// zero.h.
#include <meshtorch/train/explain.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <tuple>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

constexpr std::int64_t kRows = 32, kIn = 16, kClasses = 10;

// The last bias is not divisible by 4 or 8.
nn::Sequential make_model() {
  torch::manual_seed(3);
  return nn::Sequential(nn::Linear(kIn, 32), nn::ReLU(), nn::Linear(32, 64), nn::ReLU(),
                        nn::Linear(64, kClasses));
}

Batch make_batch() {
  return {torch::randn({kRows, kIn}), torch::randint(kClasses, {kRows}, torch::kLong)};
}

at::Tensor loss_of(const at::Tensor& outputs, const at::Tensor& targets) {
  return nn::functional::cross_entropy(outputs, targets);
}

// Count, tensors and bytes, by kind and axes.
using Traffic = std::map<std::pair<std::string, std::string>,
                         std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

template <class Collective>
void add(Traffic& traffic, const Collective& one) {
  auto& [count, tensors, bytes] = traffic[{std::string(name(one.kind)), one.axes}];
  ++count;
  tensors += one.tensors;
  bytes += one.bytes;
}

Traffic traffic_of(const Schedule& schedule, const std::string& phases = "") {
  Traffic traffic;
  for (const Phase& phase : schedule.phases) {
    if (!phase.name.starts_with(phases)) continue;
    for (const PlannedCollective& one : phase.collectives) add(traffic, one);
  }
  return traffic;
}

template <class Filter>
Traffic traffic_of(const Ledger& ledger, Filter filter) {
  Traffic traffic;
  for (const LedgerEntry& entry : ledger.entries()) {
    if (filter(entry)) add(traffic, entry);
  }
  return traffic;
}

Traffic traffic_of(const Ledger& ledger) {
  return traffic_of(ledger, [](const LedgerEntry&) { return true; });
}

std::string to_string(const Traffic& traffic) {
  std::string all;
  for (const auto& [key, row] : traffic) {
    const auto& [count, tensors, bytes] = row;
    all += text(key.first, " ", key.second, ": ", count, " of ", tensors, " tensors, ", bytes,
                " bytes\n");
  }
  return all;
}

struct Job {
  std::vector<MeshAxis> axes;
  ZeroOptions zero;
  std::int64_t microbatches;
};

std::string to_string(const Job& job) {
  const auto& zero = job.zero;
  const auto reduce = !zero.reduce ? "" : *zero.reduce == Reduce::once ? ", once" : ", each";
  return text(Mesh(job.axes), " stage ", zero.stage, reduce, zero.keep_gathered ? ", kept" : "",
              zero.overlap ? "" : ", no overlap", ", M = ", job.microbatches, ", buckets of ",
              zero.bucket_bytes);
}

std::vector<Job> jobs() {
  std::vector<Job> all;
  for (const auto& axes : {std::vector<MeshAxis>{{"dp", 8}, {"tp", 1}}, {{"dp", 4}, {"tp", 2}}}) {
    for (const std::int64_t count : {1, 4}) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (const auto reduce : {Reduce::once, Reduce::each}) {
          all.push_back({axes, {.stage = stage, .clip_norm = 1, .reduce = reduce}, count});
          if (stage < 3) continue;
          all.push_back({axes, {.stage = 3, .reduce = reduce, .keep_gathered = true}, count});
        }
        // The first layer fills a bucket of 2176 bytes.
        for (const std::int64_t bytes : {2176, 4096}) {
          all.push_back(
              {axes, {.stage = stage, .bucket_bytes = bytes, .overlap = stage != 2}, count});
        }
      }
    }
  }
  return all;
}

// The schedule before the second step, and what that step did.
template <class Check>
void run(const Job& job, Check check) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh(job.axes);
  nn::Sequential model = make_model();
  replicate(*model, mesh);
  Zero<AdamW> optimizer(model->parameters(), job.zero, AdamWOptions(1e-3));
  TrainStep step(model, loss_of, optimizer,
                 {.sharding = {mesh, P("dp")}, .microbatches = job.microbatches});
  const Schedule before = explain(step);
  const StepMetrics first = step(make_batch());
  const Schedule schedule = explain(step);
  check(before, first.collectives, schedule, step(make_batch()).collectives);
}

TEST(Explain, TellsTheLedgerOfAStep) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(to_string(job));
    run(job, [&](const Schedule& before, const Ledger& first, const Schedule& schedule,
                 const Ledger& second) {
      EXPECT_EQ(to_string(traffic_of(schedule)), to_string(traffic_of(second)));
      EXPECT_EQ(to_string(traffic_of(schedule, "microbatch")),
                to_string(traffic_of(second, [](const LedgerEntry& entry) {
                  return entry.scope == "microbatch/zero";
                })));
      EXPECT_FALSE(schedule.at_most());
      if (job.zero.stage < 3) {
        EXPECT_EQ(to_string(traffic_of(before)), to_string(traffic_of(first)));
        EXPECT_FALSE(before.at_most());
        return;
      }
      const auto gathers = [](const Traffic& traffic) { return traffic.at({"all-gather", "dp"}); };
      EXPECT_TRUE(before.at_most());
      EXPECT_LE(gathers(traffic_of(first)), gathers(traffic_of(before)));
    });
  }
}

// In (d-1)/d of the parameter bytes, from the table in zero.h.
TEST(Explain, TellsTheUnitsOfTheFormulas) {
  const auto expected = [](const Job& job) -> double {
    const auto count = static_cast<double>(job.microbatches);
    const bool each =
        job.zero.reduce.value_or(job.zero.stage >= 2 ? Reduce::each : Reduce::once) == Reduce::each;
    const double reductions = each ? count : 1;
    if (job.zero.stage == 0) return 2 * reductions;
    if (job.zero.stage < 3 || job.zero.keep_gathered) return reductions + 1;
    return 2 * count + reductions;
  };
  for (const Job& job : jobs()) {
    SCOPED_TRACE(to_string(job));
    run(job, [&](const Schedule& before, const Ledger&, const Schedule& schedule, const Ledger&) {
      EXPECT_DOUBLE_EQ(before.units(), expected(job));
      EXPECT_LE(schedule.units(), expected(job));
      EXPECT_EQ(schedule.whole_leaves, job.zero.stage == 0 ? 0 : 1);
      EXPECT_GE(before.bytes(), before.lower_bound());
      if (job.microbatches == 1 && job.zero.stage < 3) {
        EXPECT_EQ(before.bytes(), before.lower_bound());
      }
    });
  }
}

// Tensor parallelism is the model's: what Zero and its norm do is told, what the model does is not.
TEST(Explain, TellsZeroOfATensorParallelModel) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  for (int stage = 0; stage <= 3; ++stage) {
    nn::Sequential model = make_model();
    shard(*model, mesh,
          PathRules({{"0\\.(weight|bias)", P("tp")}, {"2\\.weight", P(whole, "tp")}})
              .otherwise(Unmatched::replicate));
    Zero<AdamW> optimizer(model->parameters(), {.stage = stage, .clip_norm = 1},
                          AdamWOptions(1e-3));
    TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
    step(make_batch());
    Schedule schedule = explain(step);
    const StepMetrics metrics = step(make_batch());
    EXPECT_EQ(schedule.phases.back().name, "loss");
    schedule.phases.pop_back();
    EXPECT_EQ(to_string(traffic_of(schedule)),
              to_string(traffic_of(metrics.collectives, [](const LedgerEntry& entry) {
                return entry.op.starts_with("Zero::") || entry.op == "global_norm";
              })));
  }
}

// Replicated over one axis, sharded over another.
TEST(Explain, TellsHybridSharding) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 2}, {"fsdp", 4}});
  for (int stage = 0; stage <= 3; ++stage) {
    nn::Sequential model = make_model();
    replicate(*model, mesh);
    Zero<AdamW> optimizer(model->parameters(), {.axis = "fsdp", .stage = stage},
                          AdamWOptions(1e-3));
    TrainStep step(model, loss_of, optimizer,
                   {.sharding = {mesh, P(axes("dp", "fsdp"))}, .microbatches = 2});
    step(make_batch());
    const Schedule schedule = explain(step);
    EXPECT_EQ(to_string(traffic_of(schedule)),
              to_string(traffic_of(step(make_batch()).collectives)))
        << "stage " << stage;
  }
}

// bfloat16 parameters with float32 gradients and master weights.
TEST(Explain, TellsBytesOfEachDtype) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 8}});
  const auto precision = Precision::parse("params=float32, compute=bfloat16, output=float32");
  for (int stage = 0; stage <= 3; ++stage) {
    nn::Sequential model = make_model();
    replicate(*model, mesh);
    Zero<AdamW> optimizer(model->parameters(), {.stage = stage, .precision = precision},
                          AdamWOptions(1e-3));
    TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
    step(make_batch());
    const Schedule schedule = explain(step);
    EXPECT_EQ(to_string(traffic_of(schedule)),
              to_string(traffic_of(step(make_batch()).collectives)))
        << "stage " << stage;
    EXPECT_EQ(schedule.gradient_bytes, 2 * schedule.parameter_bytes);
    EXPECT_EQ(schedule.memory.accumulator, stage < 2 ? 13224 : 13184 / 8 + 40);  // float32
    EXPECT_EQ(schedule.memory.parameters, stage < 3 ? 13224 / 2 : (13184 / 8 + 40) / 2);
  }
}

// Frozen parameters have no gradient; stage 3 gathers them all the same.
TEST(Explain, TellsFrozenParameters) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 8}});
  for (int stage = 0; stage <= 3; ++stage) {
    nn::Sequential model = make_model();
    for (auto& parameter : model[0]->parameters()) parameter.requires_grad_(false);
    replicate(*model, mesh);
    Zero<AdamW> optimizer(model->parameters(), {.stage = stage}, AdamWOptions(1e-3));
    TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
    step(make_batch());
    const Schedule schedule = explain(step);
    EXPECT_EQ(schedule.parameter_bytes, 4 * (32 * 64 + 64 + 64 * kClasses) + (stage == 0 ? 40 : 0));
    EXPECT_EQ(to_string(traffic_of(schedule)),
              to_string(traffic_of(step(make_batch()).collectives)))
        << "stage " << stage;
  }
}

// A loop written by hand, without a scope: everything goes at step().
TEST(Explain, TellsALoopWithoutAScope) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 8}});
  nn::Sequential model = make_model();
  replicate(*model, mesh);
  Zero<AdamW> optimizer(model->parameters(), {.bucket_bytes = 4096}, AdamWOptions(1e-3));
  const Schedule schedule = explain(optimizer.engine(), {.microbatches = 2, .last_reduces = false});
  runtime.ledger().clear();
  for (const auto& micro : microbatches(make_batch(), 2, {mesh, P("dp")}))
    (loss_of(model->forward(micro.inputs), micro.targets) * micro.weight()).backward();
  EXPECT_TRUE(runtime.ledger().entries().empty());
  optimizer.step();
  Schedule all = schedule;
  all.phases.pop_back();  // the loss, which nobody read
  EXPECT_EQ(to_string(traffic_of(all)), to_string(traffic_of(runtime.ledger())));
  EXPECT_EQ(schedule.phases[4].name, "reduce");
  EXPECT_GT(schedule.phases[4].collectives.size(), 2u);
}

std::int64_t local_bytes(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    bytes += static_cast<std::int64_t>(addressable_shards(tensor)[0].data.nbytes());
  return bytes;
}

TEST(Explain, TellsTheMemoryOfADevice) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 8}});
  constexpr std::int64_t kFloats = kIn * 32 + 32 + 32 * 64 + 64 + 64 * kClasses, kWhole = kClasses;
  constexpr std::int64_t kAll = 4 * (kFloats + kWhole), kCut = 4 * (kFloats / 8 + kWhole);
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    nn::Sequential model = make_model();
    replicate(*model, mesh);
    Zero<AdamW> optimizer(model->parameters(), {.stage = stage}, AdamWOptions(1e-3));
    TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
    EXPECT_FALSE(explain(step).memory.optimizer.has_value());
    step(make_batch());
    const Schedule schedule = explain(step);
    const StepMemory& memory = schedule.memory;
    EXPECT_EQ(memory.parameters, stage == 3 ? kCut : kAll);
    EXPECT_EQ(memory.accumulator, stage >= 2 ? kCut : kAll);
    EXPECT_EQ(memory.gradients, stage >= 1 ? kCut : kAll);
    EXPECT_EQ(memory.gradients, local_bytes(optimizer.shards()));
    // The bias that stays whole is one memory with its shard.
    EXPECT_EQ(memory.shards, stage == 0 || stage == 3 ? 0 : kCut - 4 * kWhole);
    EXPECT_EQ(memory.optimizer, 2 * (stage >= 1 ? kCut : kAll));
    // Forward's parameters and, a group ahead, what backward needs of them: two weights.
    EXPECT_EQ(memory.gathered, stage == 3 ? 4 * (kFloats + 32 * 64 + 64 * kClasses) : 0);
    EXPECT_EQ(schedule.accumulators[0].bytes, kAll);
    EXPECT_EQ(schedule.accumulators[1].bytes, stage == 0 ? kAll : kCut);
    EXPECT_EQ(schedule.accumulators[0].chosen, stage < 2);
    EXPECT_EQ(schedule.accumulators[1].chosen, stage >= 2);
    EXPECT_EQ(schedule.accumulators[1].traffic, 2 * schedule.accumulators[0].traffic);
  }
}

TEST(Explain, Text) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  nn::Sequential model = make_model();
  replicate(*model, mesh);
  Zero<AdamW> optimizer(model->parameters(), {.clip_norm = 1, .bucket_bytes = 4096},
                        AdamWOptions(1e-3));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 4});
  EXPECT_EQ(explain(step).to_string(),
            R"(ZeRO stage 1 over dp of (dp=4, tp=2), 4 microbatches of P(dp)

phase                      collective      axes   count  tensors  bytes/device  meanwhile
-------------------------  --------------  -----  -----  -------  ------------  ------------------------------
microbatches 1 to 3, each  -
microbatch 4: forward      -
microbatch 4: backward     all-reduce      dp         1        1            60  the rest of the backward
                           reduce-scatter  dp         2        3         8,256  the rest of the backward
                           reduce-scatter  dp         1        2         1,632  waits
norm                       all-reduce      dp+tp      1        1            14  waits
optimizer                  -
gather                     all-gather      dp         3        5         9,888  the next forward, to first use
loss                       all-reduce      dp         1        1             6  waits

over dp                       bytes/device
----------------------------  ------------  -------------------------------------------------
gradients and parameters            19,776  2.00 P (d-1)/d, of P = 13,184 bytes of parameters
  while the program computes        18,144
  lower bound                       19,776  1.00 times that is sent
parameters left whole                   60  1 that the axis does not cut
numbers                                 20  norm, loss

accumulator                              bytes/device  collectives a step  bytes sent a step
---------------------------------------  ------------  ------------------  -----------------  ------
Reduce::once, unreduced on every device        13,224                   4              9,948  chosen
Reduce::each, as the optimizer's shards         3,336                  16             39,792

memory                          bytes/device
------------------------------  ------------
parameters                            13,224
gathered parameters                        0
gradients between microbatches        13,224
gradients of the optimizer             3,336
shards that it updates                 3,296
state that it holds                  unknown
)");
}

TEST(Explain, Errors) {
  Runtime runtime({.devices = 8});
  const Mesh mesh = runtime.make_mesh({{"dp", 8}});
  nn::Sequential model = make_model();
  replicate(*model, mesh);
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  TrainStep step(model, loss_of, sgd, {.sharding = {mesh, P("dp")}});
  EXPECT_EQ(
      message([&] { explain(step); }),
      "[explain] optimizer: is no Zero: it reduces what it reads, when it reads it; use a Zero, "
      "stage 0 for replicated parameters");
  Zero<AdamW> zero(model->parameters(), {}, AdamWOptions(1e-3));
  EXPECT_EQ(message([&] { explain(zero.engine(), {.microbatches = 0}); }),
            "[explain] microbatches: got 0, expected at least 1; leave it out for one");
  EXPECT_EQ(message([&] { explain(zero.engine(), {.batch = P("tp")}); }),
            "[explain] batch dim 0: axis \"tp\" is not an axis of mesh (dp=8); use one of: dp");
}

}  // namespace
}  // namespace meshtorch
