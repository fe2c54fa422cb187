// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/step.h>

#include <algorithm>

#include <meshtorch/models/sample.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/microbatch.h>

namespace meshtorch {
namespace {

// Switches dropout off until destroyed.
class Evaluation {
 public:
  explicit Evaluation(Gpt model) : model_(std::move(model)) { model_->eval(); }
  ~Evaluation() { model_->train(); }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  Gpt model_;
  torch::NoGradGuard no_grad_;
};

}  // namespace

StepResult train_step(TrainState& state, const Batch& batch, std::int64_t count, double rate) {
  torch::Tensor total;
  for (const auto& micro : microbatches(batch, count, {state.mesh, P("dp")})) {
    named_scope scope("microbatch");
    auto loss = state.model->loss(micro.inputs, micro.targets) * micro.weight();
    loss.backward();
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  for (auto& group : state.optimizer.param_groups()) group.options().set_lr(rate);
  state.optimizer.step();
  state.optimizer.zero_grad();
  named_scope scope("loss");
  return {total.item<double>(), *state.optimizer.gradient_norm()};
}

double validate(TrainState& state, const Tokens& text, std::int64_t size, std::int64_t at_most) {
  const Evaluation evaluation(state.model);
  named_scope scope("validate");
  const std::int64_t length = state.model->options().length;
  const std::int64_t windows = text.batches({.size = 1, .length = length});
  const BatchOptions options{.size = std::min(size, windows), .length = length};
  const std::int64_t batches = text.batches(options);
  const std::int64_t reads = at_most > 0 ? std::min(at_most, batches) : batches;
  double total = 0;
  for (std::int64_t i = 0; i < reads; ++i) {
    const Batch batch = text.window(options, i * batches / reads);
    for (const auto& micro : microbatches(batch, 1, {state.mesh, P("dp")})) {
      total += state.model->loss(micro.inputs, micro.targets).item<double>();
    }
  }
  return total / static_cast<double>(reads);
}

std::string generate(TrainState& state, const std::string& prompt, std::int64_t bytes,
                     std::uint64_t seed) {
  const Evaluation evaluation(state.model);
  named_scope scope("sample");
  // One row is the same work for every device: replicated.
  const auto logits = [&](const torch::Tensor& tokens) {
    return full(state.model->forward(replicate(tokens, state.mesh)));
  };
  return sample(
      logits, prompt,
      {.bytes = bytes, .length = state.model->options().length, .temperature = 0.7, .seed = seed});
}

}  // namespace meshtorch
