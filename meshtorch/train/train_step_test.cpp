// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/train_step.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

constexpr std::int64_t kRows = 32, kIn = 16, kClasses = 10;

nn::Sequential make_model() {
  torch::manual_seed(3);
  return nn::Sequential(nn::Linear(kIn, 32), nn::ReLU(), nn::Linear(32, 64), nn::ReLU(),
                        nn::Linear(64, kClasses));
}

// Every fifth target does not count.
Batch make_batch(int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  at::Tensor targets = torch::randint(kClasses, {kRows}, torch::kLong);
  targets.slice(0, step % 5, kRows, 5).fill_(-100);
  return {torch::randn({kRows, kIn}), targets};
}

at::Tensor loss_of(const at::Tensor& outputs, const at::Tensor& targets) {
  return nn::functional::cross_entropy(outputs, targets);
}

void expect_bits(const nn::Sequential& got, const nn::Sequential& expected) {
  const auto named = got->named_parameters();
  for (const auto& item : expected->named_parameters()) {
    EXPECT_TRUE(torch::equal(full(named[item.key()].detach()), full(item.value().detach())))
        << item.key();
  }
}

class TrainSteps : public testing::Test {
 protected:
  nn::Sequential sharded_model() {
    nn::Sequential model = make_model();
    shard(*model, mesh,
          PathRules({{"0\\.(weight|bias)", P("tp")}, {"2\\.weight", P(whole, "tp")}})
              .otherwise(Unmatched::replicate));
    return model;
  }

  Runtime runtime{{.devices = 8}};
  Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

struct Setup {
  int stage;
  std::int64_t microbatches;
};

class TrainStepBits : public TrainSteps, public testing::WithParamInterface<Setup> {};

TEST_P(TrainStepBits, IsTheLoopWrittenByHand) {
  const auto [stage, count] = GetParam();
  nn::Sequential by_hand = sharded_model(), model = sharded_model();
  const ZeroOptions zero{.stage = stage, .clip_norm = 0.5};
  Zero<AdamW> loop(by_hand->parameters(), zero, AdamWOptions(1e-2));
  Zero<AdamW> optimizer(model->parameters(), zero, AdamWOptions(1e-2));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = count});
  for (int i = 0; i < 4; ++i) {
    at::Tensor total;
    for (const auto& micro : microbatches(make_batch(i), count, {mesh, P("dp")})) {
      std::optional<reduce_scope> scope;
      if (micro.last()) scope.emplace(loop, Reduce::each);
      const at::Tensor loss =
          loss_of(by_hand->forward(micro.inputs), micro.targets) * micro.weight();
      loss.backward();
      total = total.defined() ? total + loss.detach() : loss.detach();
    }
    loop.step();
    loop.zero_grad();
    const StepMetrics metrics = step(make_batch(i));
    EXPECT_EQ(*metrics.loss, total.item<double>());
    EXPECT_EQ(*metrics.gradient_norm, *loop.gradient_norm());
    expect_bits(model, by_hand);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainStepBits,
                         testing::Values(Setup{1, 1}, Setup{1, 4}, Setup{3, 1}, Setup{3, 4}));

TEST_F(TrainSteps, IsTheSingleDeviceRun) {
  nn::Sequential plain = make_model(), model = sharded_model();
  AdamW alone(plain->parameters(), AdamWOptions(1e-3));
  Zero<AdamW> optimizer(model->parameters(), {}, AdamWOptions(1e-3));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 4});
  for (int i = 0; i < 10; ++i) {
    const Batch batch = make_batch(i);
    alone.zero_grad();
    const at::Tensor loss = loss_of(plain->forward(batch.inputs), batch.targets);
    loss.backward();
    alone.step();
    EXPECT_NEAR(*step(batch).loss / loss.item<double>(), 1, 1e-6) << "step " << i;
  }
}

