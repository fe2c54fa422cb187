// SPDX-License-Identifier: Apache-2.0
//
// A train step as a value: a function of the model's state and a global batch. Reading data,
// printing, schedules of learning rates, saving: all of it is the program's loop.
//
//   mt::TrainStep step(model, loss, optimizer, {.sharding = {mesh, P("dp")}, .microbatches = 4});
//   for (...) {
//     const mt::StepMetrics metrics = step({inputs, targets});
//     std::cout << *metrics.loss << " " << metrics.collectives.bytes(over_dp) << "\n";
//   }
//   std::cout << explain(step).to_string();         // what a step will communicate (explain.h)
//
// A call does what this loop does, to the bit, and no more:
//
//   for (const auto& micro : microbatches(batch, 4, {mesh, P("dp")})) {
//     mt::named_scope scope("microbatch");
//     mt::reduce_scope reduce(optimizer, micro.last() ? Reduce::each : the optimizer's own);
//     const auto mean = loss(model->forward(micro.inputs), micro.targets);
//     (mean * micro.weight() * optimizer.status().loss_scale).backward();
//   }
//   optimizer.step();
//   optimizer.zero_grad();
//
// and nothing that a microbatch computed is alive when the next begins, except its loss.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <meshtorch/comm/ledger.h>
#include <meshtorch/data/batch.h>
#include <meshtorch/mesh/named_sharding.h>
#include <meshtorch/train/microbatch.h>
#include <meshtorch/train/zero.h>

namespace meshtorch {

template <class Model>
concept PointsToModule = requires(Model& model, const at::Tensor& inputs) {
  { model->forward(inputs) } -> std::convertible_to<at::Tensor>;
};
template <class Call>
concept MapsTensor =
    !PointsToModule<Call> && std::is_invocable_r_v<at::Tensor, Call&, const at::Tensor&>;

// Inputs to outputs: a module holder (Sequential, one of TORCH_MODULE), a shared pointer to a
// module, or any callable.
class ForwardFunction {
 public:
  ForwardFunction() = default;
  template <PointsToModule Model>
  ForwardFunction(Model model)
      : call_([model](const at::Tensor& inputs) mutable { return model->forward(inputs); }) {}
  template <MapsTensor Call>
  ForwardFunction(Call call) : call_(std::move(call)) {}

  explicit operator bool() const { return call_ != nullptr; }
  at::Tensor operator()(const at::Tensor& inputs) const { return call_(inputs); }

 private:
  std::function<at::Tensor(const at::Tensor&)> call_;
};

// The mean over the valid targets, a scalar: of a model's outputs, or of a model that has its own
// loss of its inputs.
using LossFunction = std::function<at::Tensor(const at::Tensor& given, const at::Tensor& targets)>;

// What a TrainStep steps: any Zero, or any other optimizer of sharded parameters. By reference: it
// outlives the TrainStep.
class SteppedOptimizer {
 public:
  // Throws Error for a Zero behind this base: give it as what it is.
  SteppedOptimizer(torch::optim::Optimizer& optimizer);
  template <class Optimizer>
  SteppedOptimizer(Zero<Optimizer>& zero) : optimizer_(&zero), zero_(&zero.engine()) {}

  torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  ZeroEngine* zero() const { return zero_; }  // null: another optimizer

 private:
  torch::optim::Optimizer* optimizer_;
  ZeroEngine* zero_ = nullptr;
};

struct TrainStepOptions {
  // Of the batch, on the parameters' mesh.
  NamedSharding sharding;
  std::int64_t microbatches = 1;
  // Integer targets that do not count; give the loss the same.
  std::int64_t ignore_index = MicrobatchOptions{}.ignore_index;
  // As ZeroOptions::clip_norm, for other optimizers than Zero, whose gradient norm is measured here
  // only if this is set.
  std::optional<double> clip_norm;
};

struct StepMetrics {
  std::optional<double> loss;           // mean over the batch's valid targets; nothing in a dry run
  std::optional<double> gradient_norm;  // before clipping; where it was measured
  bool skipped = false;                 // the update was left out (ZeroOptions::skip_nonfinite)
  double loss_scale = 1;    // that the losses of this step were multiplied with; not `loss`
  std::int64_t tokens = 0;  // valid targets
  // The entries that the step made in the runtime's ledger, which keeps them. A gather that
  // completes in the next forward is here with its bytes, and without the time that it will be
  // waited for.
  Ledger collectives;
};

class TrainStep {
 public:
  // With a Zero of a Precision inputs are cast to its compute dtype and outputs to its output
  // dtype. Throws Error: no mesh, fewer than one microbatch, a clip_norm that is not positive or is
  // given beside a Zero, no model, no loss.
  TrainStep(ForwardFunction model, LossFunction loss, SteppedOptimizer optimizer,
            TrainStepOptions options);
  // Of a model that has its own loss: `loss` is called with the inputs, and what it returns is
  // cast.
  TrainStep(LossFunction loss, SteppedOptimizer optimizer, TrainStepOptions options);

  // One step. Throws Error: what microbatches() throws, a loss that is no scalar or depends on no
  // parameter, no parameter of the optimizer got a gradient. Where the model, the loss or a
  // collective throws, parameters are as they were and gradients are cleared.
  StepMetrics operator()(const Batch& batch);
  StepMetrics operator()(const RowSource& source);

  const TrainStepOptions& options() const { return options_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_.optimizer(); }
  const ZeroEngine* zero() const { return optimizer_.zero(); }  // null: another optimizer

 private:
  StepMetrics run(std::vector<Microbatch> micros, std::size_t first_entry);
  at::Tensor loss_of(const Microbatch& micro) const;
  at::Tensor accumulate(const Microbatch& micro);
  void update(StepMetrics& metrics);
  void clear_gradients();

  ForwardFunction model_;  // none: the loss takes the inputs
  LossFunction loss_;
  SteppedOptimizer optimizer_;
  TrainStepOptions options_;
};

}  // namespace meshtorch
