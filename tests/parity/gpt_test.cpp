// SPDX-License-Identifier: Apache-2.0
//
// A GPT trained on every mesh is the GPT trained on one device by plain libtorch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::P;

namespace {

mt::GptOptions small_gpt() {
  return {.vocabulary = 32, .length = 16, .width = 32, .layers = 2, .heads = 8};
}

mt::Gpt make_gpt(const mt::GptOptions& options) {
  torch::manual_seed(7);
  return mt::Gpt(options);
}

mt::Batch make_batch(const mt::GptOptions& options, int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  auto tokens = torch::randint(options.vocabulary, {8, options.length + 1}, torch::kLong);
  auto targets = tokens.slice(1, 1).clone();
  targets.select(1, 3).fill_(-100);
  return {tokens.slice(1, 0, options.length).contiguous(), targets};
}

constexpr int kSteps = 20;

std::vector<double> dense_losses() {
  auto model = make_gpt(small_gpt());
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = make_batch(small_gpt(), step);
    auto loss = model->loss(batch.inputs, batch.targets);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

struct Case {
  std::vector<mt::MeshAxis> axes;
  std::int64_t microbatches;
};

std::vector<double> sharded_losses(mt::Runtime& runtime, const Case& c,
                                   const mt::GptOptions& options) {
  auto mesh = runtime.make_mesh(c.axes);
  auto model = make_gpt(options);
  mt::shard(*model, mesh, mt::gpt_sharding());
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp", .clip_norm = 1.0},
                                          torch::optim::AdamWOptions(3e-3));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    for (const auto& micro :
         mt::microbatches(make_batch(options, step), c.microbatches, {mesh, P("dp")})) {
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

std::string name_of(const Case& c) {
  std::string name;
  for (const auto& axis : c.axes) name += axis.name + std::to_string(axis.size) + "_";
  return name + "m" + std::to_string(c.microbatches);
}

class GptParity : public testing::TestWithParam<Case> {};

TEST_P(GptParity, TwentyStepsOfAdamWEqualPlainLibtorch) {
  mt::Runtime runtime({.devices = 8});
  const auto dense = dense_losses();
  const auto sharded = sharded_losses(runtime, GetParam(), small_gpt());
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(sharded[step] / dense[step], 1.0, 1e-6) << "step " << step;
  }
  EXPECT_TRUE(runtime.fallbacks().empty()) << runtime.fallbacks().front().op;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const std::vector<std::vector<mt::MeshAxis>> meshes{
      {{"dp", 1}, {"tp", 1}},           {{"dp", 2}, {"tp", 1}}, {{"dp", 8}, {"tp", 1}},
      {{"dp", 4}, {"tp", 2}},           {{"dp", 2}, {"tp", 4}}, {{"dp", 1}, {"tp", 8}},
      {{"pp", 2}, {"dp", 2}, {"tp", 2}}};
  // Four microbatches of two rows are uneven over four and over eight.
  for (const auto& axes : meshes) {
    for (const std::int64_t count : {1, 4}) cases.push_back({axes, count});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Meshes, GptParity, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