TEST_F(TrainSteps, MetricsAreWhatCountingGives) {
  nn::Sequential plain = make_model(), model = sharded_model();
  Zero<AdamW> optimizer(model->parameters(), {.clip_norm = INFINITY}, AdamWOptions(1e-3));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
  const Batch batch = make_batch(0);
  loss_of(plain->forward(batch.inputs), batch.targets).backward();
  const double norm = nn::utils::clip_grad_norm_(plain->parameters(), INFINITY);

  full(replicate(torch::ones({4}), mesh).sum());
  device_put(torch::ones({8}), {mesh, P("dp")}).sum().item<double>();  // an entry before the step
  const auto before = runtime.ledger().entries().size();
  ASSERT_GT(before, 0u);
  const StepMetrics metrics = step(batch);

  EXPECT_EQ(metrics.tokens, kRows - 7);
  EXPECT_NEAR(*metrics.gradient_norm / norm, 1, 1e-6);
  EXPECT_FALSE(metrics.skipped);
  EXPECT_EQ(metrics.loss_scale, 1);
  const auto& all = runtime.ledger().entries();
  const auto& mine = metrics.collectives.entries();
  ASSERT_EQ(mine.size(), all.size() - before);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].op, all[before + i].op);
    EXPECT_EQ(mine[i].bytes, all[before + i].bytes);
  }
  // (d-1)/d of the floats that a device of tp holds, but the last bias: dp 4 does not divide 10.
  const std::int64_t cut = (kIn * 32 + 32) / 2 + 32 * 64 / 2 + 64 + 64 * kClasses;
  const auto over_dp = [](Collective kind) {
    return [kind](const LedgerEntry& entry) { return entry.kind == kind && entry.axes == "dp"; };
  };
  EXPECT_EQ(metrics.collectives.bytes(over_dp(Collective::reduce_scatter)), cut * 4 * 3 / 4);
  EXPECT_EQ(metrics.collectives.bytes(over_dp(Collective::all_gather)), cut * 4 * 3 / 4);
  EXPECT_EQ(
      metrics.collectives.count([](const LedgerEntry& entry) { return entry.scope == "loss"; }), 1);
  EXPECT_GT(metrics.collectives.count(
                [](const LedgerEntry& entry) { return entry.scope.starts_with("microbatch"); }),
            0);
}

TEST_F(TrainSteps, RowsAreReadInParts) {
  nn::Sequential one = sharded_model(), other = sharded_model();
  Zero<AdamW> first(one->parameters(), {}, AdamWOptions(1e-2));
  Zero<AdamW> second(other->parameters(), {}, AdamWOptions(1e-2));
  const TrainStepOptions options{.sharding = {mesh, P("dp")}, .microbatches = 4};
  TrainStep whole(one, loss_of, first, options), rows(other, loss_of, second, options);
  const Batch batch = make_batch(1);
  const RowSource source{
      .rows = kRows, .read = [&](std::int64_t begin, std::int64_t end) {
        return Batch{batch.inputs.slice(0, begin, end), batch.targets.slice(0, begin, end)};
      }};
  const StepMetrics expected = whole(batch), got = rows(source);
  EXPECT_EQ(got.loss, expected.loss);
  EXPECT_EQ(got.tokens, expected.tokens);
  EXPECT_EQ(got.collectives.count(
                [](const LedgerEntry& entry) { return entry.scope.starts_with("microbatches"); }),
            1);
  expect_bits(other, one);
}

TEST_F(TrainSteps, IgnoresWhatTheProgramSays) {
  nn::Sequential model = sharded_model();
  Zero<AdamW> optimizer(model->parameters(), {}, AdamWOptions(1e-2));
  const auto loss = [](const at::Tensor& outputs, const at::Tensor& targets) {
    return nn::functional::cross_entropy(outputs, targets,
                                         nn::functional::CrossEntropyFuncOptions().ignore_index(3));
  };
  TrainStep step(model, loss, optimizer,
                 {.sharding = {mesh, P("dp")}, .microbatches = 2, .ignore_index = 3});
  nn::Sequential plain = make_model();
  Batch batch = make_batch(0);
  batch.targets = batch.targets.clamp_min(0);
  const StepMetrics metrics = step(batch);
  EXPECT_EQ(metrics.tokens, batch.targets.ne(3).sum().item<std::int64_t>());
  EXPECT_NEAR(*metrics.loss, loss(plain->forward(batch.inputs), batch.targets).item<double>(),
              1e-6);
}

