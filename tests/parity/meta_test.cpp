// SPDX-License-Identifier: Apache-2.0
//
// Dry runs: a program on meta shards makes the collectives, layouts and shapes of the run with values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <chrono>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/cnn.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/models/mlp.h>

#include "compare.h"

namespace mt = meshtorch;
using mt::P;
using testing::HasSubstr;

namespace {

using Axes = std::vector<mt::MeshAxis>;

// What a run leaves behind, as text: every collective in order, every tensor's layout and shape.
struct Trace {
  std::vector<std::string> collectives, tensors;

  void note(const mt::Runtime& runtime) {
    for (const mt::LedgerEntry& e : const_cast<mt::Runtime&>(runtime).ledger().entries()) {
      collectives.push_back(mt::text(name(e.kind), " ", e.axes, " ", e.bytes, " x", e.tensors, " ",
                                     e.op, " ", e.scope, " ", name(e.origin)));
    }
  }
  void note(const std::string& name, const at::Tensor& x) {
    if (!x.defined()) {
      tensors.push_back(name + " undefined");
      return;
    }
    std::string line = mt::text(name, " ", x.scalar_type(), " (", mt::join(x.sizes()),
                                ") strides (", mt::join(x.strides()), ") ", x.device());
    if (mt::is_sharded(x)) {
      line += " " + mt::sharding_of(x).spec.to_string();
      for (const mt::Shard& shard : mt::addressable_shards(x))
        line += mt::text(" [", mt::join(shard.data.sizes()), "]");
    }
    tensors.push_back(line);
  }
  void note(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) {
      note(item.key(), item.value());
      note("gradient of " + item.key(), item.value().grad());
    }
    for (const auto& item : module.named_buffers()) note(item.key(), item.value());
  }
};

void expect_equal(const Trace& dry, const Trace& real) {
  EXPECT_FALSE(real.tensors.empty());
  EXPECT_EQ(dry.tensors, real.tensors);
  EXPECT_EQ(dry.collectives, real.collectives);
}

template <class F>
Trace trace(bool meta, const Axes& axes, F program) {
  mt::Runtime runtime({.devices = 8, .meta = meta, .warn_fallback = false});
  Trace result;
  program(runtime.make_mesh(axes), result);
  result.note(runtime);
  return result;
}

// Whether the run made any collective.
template <class F>
bool expect_same_run(const Axes& axes, F program) {
  const Trace dry = trace(true, axes, program);
  expect_equal(dry, trace(false, axes, program));
  return !dry.collectives.empty();
}

bool many(const Axes& axes) {
  return std::any_of(axes.begin(), axes.end(), [](const auto& axis) { return axis.size > 1; });
}

class Meta : public testing::TestWithParam<Axes> {};

mt::GptOptions small_gpt() {
  return {.vocabulary = 50, .length = 12, .width = 32, .layers = 2, .heads = 8, .dropout = 0.1};
}

void train_gpt(const mt::Mesh& mesh, Trace& trace, std::int64_t micro, bool zero, bool tied) {
  auto options = small_gpt();
  options.tied = tied;
  torch::manual_seed(7);
  mt::Gpt model(options);
  mt::shard(*model, mesh, mt::gpt_sharding());
  const auto tokens = torch::randint(options.vocabulary, {8, options.length + 1}, torch::kLong);
  const mt::Batch batch{tokens.slice(1, 0, -1).contiguous(), tokens.slice(1, 1).contiguous()};
  const auto adamw = torch::optim::AdamWOptions(3e-3);
  const auto step = [&](auto& optimizer) {
    for (int i = 0; i < 2; ++i) {
      mt::named_scope scope("step");
      for (const auto& part : mt::microbatches(batch, micro, {mesh, P("dp")})) {
        mt::named_scope inner("microbatch");
        const auto loss = model->loss(part.inputs, part.targets) * part.weight();
        trace.note("loss", loss);
        loss.backward();
      }
      trace.note(*model);
      optimizer.step();
      optimizer.zero_grad();
    }
  };
  if (zero) {
    mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .clip_norm = 1.0},
                                            adamw);
    step(optimizer);
    for (const auto& shard : optimizer.shards()) trace.note("shard", shard);
  } else {
    torch::optim::AdamW optimizer(model->parameters(), adamw);
    step(optimizer);
  }
  trace.note(*model);
}

TEST_P(Meta, GptStepsWithZero) {
  for (const std::int64_t micro : {1, 4}) {
    const bool moves = expect_same_run(GetParam(), [&](const mt::Mesh& mesh, Trace& trace) {
      train_gpt(mesh, trace, micro, true, false);
    });
    EXPECT_EQ(moves, many(GetParam()));
  }
}

TEST_P(Meta, TiedGptStepsOfPlainAdamW) {
  const bool moves = expect_same_run(GetParam(), [](const mt::Mesh& mesh, Trace& trace) {
    train_gpt(mesh, trace, 4, false, true);
  });
  EXPECT_EQ(moves, many(GetParam()));
}

