// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/explain.h>

#include <ATen/ATen.h>
#include <torch/optim.h>

#include <algorithm>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/train/bucket.h>
#include <meshtorch/train/gather_schedule.h>
#include <meshtorch/train/leaf_plan.h>
#include <meshtorch/train/local_bytes.h>
#include <meshtorch/train/zero_leaf.h>

namespace meshtorch {
namespace {

[[noreturn]] void refuse(std::string where, std::string what, std::string remedy) {
  fail({.op = "explain",
        .where = std::move(where),
        .what = std::move(what),
        .remedy = std::move(remedy)});
}

// Bytes of the tensors that libtorch's optimizers keep for a parameter; nothing for one of another
// type.
std::optional<std::int64_t> held_bytes(const torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  std::vector<at::Tensor> tensors;
  if (const auto* adamw = dynamic_cast<const AdamWParamState*>(&state)) {
    tensors = {adamw->exp_avg(), adamw->exp_avg_sq(), adamw->max_exp_avg_sq()};
  } else if (const auto* adam = dynamic_cast<const AdamParamState*>(&state)) {
    tensors = {adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()};
  } else if (const auto* sgd = dynamic_cast<const SGDParamState*>(&state)) {
    tensors = {sgd->momentum_buffer()};
  } else if (const auto* rms = dynamic_cast<const RMSpropParamState*>(&state)) {
    tensors = {rms->square_avg(), rms->momentum_buffer(), rms->grad_avg()};
  } else if (const auto* ada = dynamic_cast<const AdagradParamState*>(&state)) {
    tensors = {ada->sum()};
  } else {
    return std::nullopt;
  }
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    bytes += sharded_view(tensor) == nullptr ? static_cast<std::int64_t>(tensor.nbytes())
                                             : local_bytes(tensor);
  }
  return bytes;
}

std::optional<std::int64_t> held_bytes(const torch::optim::Optimizer* optimizer) {
  if (optimizer == nullptr || optimizer->state().empty()) return std::nullopt;
  std::int64_t bytes = 0;
  for (const auto& [key, state] : optimizer->state()) {
    const auto mine = held_bytes(*state);
    if (!mine) return std::nullopt;
    bytes += *mine;
  }
  return bytes;
}

void append(std::vector<PlannedCollective>& all, const std::vector<PlannedCollective>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

class Explainer {
 public:
  Explainer(const ZeroEngine& zero, const ExplainOptions& options)
      : zero_(zero),
        options_(options),
        mesh_(sharded_view(zero.parameters().front())->mesh()),
        batch_(options.batch.value_or(P(zero.options().axis))) {
    if (options.microbatches < 1) {
      refuse("microbatches", text("got ", options.microbatches, ", expected at least 1"),
             "leave it out for one");
    }
    const auto rank = static_cast<std::int64_t>(batch_.dims().size());
    batch_axes_ = resolve(mesh_, batch_, rank, "explain", "batch").sharded();
    for (const ZeroLeaf& leaf : zero.leaves())
      leaves_.push_back(plan_of(leaf, zero.options(), batch_axes_));
  }

  Schedule schedule() {
    Schedule result{.batch = {mesh_, batch_},
                    .axis = zero_.options().axis,
                    .stage = zero_.options().stage,
                    .microbatches = options_.microbatches,
                    .phases = phases(),
                    .accumulators = {cost(Reduce::once), cost(Reduce::each)},
                    .memory = memory()};
    for (const LeafPlan& leaf : leaves_) {
      if (leaf.frozen) continue;
      result.whole_leaves += leaf.whole;
      if (leaf.whole) continue;
      result.parameter_bytes += local_bytes(mesh_, leaf.shape, leaf.use, leaf.compute);
      result.gradient_bytes += local_bytes(mesh_, leaf.shape, leaf.use, leaf.wire);
    }
    return result;
  }

 private:
  const ZeroOptions& setup() const { return zero_.options(); }

  Reduce mode() const { return reduction(setup()); }

  // The reductions of each backward, and last of what is left to step(): GradientBuckets' order.
  std::vector<std::vector<PlannedCollective>> reductions(Reduce reduce) const {
    const auto count = static_cast<std::size_t>(options_.microbatches);
    std::vector<std::vector<PlannedCollective>> all(count + 1);
    Bucket<LeafRoute> bucket(setup().bucket_bytes);
    const auto send = [&](std::size_t phase, const std::string& meanwhile) {
      return [&, phase, meanwhile](const std::vector<LeafRoute>& routes) {
        append(all[phase], flight(mesh_, routes, setup().overlap ? meanwhile : ""));
      };
    };
    const auto add = [&](const LeafPlan& leaf, const auto& full) {
      if (leaf.frozen) return;
      bucket.add(leaf.reduction(), local_bytes(mesh_, leaf.shape, leaf.use, leaf.accumulate), full);
    };
    for (std::size_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      if (reduce == Reduce::once && !(last && options_.last_reduces)) continue;
      const auto full = send(i, "the rest of the backward");
      std::for_each(leaves_.rbegin(), leaves_.rend(), [&](const auto& leaf) { add(leaf, full); });
      bucket.flush(send(i, last ? "" : "the next forward"));
    }
    if (reduce == Reduce::once && !options_.last_reduces)
      for (const LeafPlan& leaf : leaves_) add(leaf, send(count, ""));
    bucket.flush(send(count, ""));
    return all;
  }

  std::vector<PlannedCollective> updates() const {
    const std::string meanwhile = setup().overlap ? "the next forward, to first use" : "";
    std::vector<PlannedCollective> all;
    Bucket<LeafRoute> bucket(setup().bucket_bytes);
    const auto send = [&](const std::vector<LeafRoute>& routes) {
      append(all, flight(mesh_, routes, meanwhile));
    };
    for (const LeafPlan& leaf : leaves_) {
      if (leaf.frozen || leaf.shares) continue;
      bucket.add(leaf.update(), local_bytes(mesh_, leaf.shape, leaf.stored, leaf.compute), send);
    }
    bucket.flush(send);
    return all;
  }

  // Each leaf alone, in each forward and backward.
  void gather_unplanned(std::vector<Phase>& passes) const {
    for (std::size_t i = 0; i < passes.size(); ++i) {
      if (setup().keep_gathered && i > 0) break;
      for (const LeafPlan& leaf : leaves_) {
        if (leaf.split) append(passes[i].collectives, flight(mesh_, {leaf.gather()}));
      }
      passes[i].at_most = !passes[i].collectives.empty();
    }
  }

  // `passes`: forward and backward of each microbatch, in turn.
  void gather(std::vector<Phase>& passes) const {
    const auto groups = zero_.gather_schedule().groups();
    if (groups.empty()) return gather_unplanned(passes);
    std::size_t pass = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto odd = static_cast<std::size_t>(groups[g].backward);
      while (pass + 1 < passes.size() && pass % 2 != odd) ++pass;
      std::vector<LeafRoute> routes;
      for (const std::size_t leaf : groups[g].leaves) routes.push_back(leaves_[leaf].gather());
      append(
          passes[pass].collectives,
          flight(mesh_, routes, g > 0 && setup().overlap ? "the ops before, a group ahead" : ""));
    }
  }

  std::vector<Phase> phases() const {
    std::vector<Phase> all;
    for (std::int64_t i = 1; i <= options_.microbatches; ++i) {
      all.push_back({.name = text("microbatch ", i, ": forward")});
      all.push_back({.name = text("microbatch ", i, ": backward")});
    }
    gather(all);
    auto sums = reductions(mode());
    for (std::size_t i = 0; i + 1 < sums.size(); ++i) append(all[2 * i + 1].collectives, sums[i]);
    if (!sums.back().empty())
      all.push_back({.name = "reduce", .collectives = std::move(sums.back())});
    const auto& zero = setup();
    if (zero.clip_norm || zero.skip_nonfinite ||
        (zero.precision && zero.precision->needs_loss_scale()))
      all.push_back({.name = "norm", .collectives = scalar_sum(mesh_, all_axes(), at::kDouble)});
    all.push_back({.name = "optimizer"});
    all.push_back({.name = "gather", .collectives = updates()});
    const auto loss = zero.precision ? zero.precision->output : leaves_[0].compute;
    all.push_back({.name = "loss", .collectives = scalar_sum(mesh_, batch_axes_, loss)});
    return all;
  }

  AxisSet all_axes() const {
    AxisSet axes;
    for (int axis = 0; axis < mesh_.rank(); ++axis) axes.insert(axis);
    return axes;
  }

  AccumulatorCost cost(Reduce reduce) const {
    AccumulatorCost cost{.reduce = reduce, .chosen = reduce == mode()};
    for (const LeafPlan& leaf : leaves_) {
      if (leaf.frozen) continue;
      cost.bytes += reduce == Reduce::once
                        ? local_bytes(mesh_, leaf.shape, leaf.use, leaf.accumulate)
                        : local_bytes(mesh_, leaf.shape, leaf.state, leaf.accumulate);
    }
    for (const auto& phase : reductions(reduce)) {
      cost.collectives += static_cast<std::int64_t>(phase.size());
      for (const PlannedCollective& one : phase) cost.traffic += one.bytes;
    }
    return cost;
  }

  StepMemory memory() const {
    StepMemory memory{.optimizer = held_bytes(options_.optimizer)};
    for (const LeafPlan& leaf : leaves_) {
      memory.parameters += local_bytes(mesh_, leaf.shape, leaf.stored, leaf.compute);
      if (!leaf.shares) memory.shards += local_bytes(mesh_, leaf.shape, leaf.state, leaf.master);
      if (!leaf.frozen) memory.gradients += local_bytes(mesh_, leaf.shape, leaf.state, leaf.master);
    }
    memory.accumulator = cost(mode()).bytes;
    memory.gathered = gathered();
    return memory;
  }

  // Kept: all. Else a group, and the one ahead of it.
  std::optional<std::int64_t> gathered() const {
    std::int64_t kept = 0;
    for (const LeafPlan& leaf : leaves_)
      kept += leaf.split ? local_bytes(mesh_, leaf.shape, leaf.use, leaf.compute) : 0;
    if (kept == 0 || setup().keep_gathered) return kept;
    std::int64_t most = 0, before = 0;
    for (const auto& group : zero_.gather_schedule().groups()) {
      std::int64_t mine = 0;
      for (const std::size_t i : group.leaves)
        mine += local_bytes(mesh_, leaves_[i].shape, leaves_[i].use, leaves_[i].compute);
      most = std::max(most, (setup().overlap ? before : 0) + mine);
      before = mine;
    }
    return most > 0 ? std::optional(most) : std::nullopt;
  }

  const ZeroEngine& zero_;
  ExplainOptions options_;
  Mesh mesh_;
  PartitionSpec batch_;
  AxisSet batch_axes_;
  std::vector<LeafPlan> leaves_;
};

}  // namespace

Schedule explain(const ZeroEngine& zero, const ExplainOptions& options) {
  return Explainer(zero, options).schedule();
}

Schedule explain(const TrainStep& step) {
  if (step.zero() == nullptr) {
    refuse("optimizer", "is no Zero: it reduces what it reads, when it reads it",
           "use a Zero, stage 0 for replicated parameters");
  }
  return explain(*step.zero(), {.batch = step.options().sharding.spec,
                                .microbatches = step.options().microbatches,
                                .optimizer = &step.optimizer()});
}

}  // namespace meshtorch