TEST_F(TrainSteps, AnyOtherOptimizer) {
  nn::Sequential plain = make_model(), model = sharded_model();
  torch::optim::SGD alone(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TrainStep step(model, loss_of, optimizer,
                 {.sharding = {mesh, P("dp")}, .microbatches = 4, .clip_norm = 0.2});
  for (int i = 0; i < 10; ++i) {
    const Batch batch = make_batch(i);
    alone.zero_grad();
    const at::Tensor loss = loss_of(plain->forward(batch.inputs), batch.targets);
    loss.backward();
    const double norm = nn::utils::clip_grad_norm_(plain->parameters(), 0.2);
    alone.step();
    const StepMetrics metrics = step(batch);
    EXPECT_NEAR(*metrics.loss / loss.item<double>(), 1, 1e-6);
    EXPECT_NEAR(*metrics.gradient_norm / norm, 1, 1e-5);
    EXPECT_FALSE(model->parameters()[0].grad().defined());
  }
}

// As with any op on plain and sharded tensors: what is plain is the same everywhere.
TEST_F(TrainSteps, AModelThatNobodyPlacedBecomesReplicated) {
  nn::Sequential plain = make_model(), model = make_model();
  AdamW alone(plain->parameters(), AdamWOptions(1e-3));
  AdamW optimizer(model->parameters(), AdamWOptions(1e-3));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
  for (int i = 0; i < 10; ++i) {
    const Batch batch = make_batch(i);
    alone.zero_grad();
    const at::Tensor loss = loss_of(plain->forward(batch.inputs), batch.targets);
    loss.backward();
    alone.step();
    EXPECT_NEAR(*step(batch).loss / loss.item<double>(), 1, 1e-6);
  }
  EXPECT_EQ(sharding_of(model->parameters()[0]).spec, P());
}

TEST_F(TrainSteps, MeasuresNoNormThatNobodyAskedFor) {
  nn::Sequential model = sharded_model();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}});
  EXPECT_FALSE(step(make_batch(0)).gradient_norm.has_value());
}

TEST_F(TrainSteps, AModelWithItsOwnLoss) {
  nn::Sequential one = sharded_model(), other = sharded_model();
  Zero<AdamW> first(one->parameters(), {}, AdamWOptions(1e-2));
  Zero<AdamW> second(other->parameters(), {}, AdamWOptions(1e-2));
  const TrainStepOptions options{.sharding = {mesh, P("dp")}, .microbatches = 2};
  TrainStep split(one, loss_of, first, options);
  TrainStep joint(
      [&](const at::Tensor& inputs, const at::Tensor& targets) {
        return loss_of(other->forward(inputs), targets);
      },
      second, options);
  EXPECT_EQ(joint(make_batch(0)).loss, split(make_batch(0)).loss);
  expect_bits(other, one);
}

TEST_F(TrainSteps, HoldersPointersAndCallablesAreModels) {
  nn::Linear model(kIn, kClasses);
  replicate(*model, mesh);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.));
  const Batch batch = make_batch(0);
  const auto loss_with = [&](ForwardFunction forward, LossFunction loss) {
    TrainStep step(forward, loss, optimizer, {.sharding = {mesh, P("dp")}});
    return step(batch).loss;
  };
  const double expected = *loss_with(model, loss_of);
  EXPECT_EQ(loss_with(model.ptr(), loss_of), expected);
  EXPECT_EQ(loss_with([&](const at::Tensor& x) { return model(x); }, nn::CrossEntropyLoss()),
            expected);
}

TEST_F(TrainSteps, NothingOfAMicrobatchOutlivesIt) {
  nn::Sequential model = sharded_model();
  Zero<AdamW> optimizer(model->parameters(), {}, AdamWOptions(1e-2));
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> seen;
  const auto forward = [&](const at::Tensor& inputs) {
    for (const auto& earlier : seen) EXPECT_TRUE(earlier.expired());
    const at::Tensor outputs = model->forward(inputs);
    seen.emplace_back(inputs.getIntrusivePtr());
    seen.emplace_back(outputs.getIntrusivePtr());
    return outputs;
  };
  TrainStep step(forward, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 4});
  step(make_batch(0));
  EXPECT_EQ(seen.size(), 8u);
}

