// SPDX-License-Identifier: Apache-2.0
//
// Sequence parallelism (docs/sequence_parallel.md) changes where activations lie and which collectives move
// them: not the losses, not the gradients, not the bytes.
#include <meshtorch/models/gpt.h>

#include <regex>

#include <meshtorch/tensor/memory.h>

#include "compare.h"

namespace meshtorch {
namespace {

constexpr std::int64_t kBatch = 8;

GptOptions small_gpt() {
  return {.vocabulary = 32, .length = 16, .width = 32, .layers = 2, .heads = 8};
}

Gpt make_gpt(const GptOptions& options) {
  torch::manual_seed(7);
  return Gpt(options);
}

struct Tokens {
  at::Tensor inputs, targets;
};

Tokens make_tokens(const GptOptions& options, std::int64_t length, int step = 0) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  const auto tokens = torch::randint(options.vocabulary, {kBatch, length + 1}, torch::kLong);
  return {tokens.slice(1, 0, length).contiguous(), tokens.slice(1, 1).contiguous()};
}

struct OnMesh {
  Mesh mesh;
  bool sequence_parallel;
};

Gpt place(Gpt model, const OnMesh& where) {
  shard(*model, where.mesh, gpt_sharding());
  if (where.sequence_parallel) constrain(*model, gpt_sequence_parallel());
  return model;
}

Tokens place(const Tokens& tokens, const OnMesh& where) {
  return {device_put(tokens.inputs, {where.mesh, P("dp")}),
          device_put(tokens.targets, {where.mesh, P("dp")})};
}

struct Case {
  std::vector<MeshAxis> axes;
  std::int64_t length = 16;
  bool tied = false;
  double dropout = 0;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& [dp, tp] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 4}, {2, 2}, {1, 4}}) {
    const std::vector<MeshAxis> axes{{"dp", dp}, {"tp", tp}};
    // 14 over 4 are 4, 4, 4, 2; 5 over 4 are 2, 2, 1 and none.
    for (const std::int64_t length : {16, 14, 5}) cases.push_back({axes, length});
    cases.push_back({.axes = axes, .tied = true});
    cases.push_back({.axes = axes, .dropout = 0.25});
  }
  return cases;
}

class SequenceParallel : public testing::TestWithParam<Case> {
 protected:
  Runtime runtime{{.devices = 8, .seed = 5}};
};

// Plain libtorch draws other numbers for a dropout than a mesh, but a mesh of one device draws those of all.
TEST_P(SequenceParallel, LossAndGradientsEqualOneDevice) {
  const Case& c = GetParam();
  if (!reaches_all(runtime, c.axes)) return;
  auto options = small_gpt();
  options.tied = c.tied;
  options.dropout = c.dropout;
  const auto tokens = make_tokens(options, c.length);

  auto expected = make_gpt(options);
  auto expected_tokens = tokens;
  if (c.dropout > 0) {
    const OnMesh one{runtime.make_mesh({{"dp", 1}, {"tp", 1}}), false};
    expected = place(expected, one);
    expected_tokens = place(tokens, one);
    runtime.manual_seed(3);
  }
  const auto loss = expected->loss(expected_tokens.inputs, expected_tokens.targets);
  loss.backward();
  if (c.dropout > 0) device_get(*expected);

  for (const bool sequence_parallel : {false, true}) {
    SCOPED_TRACE(sequence_parallel ? "sequence parallel" : "tensor parallel");
    const OnMesh where{runtime.make_mesh(c.axes), sequence_parallel};
    auto model = place(make_gpt(options), where);
    const auto placed = place(tokens, where);
    runtime.manual_seed(3);
    const auto got = model->loss(placed.inputs, placed.targets);
    got.backward();
    EXPECT_NEAR(got.item<double>() / loss.item<double>(), 1.0, 1e-6);
    expect_close(*model, *expected, 1e-4, 1e-6);
  }
  EXPECT_TRUE(runtime.fallbacks().empty()) << runtime.fallbacks().front().op;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return name_of(c.axes) + "length" + std::to_string(c.length) + (c.tied ? "_tied" : "") +
         (c.dropout > 0 ? "_dropout" : "");
}

INSTANTIATE_TEST_SUITE_P(Meshes, SequenceParallel, testing::ValuesIn(all_cases()), name_of_case);