TEST_P(Meta, CnnSteps) {
  expect_same_run(GetParam(), [](const mt::Mesh& mesh, Trace& trace) {
    torch::manual_seed(3);
    mt::Cnn model(mt::CnnOptions{.dropout = 0.2});
    mt::shard(*model, mesh, mt::cnn_sharding());
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto images = mt::device_put(torch::randn({13, 1, 8, 8}), {mesh, P("dp")});
    const auto labels = mt::device_put(torch::randint(10, {13}, torch::kLong), {mesh, P("dp")});
    for (const bool training : {true, true, false}) {
      model->train(training);
      const auto loss = torch::cross_entropy_loss(model->forward(images), labels);
      trace.note("loss", loss);
      loss.backward();
      trace.note(*model);
      optimizer.step();
      optimizer.zero_grad();
    }
  });
}

TEST_P(Meta, MlpSteps) {
  expect_same_run(GetParam(), [](const mt::Mesh& mesh, Trace& trace) {
    torch::manual_seed(3);
    mt::Mlp model(mt::MlpOptions{.in = 6, .hidden = 16, .out = 3, .layers = 4});
    mt::shard(*model, mesh, mt::mlp_sharding());
    torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.1));
    const auto x = mt::device_put(torch::randn({10, 6}), {mesh, P("dp")});
    const auto y = mt::device_put(torch::randn({10, 3}), {mesh, P("dp", "tp")});
    auto total = torch::zeros({});
    for (int i = 0; i < 2; ++i) {
      const auto loss = torch::mse_loss(model->forward(x), y);
      loss.backward();
      total += loss.detach();
      trace.note("total", total);
      trace.note(*model);
      optimizer.step();
      optimizer.zero_grad(false);
    }
    trace.note("reshard", mt::reshard(y, P("tp", "dp")));
    trace.note("permute", mt::reshard(y, P(mt::axes("tp", "dp"))));
    trace.note("put", mt::device_put(x, {mesh, P(mt::whole, "tp").unreduced("dp")}));
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, Meta,
                         testing::Values(Axes{{"dp", 4}, {"tp", 2}}, Axes{{"dp", 2}, {"tp", 4}},
                                         Axes{{"dp", 8}, {"tp", 1}}, Axes{{"dp", 1}, {"tp", 8}},
                                         Axes{{"dp", 1}, {"tp", 1}},
                                         Axes{{"pp", 2}, {"dp", 2}, {"tp", 2}}),
                         [](const auto& info) { return mt::name_of(info.param); });

// The most memory this process has held so far, in bytes.
std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