TEST_F(TrainSteps, SkipsWhatIsNotFinite) {
  nn::Sequential model = sharded_model();
  Zero<AdamW> optimizer(model->parameters(), {.skip_nonfinite = true}, AdamWOptions(1e-2));
  TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
  EXPECT_FALSE(step(make_batch(0)).skipped);
  const auto values = [&] {
    std::vector<at::Tensor> all;
    for (const auto& parameter : model->parameters())
      all.push_back(full(parameter.detach()).clone());
    for (const auto& shard : optimizer.shards()) {
      const auto& state = static_cast<const torch::optim::AdamWParamState&>(
          *optimizer.state().at(shard.unsafeGetTensorImpl()));
      all.push_back(full(state.exp_avg()).clone());
      all.push_back(torch::tensor(state.step()));
    }
    return all;
  };
  const auto before = values();
  Batch bad = make_batch(1);
  bad.inputs[3][2] = NAN;
  const StepMetrics metrics = step(bad);
  EXPECT_TRUE(metrics.skipped);
  EXPECT_FALSE(std::isfinite(*metrics.gradient_norm));
  EXPECT_TRUE(std::isnan(*metrics.loss));
  const auto after = values();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(torch::equal(before[i], after[i])) << i;
  EXPECT_FALSE(step(make_batch(2)).skipped);
  EXPECT_FALSE(torch::equal(before[0], values()[0]));
}

TEST_F(TrainSteps, LossesAreScaledAndTheMetricIsNot) {
  nn::Sequential plain = make_model(), model = sharded_model();
  const auto precision = Precision::parse("params=float32, compute=float16, output=float32");
  Zero<AdamW> optimizer(model->parameters(), {.precision = precision}, AdamWOptions(1e-3));
  at::ScalarType computed{}, given{};
  const auto forward = [&](const at::Tensor& inputs) {
    computed = inputs.scalar_type();
    return model->forward(inputs);
  };
  const auto loss = [&](const at::Tensor& outputs, const at::Tensor& targets) {
    given = outputs.scalar_type();
    return loss_of(outputs, targets);
  };
  TrainStep step(forward, loss, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
  const Batch batch = make_batch(0);
  const at::Tensor expected = loss_of(plain->forward(batch.inputs), batch.targets);
  expected.backward();
  const double norm = nn::utils::clip_grad_norm_(plain->parameters(), INFINITY);
  const StepMetrics metrics = step(batch);
  EXPECT_EQ(computed, torch::kHalf);
  EXPECT_EQ(given, torch::kFloat);
  EXPECT_EQ(metrics.loss_scale, 65536);
  EXPECT_NEAR(*metrics.loss / expected.item<double>(), 1, 2e-3);
  EXPECT_NEAR(*metrics.gradient_norm / norm, 1, 5e-3);
}

TEST_F(TrainSteps, Errors) {
  nn::Sequential model = sharded_model(), other = sharded_model();
  Zero<AdamW> zero(model->parameters(), {}, AdamWOptions(1e-3));
  torch::optim::SGD sgd(other->parameters(), torch::optim::SGDOptions(0.1));
  const NamedSharding rows{mesh, P("dp")};
  const auto made = [&](TrainStepOptions options, SteppedOptimizer optimizer) {
    return message([&] { TrainStep(model, loss_of, optimizer, options); });
  };
  EXPECT_EQ(made({}, zero), "[TrainStep] sharding: has no mesh; give {mesh, P(\"dp\")}");
  EXPECT_EQ(made({.sharding = rows, .microbatches = 0}, zero),
            "[TrainStep] microbatches: got 0, expected at least 1; leave it out for one");
  EXPECT_EQ(made({.sharding = rows, .clip_norm = 1}, zero),
            "[TrainStep] clip_norm: is for other optimizers than Zero; set ZeroOptions::clip_norm");
  EXPECT_EQ(made({.sharding = rows, .clip_norm = 0}, sgd),
            "[TrainStep] clip_norm: got 0, expected a positive number; leave it out not to clip");
  EXPECT_EQ(message([&] { TrainStep(ForwardFunction(), loss_of, zero, {.sharding = rows}); }),
            "[TrainStep] model: is empty; give a module or a function of a tensor");
  EXPECT_EQ(message([&] { TrainStep(LossFunction(), zero, {.sharding = rows}); }),
            "[TrainStep] loss: is empty; give a function of two tensors");

  const auto stepped = [&](LossFunction loss, SteppedOptimizer optimizer) {
    return message([&] { TrainStep(model, loss, optimizer, {.sharding = rows})(make_batch(0)); });
  };
  const auto each = [](const at::Tensor& outputs, const at::Tensor&) { return outputs.sum(1); };
  EXPECT_EQ(stepped(each, zero),
            "[TrainStep] loss: has sizes [32], expected a scalar; return the mean over the valid "
            "targets");
  EXPECT_EQ(stepped([](const auto&, const auto&) { return at::Tensor(); }, zero),
            "[TrainStep] loss: is undefined; return the mean over the valid targets");
  EXPECT_EQ(stepped([](const auto& outputs, const auto&) { return outputs.detach().sum(); }, zero),
            "[TrainStep] loss: depends on no parameter that requires a gradient; unfreeze one, and "
            "call outside of a NoGradGuard");
  const std::string none =
      "[TrainStep] gradients: no parameter of the optimizer got one; give the optimizer the "
      "parameters of this model, and TrainStep a Zero as what it is";
  EXPECT_EQ(stepped(loss_of, sgd), none);  // of another model
  EXPECT_EQ(
      message([&] { SteppedOptimizer(static_cast<torch::optim::Optimizer&>(zero)); }),
      "[TrainStep] optimizer: is a Zero behind torch::optim::Optimizer; give it as what it is");
  Zero<AdamW> of_other(other->parameters(), {}, AdamWOptions(1e-3));
  EXPECT_EQ(stepped(loss_of, of_other), none);
  TrainStep step(model, loss_of, zero, {.sharding = rows, .microbatches = 33});
  EXPECT_EQ(message([&] { step(make_batch(0)); }),
            "[microbatches] count: got 33, expected 1 to the batch size 32; use fewer microbatches "
            "or a larger batch");
}

// What a step had accumulated when it failed is no part of the next one.
TEST_F(TrainSteps, AfterAFailureTheNextStepIsAFreshOne) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto weights = [&](bool fails) {
      nn::Sequential model = sharded_model();
      Zero<AdamW> zero(model->parameters(), {.stage = stage}, AdamWOptions(1e-2));
      int left = -1;
      const auto loss = [&](const at::Tensor& outputs, const at::Tensor& targets) {
        if (left-- == 0) throw std::runtime_error("the program's own");
        return loss_of(outputs, targets);
      };
      TrainStep step(model, loss, zero, {.sharding = {mesh, P("dp")}, .microbatches = 4});
      if (fails) {
        left = 2;
        EXPECT_EQ(message([&] { step(make_batch(3)); }), "the program's own");
        left = -1;
      }
      step(make_batch(0));
      std::vector<at::Tensor> all;
      for (const at::Tensor& parameter : model->parameters())
        all.push_back(full(parameter.detach()));
      return all;
    };
    const auto fresh = weights(false), after = weights(true);
    for (std::size_t i = 0; i < fresh.size(); ++i) EXPECT_TRUE(torch::equal(after[i], fresh[i]));
  }
}

