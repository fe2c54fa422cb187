// SPDX-License-Identifier: Apache-2.0
//
// A model in training on a communicator that completes late, whose log says what happened when.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/late_communicator.h"
#include "compare.h"

namespace meshtorch {

inline constexpr std::int64_t kDevices = 4, kWidth = 16;
inline constexpr std::int64_t kLayerBytes = kWidth * kWidth * 4;

// Equal layers, each a mark in the log in forward and, when its gradient is there, in backward.
class Tower : public torch::nn::Module {
 public:
  Tower(int layers, std::shared_ptr<CollectiveLog> log) : log_(std::move(log)) {
    torch::manual_seed(3);
    for (int i = 0; i < layers; ++i) {
      layers_.push_back(
          register_module("layer" + std::to_string(i),
                          torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
    }
  }
  void watch() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i]->weight.register_hook(
          [log = log_, i](const at::Tensor&) { log->mark("gradient " + std::to_string(i)); });
    }
  }
  at::Tensor forward(at::Tensor x, std::vector<std::size_t> leave_out = {}) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (std::count(leave_out.begin(), leave_out.end(), i) > 0) continue;
      log_->mark("forward " + std::to_string(i));
      x = torch::tanh(layers_[i]->forward(x));
    }
    return x;
  }
  const at::Tensor& weight(std::size_t i) const { return layers_[i]->weight; }

 private:
  std::shared_ptr<CollectiveLog> log_;
  std::vector<torch::nn::Linear> layers_;
};

struct Setting {
  int layers = 4;
  ZeroOptions zero = {};
  bool late = true;
  std::uint64_t data = 0;
};

// A Tower in training.
class Training {
 public:
  explicit Training(Setting setting)
      : setting_(std::move(setting)),
        runtime_({.devices = kDevices}, setting_.late ? make_late_communicator(kDevices, log_)
                                                      : make_local_communicator(kDevices)),
        mesh_(runtime_.make_mesh({{"dp", kDevices}})),
        model_(std::make_shared<Tower>(setting_.layers, log_)) {
    replicate(*model_, mesh_);
    optimizer_ = std::make_unique<Zero<torch::optim::AdamW>>(model_->parameters(), setting_.zero,
                                                             torch::optim::AdamWOptions(1e-2));
    model_->watch();
  }

  at::Tensor input() {
    torch::manual_seed(++setting_.data);
    return device_put(torch::randn({8, kWidth}), {mesh_, P("dp")}).requires_grad_();
  }
  void microbatch(std::optional<Reduce> reduce = {}, std::vector<std::size_t> leave_out = {}) {
    std::optional<reduce_scope> scope;
    if (reduce) scope.emplace(*optimizer_, *reduce);
    model_->forward(input(), std::move(leave_out)).square().sum().backward();
  }
  void step() {
    log_->mark("step");
    optimizer_->step();
    log_->mark("stepped");
    optimizer_->zero_grad();
  }
  // `each`: the last microbatch reduces as it goes.
  void train(int microbatches, bool each = true) {
    for (int i = 0; i < microbatches; ++i) {
      log_->mark("microbatch " + std::to_string(i));
      microbatch(each && i + 1 == microbatches ? std::optional(Reduce::each) : std::nullopt);
    }
    step();
  }
  std::vector<at::Tensor> values() {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : model_->parameters())
      all.push_back(full(parameter.detach()).clone());
    return all;
  }

  CollectiveLog& log() { return *log_; }
  Runtime& runtime() { return runtime_; }
  Tower& model() { return *model_; }
  std::uint64_t data() const { return setting_.data; }
  void set_data(std::uint64_t data) { setting_.data = data; }
  void fail_in_forward() {
    model_->forward(input(), {2, 3});
    throw std::runtime_error("no more data");
  }
  Zero<torch::optim::AdamW>& optimizer() { return *optimizer_; }
  void drop_optimizer() { optimizer_.reset(); }

 private:
  Setting setting_;
  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  Runtime runtime_;
  Mesh mesh_;
  std::shared_ptr<Tower> model_;
  std::unique_ptr<Zero<torch::optim::AdamW>> optimizer_;
};

// Runtimes live one after the other.
template <class F>
auto with(Setting setting, F&& look) {
  Training run(std::move(setting));
  return look(run);
}

inline void expect_same_bits(const std::vector<at::Tensor>& got,
                             const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], expected[i])) << i;
}

inline std::int64_t reductions(Runtime& runtime) {
  return runtime.ledger().count(
      [](const auto& entry) { return entry.op == "Zero::reduce_gradients"; });
}

inline std::int64_t gathers(Runtime& runtime) {
  return runtime.ledger().count(
      [](const auto& entry) { return entry.op == "Zero::gather_parameters"; });
}

}  // namespace meshtorch