TEST(MetaModel, OfHundredsOfGigabytesTakesNoMemoryAndSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t before = peak_memory();
  mt::Runtime runtime({.devices = 64, .meta = true, .tune_malloc = false});
  const auto mesh = runtime.make_mesh({{"dp", 8}, {"tp", 8}});
  // GPT-3: 96 layers of width 12288.
  const mt::GptOptions options{
      .vocabulary = 50304, .length = 2048, .width = 12288, .layers = 96, .heads = 96};
  mt::Gpt model{nullptr};
  {
    mt::meta_scope meta;
    model = mt::Gpt(options);
  }
  EXPECT_GT(mt::parameter_count(options) * 4, 500'000'000'000);
  mt::shard(*model, mesh, mt::gpt_sharding());
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp"},
                                          torch::optim::AdamWOptions(3e-4));
  const auto meta_tokens = torch::TensorOptions(torch::kLong).device(torch::kMeta);
  const mt::Batch batch{torch::empty({32, 2048}, meta_tokens),
                        torch::empty({32, 2048}, meta_tokens)};
  for (const auto& micro : mt::microbatches(batch, 4, {mesh, P("dp")}))
    (model->loss(micro.inputs, micro.targets) * micro.weight()).backward();
  optimizer.step();
  optimizer.zero_grad();
  // ZeRO-1's lower bound, 7/8 of a tp shard each way; the few leaves that tp does not cut are whole.
  std::int64_t bytes = 0;
  for (const auto& parameter : model->parameters()) {
    bytes += mt::addressable_shards(parameter)[0].data.numel() * 4;
  }
  const auto of = [&](mt::Collective kind) {
    return runtime.ledger().bytes([&](const mt::LedgerEntry& entry) {
      return entry.kind == kind && entry.scope == "zero" && entry.axes == "dp";
    });
  };
  EXPECT_EQ(of(mt::Collective::reduce_scatter), bytes / 8 * 7);
  EXPECT_EQ(of(mt::Collective::all_gather), bytes / 8 * 7);
  EXPECT_LT(peak_memory() - before, 1'000'000'000);
  const auto seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("seconds", std::to_string(seconds));
  std::cout << "  " << mt::parameter_count(options) * 4 / 1'000'000'000 << " GB of parameters in "
            << seconds << " s and " << (peak_memory() - before) / 1'000'000 << " MB\n";
}

TEST(MetaErrors, WhatNeedsValuesSaysSo) {
  mt::Runtime runtime({.devices = 4, .meta = true, .warn_fallback = false});
  for (const std::int64_t devices : {4, 1}) {
    const auto mesh = runtime.make_mesh({{"dp", devices}});
    const auto x = mt::device_put(torch::randn({8, 3}), {mesh, P("dp")});
    const auto needs = [](const std::string& op) {
      return testing::AllOf(HasSubstr("[aten::" + op + "]"), HasSubstr("values"),
                            HasSubstr("there are none in a meta run"));
    };
    EXPECT_THAT(mt::message_of([&] { x.sum().item<float>(); }), needs("_local_scalar_dense"));
    EXPECT_THAT(mt::message_of([&] { x.nonzero(); }), needs("nonzero"));
    EXPECT_THAT(mt::message_of([&] { x.masked_select(x > 0); }), needs("masked_select"));
    EXPECT_THAT(mt::message_of([&] { x.index({x > 0}); }), needs("index.Tensor"));
    EXPECT_THAT(mt::message_of([&] { x.equal(x.clone()); }), needs("_local_scalar_dense"));
    EXPECT_THAT(mt::message_of([&] { x.allclose(x.clone()); }), needs("_local_scalar_dense"));
    EXPECT_THAT(mt::message_of([&] { at::_unique2(x); }), needs("_unique2"));
    EXPECT_THAT(mt::message_of([&] { x.tensor_split(x.select(1, 0).to(torch::kLong)); }),
                needs("tensor_split"));
    const auto index = mt::device_put(torch::arange(8), {mesh, P("dp")});
    EXPECT_EQ(x.index({index}).sizes(), x.sizes());
  }
}

TEST(MetaErrors, LbfgsStepsByValues) {
  mt::Runtime runtime({.devices = 2, .meta = true});
  const auto mesh = runtime.make_mesh({{"dp", 2}});
  auto w = mt::device_put(torch::randn({4}), {mesh, P("dp")}).requires_grad_();
  torch::optim::LBFGS optimizer({w}, torch::optim::LBFGSOptions(0.1));
  EXPECT_THAT(mt::message_of([&] {
                optimizer.step([&] {
                  optimizer.zero_grad();
                  auto loss = w.square().sum();
                  loss.backward();
                  return loss;
                });
              }),
              HasSubstr("there are none in a meta run"));
}

TEST(MetaErrors, APlainLeafHasValuesAndGetsNoGradientWithout) {
  mt::Runtime runtime({.devices = 2, .meta = true});
  const auto mesh = runtime.make_mesh({{"dp", 2}});
  auto w = torch::randn({4}).requires_grad_();
  EXPECT_THAT(mt::message_of([&] {
                mt::device_put(w, {mesh, P("dp")}).sum().backward();
              }),
              HasSubstr("[device_put.backward] x: a plain tensor that has values"));
}

TEST(MetaShards, BelongToATensorAndNotToTheRuntime) {
  mt::Runtime runtime({.devices = 4, .warn_fallback = false});
  const auto mesh = runtime.make_mesh({{"dp", 4}});
  const auto x = mt::device_put(torch::empty({8, 3}, torch::kMeta), {mesh, P("dp")});
  EXPECT_TRUE(mt::is_meta(x));
  EXPECT_TRUE(mt::is_meta(x + torch::ones({3})));
  EXPECT_TRUE(mt::full(x).is_meta());
  EXPECT_THAT(mt::to_string(x), HasSubstr("values unknown"));
  auto real = mt::device_put(torch::ones({8, 3}), {mesh, P("dp")});
  EXPECT_FALSE(mt::is_meta(real));
  EXPECT_TRUE(mt::is_meta(real * x));
  EXPECT_THAT(mt::message_of([&] { real.mul_(x); }), HasSubstr("there are none in a meta run"));
  EXPECT_EQ(mt::full(real).sum().item<float>(), 24);
}

TEST(MetaScope, CreatesWithoutMemoryWhatNamesNoDevice) {
  mt::Runtime runtime;
  {
    mt::meta_scope meta;
    torch::nn::BatchNorm2d norm(3);
    EXPECT_TRUE(norm->weight.is_meta());
    EXPECT_TRUE(norm->running_mean.is_meta());
    EXPECT_TRUE(torch::randn({1 << 20, 1 << 20}).is_meta());
    EXPECT_FALSE(torch::ones({2}, torch::kCPU).is_meta());
    EXPECT_FALSE(torch::ones_like(torch::ones({2}, torch::kCPU)).is_meta());
  }
  EXPECT_FALSE(torch::ones({2}).is_meta());
}

}  // namespace