// Clipping makes every step depend on the norm of all gradients, those that are unreduced over tp included.
class SequenceParallelTraining : public testing::TestWithParam<std::vector<MeshAxis>> {};

TEST_P(SequenceParallelTraining, TwentyStepsOfAdamWEqualPlainLibtorch) {
  Runtime runtime({.devices = 8});
  constexpr int kSteps = 20;
  const auto options = small_gpt();
  const auto adam = torch::optim::AdamWOptions(3e-3);

  auto dense = make_gpt(options);
  torch::optim::AdamW dense_optimizer(dense->parameters(), adam);
  const OnMesh where{runtime.make_mesh(GetParam()), true};
  auto model = place(make_gpt(options), where);
  Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .clip_norm = 1.0}, adam);
  for (int step = 0; step < kSteps; ++step) {
    const auto tokens = make_tokens(options, 16, step);
    const auto expected = dense->loss(tokens.inputs, tokens.targets);
    expected.backward();
    torch::nn::utils::clip_grad_norm_(dense->parameters(), 1.0);
    dense_optimizer.step();
    dense_optimizer.zero_grad();

    double total = 0;
    for (const auto& micro :
         microbatches({tokens.inputs, tokens.targets}, 2, {where.mesh, P("dp")})) {
      const auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      total += loss.item<double>();
    }
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_NEAR(total / expected.item<double>(), 1.0, 1e-6) << "step " << step;
  }
  EXPECT_TRUE(is_constrained(model->named_parameters()["norm.weight"]));
}

INSTANTIATE_TEST_SUITE_P(Meshes, SequenceParallelTraining,
                         testing::Values(std::vector<MeshAxis>{{"dp", 2}, {"tp", 4}},
                                         std::vector<MeshAxis>{{"dp", 2}, {"tp", 2}},
                                         std::vector<MeshAxis>{{"dp", 1}, {"tp", 4}}),
                         [](const auto& info) { return name_of(info.param) + "m2"; });

