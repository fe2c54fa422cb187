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

torch::Tensor next_token_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

torch::Tensor logits_of(TrainState& state, const torch::Tensor& tokens) {
  const auto& precision = state.optimizer.engine().options().precision;
  const torch::Tensor logits = state.model->forward(tokens);
  return precision ? precision->cast_to_output(logits) : logits;
}

}  // namespace

TrainStep make_step(TrainState& state, std::int64_t microbatches) {
  return {state.model,
          next_token_loss,
          state.optimizer,
          {.sharding = {state.mesh, P("dp")}, .microbatches = microbatches}};
}

// Every leaf that is whole over tp is used on parts of the sequence: its gradient comes out unreduced
// over tp too, as if tp cut the batch.
Schedule schedule_of(const TrainStep& step, bool sequence_parallel) {
  Schedule schedule = explain(step);
  if (!sequence_parallel) return schedule;
  Schedule parts = explain(*step.zero(), {.batch = P("dp", "tp"),
                                          .microbatches = step.options().microbatches,
                                          .optimizer = &step.optimizer()});
  parts.batch = schedule.batch;
  parts.phases.back() = schedule.phases.back();  // of the loss, which is whole over tp
  return parts;
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
    const RowSource source{options.size, [&](std::int64_t begin, std::int64_t end) {
                             return text.window(options, i * batches / reads, begin, end);
                           }};
    for (const auto& micro : microbatches(source, 1, {state.mesh, P("dp")})) {
      total += next_token_loss(logits_of(state, micro.inputs), micro.targets).item<double>();
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
    return full(logits_of(state, replicate(tokens, state.mesh)));
  };
  return sample(
      logits, prompt,
      {.bytes = bytes, .length = state.model->options().length, .temperature = 0.7, .seed = seed});
}

}  // namespace meshtorch