// A dry run has the ledger of the run, and no loss.
TEST(TrainStepMeta, HasTheCollectivesAndNoValues) {
  const auto run = [](bool meta) {
    Runtime runtime({.devices = 8, .meta = meta});
    const Mesh mesh = runtime.make_mesh({{"dp", 8}});
    nn::Sequential model = make_model();
    replicate(*model, mesh);
    Zero<AdamW> optimizer(model->parameters(), {.stage = 3, .clip_norm = 1}, AdamWOptions(1e-3));
    TrainStep step(model, loss_of, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 2});
    step(make_batch(0));
    return step(make_batch(5));
  };
  const StepMetrics real = run(false), dry = run(true);
  EXPECT_TRUE(real.loss.has_value());
  EXPECT_FALSE(dry.loss.has_value());
  EXPECT_FALSE(dry.gradient_norm.has_value());
  const auto lines = [](const Ledger& ledger) {
    std::vector<std::string> lines;
    for (const LedgerEntry& entry : ledger.entries()) {
      lines.push_back(text(name(entry.kind), " ", entry.axes, " ", entry.bytes, " ", entry.tensors,
                           " ", entry.op, " ", entry.scope));
    }
    return lines;
  };
  EXPECT_EQ(lines(dry.collectives), lines(real.collectives));
}

}  // namespace
}  // namespace meshtorch
