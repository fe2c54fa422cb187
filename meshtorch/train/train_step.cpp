// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/train_step.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/train/norm.h>

namespace meshtorch {
namespace {

[[noreturn]] void refuse(std::string where, std::string what, std::string remedy) {
  fail({.op = "TrainStep",
        .where = std::move(where),
        .what = std::move(what),
        .remedy = std::move(remedy)});
}

void check(const LossFunction& loss, const SteppedOptimizer& optimizer,
           const TrainStepOptions& options) {
  if (!loss) refuse("loss", "is empty", "give a function of two tensors");
  if (!options.sharding.mesh.defined()) refuse("sharding", "has no mesh", "give {mesh, P(\"dp\")}");
  if (options.microbatches < 1) {
    refuse("microbatches", text("got ", options.microbatches, ", expected at least 1"),
           "leave it out for one");
  }
  if (!options.clip_norm) return;
  if (optimizer.zero() != nullptr)
    refuse("clip_norm", "is for other optimizers than Zero", "set ZeroOptions::clip_norm");
  if (!(*options.clip_norm > 0)) {
    refuse("clip_norm", text("got ", *options.clip_norm, ", expected a positive number"),
           "leave it out not to clip");
  }
}

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer.param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void check_gradients(const std::vector<at::Tensor>& parameters) {
  const auto has_gradient = [](const at::Tensor& p) { return p.grad().defined(); };
  if (std::any_of(parameters.begin(), parameters.end(), has_gradient)) return;
  refuse("gradients", "no parameter of the optimizer got one",
         "give the optimizer the parameters of this model, and TrainStep a Zero as what it is");
}

void check_loss(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    refuse(
        "loss",
        loss.defined() ? text("has sizes ", loss.sizes(), ", expected a scalar") : "is undefined",
        "return the mean over the valid targets");
  }
  if (!loss.requires_grad()) {
    refuse("loss", "depends on no parameter that requires a gradient",
           "unfreeze one, and call outside of a NoGradGuard");
  }
}

Ledger entries_since(std::size_t first) {
  const auto& entries = Runtime::current().ledger().entries();
  Ledger ledger;
  for (std::size_t i = std::min(first, entries.size()); i < entries.size(); ++i)
    ledger.record(entries[i]);
  return ledger;
}

std::size_t next_entry() { return Runtime::current().ledger().entries().size(); }

// Nothing in a dry run, which records the same collectives.
std::optional<double> value_of(const at::Tensor& total) {
  const named_scope scope("loss");
  const double value = item_or(total, std::numeric_limits<double>::quiet_NaN()).toDouble();
  return is_meta(total) ? std::nullopt : std::optional(value);
}

}  // namespace

SteppedOptimizer::SteppedOptimizer(torch::optim::Optimizer& optimizer) : optimizer_(&optimizer) {
  if (dynamic_cast<const AnyZero*>(&optimizer) != nullptr)
    refuse("optimizer", "is a Zero behind torch::optim::Optimizer", "give it as what it is");
}

TrainStep::TrainStep(ForwardFunction model, LossFunction loss, SteppedOptimizer optimizer,
                     TrainStepOptions options)
    : TrainStep(std::move(loss), optimizer, std::move(options)) {
  if (!model) refuse("model", "is empty", "give a module or a function of a tensor");
  model_ = std::move(model);
}

TrainStep::TrainStep(LossFunction loss, SteppedOptimizer optimizer, TrainStepOptions options)
    : loss_(std::move(loss)), optimizer_(optimizer), options_(std::move(options)) {
  check(loss_, optimizer_, options_);
}

StepMetrics TrainStep::operator()(const Batch& batch) {
  const std::size_t first = next_entry();
  return run(microbatches(batch, options_.microbatches, options_.sharding,
                          {.ignore_index = options_.ignore_index}),
             first);
}

StepMetrics TrainStep::operator()(const RowSource& source) {
  const std::size_t first = next_entry();
  return run(microbatches(source, options_.microbatches, options_.sharding,
                          {.ignore_index = options_.ignore_index}),
             first);
}

StepMetrics TrainStep::run(std::vector<Microbatch> micros, std::size_t first_entry) {
  StepMetrics metrics;
  at::Tensor total;
  try {
    for (Microbatch& placed : micros) {
      const Microbatch micro = std::move(placed);  // and gone with the loop's body
      metrics.tokens += micro.valid();
      const at::Tensor loss = accumulate(micro);
      total = total.defined() ? total + loss : loss;
    }
    update(metrics);
  } catch (...) {
    clear_gradients();
    throw;
  }
  metrics.loss = value_of(total);
  metrics.collectives = entries_since(first_entry);
  return metrics;
}

at::Tensor TrainStep::loss_of(const Microbatch& micro) const {
  const Precision* precision = nullptr;
  if (zero() != nullptr && zero()->options().precision) precision = &*zero()->options().precision;
  if (precision == nullptr)
    return loss_(model_ ? model_(micro.inputs) : micro.inputs, micro.targets);
  const at::Tensor inputs = precision->cast_to_compute(micro.inputs);
  if (!model_) return precision->cast_to_output(loss_(inputs, micro.targets));
  return loss_(precision->cast_to_output(model_(inputs)), micro.targets);
}

// The microbatch's share of the loss; its share of the gradient is in the parameters.
at::Tensor TrainStep::accumulate(const Microbatch& micro) {
  const named_scope scope("microbatch");
  std::optional<reduce_scope> reduce;
  if (zero() != nullptr && micro.last()) reduce.emplace(*optimizer_.zero(), Reduce::each);
  const at::Tensor loss = loss_of(micro);
  check_loss(loss);
  const at::Tensor share = loss * micro.weight();
  const double scale = zero() != nullptr ? zero()->status().loss_scale : 1;
  (scale == 1 ? share : share * scale).backward();
  return share.detach();
}

void TrainStep::update(StepMetrics& metrics) {
  torch::optim::Optimizer& optimizer = optimizer_.optimizer();
  const auto parameters = parameters_of(optimizer);
  if (ZeroEngine* zero = optimizer_.zero()) {
    metrics.loss_scale = zero->status().loss_scale;
    optimizer.step();
    check_gradients(parameters);  // of the shards, where they are since step()
    metrics.gradient_norm = zero->status().gradient_norm;
    metrics.skipped = zero->status().skipped;
    clear_gradients();
    return;
  }
  check_gradients(parameters);
  if (options_.clip_norm) metrics.gradient_norm = clip_grad_norm_(parameters, *options_.clip_norm);
  optimizer.step();
  clear_gradients();
}

void TrainStep::clear_gradients() {
  if (ZeroEngine* zero = optimizer_.zero()) return zero->clear_gradients(true);
  optimizer_.optimizer().zero_grad();
}

}  // namespace meshtorch