// A parameter that is gathered where it is used is the one that the rule named.
TEST(SequenceParallelZero, Stage3KeepsConstraints) {
  Runtime runtime({.devices = 4});
  const OnMesh where{runtime.make_mesh({{"dp", 2}, {"tp", 2}}), true};
  const auto tokens = place(make_tokens(small_gpt(), 16), where);
  std::vector<std::vector<double>> losses;
  std::vector<std::int64_t> scattered;
  for (const int stage : {1, 3}) {
    auto model = place(make_gpt(small_gpt()), where);
    Zero<torch::optim::SGD> optimizer(model->parameters(), {.axis = "dp", .stage = stage},
                                      torch::optim::SGDOptions(0.1));
    auto& mine = losses.emplace_back();
    runtime.ledger().clear();
    for (int step = 0; step < 3; ++step) {
      const auto loss = model->loss(tokens.inputs, tokens.targets);
      loss.backward();
      mine.push_back(loss.item<double>());
      optimizer.step();
      optimizer.zero_grad();
    }
    scattered.push_back(runtime.ledger().count([](const LedgerEntry& entry) {
      return entry.kind == Collective::reduce_scatter && entry.axes == "tp";
    }));
  }
  for (std::size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(losses[1][step] / losses[0][step], 1.0, 1e-6);
  EXPECT_EQ(scattered[0], 3 * 2 * (2 * small_gpt().layers + 1));
  EXPECT_EQ(scattered[1], scattered[0]);
}

class SequenceParallelLedger : public testing::TestWithParam<std::vector<MeshAxis>> {
 protected:
  // What moved over tp in one of the two scopes, but for the loss.
  struct Moved {
    std::int64_t count, bytes;
    bool operator==(const Moved&) const = default;
  };
  Moved moved(Collective kind, const std::string& scope) {
    const auto mine = [&](const LedgerEntry& entry) {
      return entry.kind == kind && entry.scope == scope && entry.axes == "tp" && !of_loss(entry);
    };
    return {runtime.ledger().count(mine), runtime.ledger().bytes(mine)};
  }
  // The cross entropy of sharded classes.
  static bool of_loss(const LedgerEntry& entry) {
    return entry.op.find("softmax") != std::string::npos;
  }
  Gpt forward_and_backward(bool sequence_parallel) {
    const OnMesh where{runtime.make_mesh(GetParam()), sequence_parallel};
    auto options = small_gpt();
    options.dropout = 0.25;
    auto model = place(make_gpt(options), where);
    const auto tokens = place(make_tokens(options, options.length), where);
    runtime.ledger().clear();
    at::Tensor loss;
    {
      const named_scope scope("forward");
      loss = model->loss(tokens.inputs, tokens.targets);
    }
    const named_scope scope("backward");
    loss.backward();
    return model;
  }

  const std::int64_t dp = GetParam()[0].size, tp = GetParam()[1].size;
  const GptOptions options = small_gpt();
  // Of one device's rows, for the whole sequence: what each collective gives or takes.
  const std::int64_t activation = kBatch / dp * options.length * options.width * 4;
  // Two in each block; and the embedding's, which has no counterpart of the head's.
  const std::int64_t count = 2 * options.layers + 1;
  Runtime runtime{{.devices = 8, .memory = true}};
};

TEST_P(SequenceParallelLedger, AReduceScatterAndAnAllGatherForEachAllReduce) {
  std::int64_t loss_bytes[2], all_bytes[2];
  for (const bool sequence_parallel : {false, true}) {
    forward_and_backward(sequence_parallel);
    const auto on_tp = [](const LedgerEntry& entry) { return entry.axes == "tp"; };
    all_bytes[sequence_parallel] = runtime.ledger().bytes(on_tp);
    loss_bytes[sequence_parallel] = runtime.ledger().bytes(of_loss);
    const Moved none{0, 0};
    const Moved whole{count, count * 2 * activation * (tp - 1) / tp};
    const Moved half{count, count * activation * (tp - 1) / tp};
    for (const char* scope : {"forward", "backward"}) {
      EXPECT_EQ(moved(Collective::all_reduce, scope), sequence_parallel ? none : whole) << scope;
      EXPECT_EQ(moved(Collective::reduce_scatter, scope), sequence_parallel ? half : none) << scope;
      EXPECT_EQ(moved(Collective::all_gather, scope), sequence_parallel ? half : none) << scope;
      EXPECT_EQ(moved(Collective::all_to_all, scope), none) << scope;
      EXPECT_EQ(moved(Collective::permute, scope), none) << scope;
    }
  }
  EXPECT_EQ(all_bytes[0], all_bytes[1]);
  // The maximum, the sum of exponentials and, backward, a sum: a number a token each.
  const std::int64_t tokens = kBatch / dp * options.length;
  EXPECT_EQ(loss_bytes[0], 3 * tokens * 4 * 2 * (tp - 1) / tp);
  EXPECT_EQ(loss_bytes[1], loss_bytes[0]);
}

// Cases 13 and 44: a whole parameter that is used on a part of the sequence has a part of its gradient on each
// device, and its layout says so.
TEST_P(SequenceParallelLedger, WhatIsUsedOnAPartOfTheSequenceHasAPartOfItsGradient) {
  std::int64_t partial = 0;
  for (const bool sequence_parallel : {false, true}) {
    const auto model = forward_and_backward(sequence_parallel);
    for (const auto& item : model->named_parameters()) {
      const bool on_parts =
          std::regex_search(item.key(), std::regex(R"(norm[12]?\.|(out|down)\.bias|positions)"));
      const bool expected = sequence_parallel && on_parts;
      const auto layout = sharded_view(item.value().grad())->layout();
      EXPECT_EQ(layout.unreduced.contains(1), expected) << item.key();
      if (expected) partial += item.value().numel() * 4;
    }
    // The optimizer sums them, once a step, however many microbatches there were.
    runtime.ledger().clear();
    Zero<torch::optim::SGD> optimizer(model->parameters(), {.axis = "dp"},
                                      torch::optim::SGDOptions(0.1));
    optimizer.step();
    const auto on_tp = [](const LedgerEntry& entry) { return entry.axes == "tp"; };
    EXPECT_EQ(runtime.ledger().count(on_tp), sequence_parallel ? 1 : 0);
    EXPECT_EQ(runtime.ledger().bytes(on_tp), partial / dp * 2 * (tp - 1) / tp);
  }
}

// What norms and dropouts keep for their gradients, to the byte; and nothing is left after them.
TEST_P(SequenceParallelLedger, NormsAndDropoutsKeepTheirPartOfTheSequence) {
  std::int64_t kept[2];
  for (const bool sequence_parallel : {false, true}) {
    const OnMesh where{runtime.make_mesh(GetParam()), sequence_parallel};
    auto dropping = options;
    dropping.dropout = 0.25;
    auto model = place(make_gpt(dropping), where);
    const auto tokens = place(make_tokens(options, options.length), where);
    const std::int64_t device = device_number(where.mesh, 0);
    const std::int64_t before = runtime.memory()->live(device);
    {
      const auto loss = model->loss(tokens.inputs, tokens.targets);
      kept[sequence_parallel] = runtime.memory()->live(device) - before;
    }
    EXPECT_EQ(runtime.memory()->live(device), before);
  }
  // Of each norm its input and two numbers a row, of each dropout its mask.
  const std::int64_t rows = kBatch / dp * options.length;
  EXPECT_EQ(kept[0] - kept[1], count * (2 * activation + 2 * rows * 4) * (tp - 1) / tp);
}

INSTANTIATE_TEST_SUITE_P(Meshes, SequenceParallelLedger,
                         testing::Values(std::vector<MeshAxis>{{"dp", 2}, {"tp", 4}},
                                         std::vector<MeshAxis>{{"dp", 2}, {"tp", 2}},
                                         std::vector<MeshAxis>{{"dp", 1}, {"tp", 4}}),
                         [](const auto& info) { return name_of(info.param) + "once"; });

// A perceptron that knows no mesh, on rows and on sequences.
TEST(SequenceParallelSequential, LinearAndLayerNorm) {
  namespace nn = torch::nn;
  const std::int64_t width = 8;
  Runtime runtime({.devices = 4});
  const Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  const auto make = [&] {
    torch::manual_seed(1);
    return nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({width})), nn::Linear(width, 16),
                          nn::GELU(), nn::Linear(16, width),
                          nn::LayerNorm(nn::LayerNormOptions({width})));
  };
  const std::vector<std::vector<std::int64_t>> shapes{
      {4, 6, width}, {4, 5, width}, {12, width}, {7, width}};
  for (const auto& shape : shapes) {
    SCOPED_TRACE(join(shape));
    const P cut = shape.size() == 3 ? P("dp", "tp") : P(axes("dp", "tp"));
    auto expected = make(), model = make();
    shard(*model, mesh, PathRules{{"1", P("tp")}, {"3.weight", P(whole, "tp")}, {"", P()}});
    constrain(
        *model,
        {{"[04].weight", cut}, {"1.weight", P("dp")}, {.pattern = "3.weight", .output = cut}});
    torch::manual_seed(2);
    auto x = torch::randn(shape), dense = x.clone().requires_grad_();
    const auto mine = device_put(x, {mesh, P("dp")}).requires_grad_();
    const auto y = expected->forward(dense);
    y.sin().sum().backward();
    runtime.ledger().clear();
    const auto got = model->forward(mine);
    EXPECT_EQ(sharding_of(got).spec, cut);
    std::vector<Collective> kinds;
    for (const auto& entry : runtime.ledger().entries()) kinds.push_back(entry.kind);
    EXPECT_EQ(kinds, (std::vector{Collective::all_gather, Collective::reduce_scatter}))
        << runtime.ledger().to_string();
    got.sin().sum().backward();
    expect_close(got, y, "output", 1e-4, 1e-5);
    expect_close(mine.grad(), dense.grad(), "gradient of x", 1e-4, 1e-5);
    expect_close(*model, *expected, 1e-4, 1e-5);
  }
}

// Without autograd nobody keeps what q, k and v share: the answer is the same.
TEST(SequenceParallelInference, LogitsEqualDense) {
  Runtime runtime({.devices = 4});
  const OnMesh where{runtime.make_mesh({{"dp", 2}, {"tp", 2}}), true};
  const auto options = small_gpt();
  const auto tokens = make_tokens(options, 15);
  const auto expected = make_gpt(options)->forward(tokens.inputs);
  auto model = place(make_gpt(options), where);
  torch::NoGradGuard no_grad;
  expect_close(model->forward(place(tokens, where).inputs), expected, "logits", 1e-4, 1e-6);
}

}  // namespace
}  // namespace meshtorch
