// SPDX-License-Identifier: Apache-2.0
//
// ZeRO around any torch optimizer (Rajbhandari et al., arXiv 1910.02054), as layouts. A parameter laid
// out P over the model's axes, of a mesh with a data-parallel axis "dp":
//
//   stage   parameter   gradient                 optimizer state
//   0       P           P unreduced(dp) -> P     P
//   1       P           P unreduced(dp) -> P+dp  P+dp
//   2       P           P+dp                     P+dp
//   3       P+dp        P+dp                     P+dp
//
// where P+dp is P with dp on its largest dim that divides. Every stage is the same program with other
// layouts: gradients are redistributed to the state's layout, the optimizer runs there, its result is
// redistributed to the parameter's. In stage 3 the parameter is gathered where an op uses it.
//
//   mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp"}, AdamWOptions(3e-4));
//   for (const auto& micro : microbatches(...)) {
//     mt::reduce_scope scope(optimizer, micro.last() ? mt::Reduce::each : mt::Reduce::once);  // overlap
//     (model->loss(...) * micro.weight()).backward();   // adds up unreduced, without communication
//   }
//   optimizer.step();       // one reduce-scatter, AdamW on the shards, one all-gather
//   optimizer.zero_grad();
//
// It is the optimizer: `Zero<AdamW>` derives from AdamW, whose parameters are the shards. So learning-
// rate schedulers, parameter groups and state work as ever, and the state is ordinary sharded tensors.
//
// Over dp a step moves, in units of the parameters' bytes times (d-1)/d, for M microbatches:
//
//   stage 0                          2        Reduce::each   2M
//   stage 1                          2        Reduce::each   M + 1
//   stage 2   Reduce::once  2                 (default)      M + 1
//   stage 3   keep_gathered and once 2        (default) at most 3M, Reduce::once at most 2M + 1
//
// "at most", as only parameters whose value backward needs are gathered there again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include <meshtorch/mesh/named_sharding.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/train/loss_scale.h>
#include <meshtorch/train/precision.h>

namespace meshtorch {

// When gradients are reduced over the axis; reduction(options) says which an option left out means.
enum class Reduce {
  once,  // at step(): until then they add up on every device, unreduced; full size
  each,  // in every backward, as soon as they are final; what is kept between is sharded
};

struct ZeroOptions {
  // Axis that shards. Gradients unreduced over further axes (another data axis, of replicas) are summed
  // over those too: "hybrid" sharding is axis = "fsdp" with the batch over ("dp", "fsdp").
  std::string axis = "dp";
  int stage = 1;
  // Scale gradients so that their global norm is at most this, each element counted once whatever its
  // layout; as torch::nn::utils::clip_grad_norm_ does on one device. Infinity measures and scales never.
  std::optional<double> clip_norm;
  // Left out: once in stages 0 and 1, each in 2 and 3.
  std::optional<Reduce> reduce;
  // Stage 3: a parameter stays gathered from its first use to step(). Memory of stage 2.
  bool keep_gathered = false;
  // Gradients, and parameters, that go in one collective: local bytes.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  // Collectives go on during backward and the next forward. Else the program waits for each.
  bool overlap = true;
  // Left out: everything in the parameters' own dtypes. `params` are the master weights that the
  // optimizer updates; the model's parameters become `compute`. `output` is for what calls the model:
  // TrainStep, or Precision::cast_to_output.
  std::optional<Precision> precision;
  // Of fp16, where losses are multiplied with status().loss_scale; an Error with another compute dtype.
  std::optional<LossScaleOptions> loss_scale = {};
  // Leave out the update where a gradient is infinite or NaN: skipped() tells. Always so with fp16.
  bool skip_nonfinite = false;
};

Reduce reduction(const ZeroOptions& options);

// What a Zero did so far.
struct ZeroStatus {
  std::optional<double>
      gradient_norm;       // of the last step before clipping; measured where it is needed
  bool skipped = false;    // the last step's update, for a gradient that is not finite
  std::int64_t skips = 0;  // so far
  double loss_scale = 1;   // to multiply losses with; other than 1 with fp16 only
};

class GatherSchedule;
class ZeroLeaf;

// The part that does not depend on the optimizer.
class ZeroEngine {
 public:
  // Every parameter must be a leaf, a sharded tensor of one mesh that has the axis, whole over that axis,
  // and in no other Zero that is alive. In stage 3 it may lie over the axis already (FsdpRule,
  // init_sharded): it is kept as it lies, and ops see it without. Parameters are changed in place: their dtype by `precision`, where they are kept by stage 3. A
  // parameter that requires no gradient has no state; unfreezing it later is an Error at step().
  ZeroEngine(std::vector<at::Tensor> parameters, ZeroOptions options);

  // One leaf per parameter (one that is given twice has one), in the state's layout and in the dtype of
  // Precision::params.
  const std::vector<at::Tensor>& shards() const;
  const std::vector<at::Tensor>& parameters() const;
  // `params` of every group exchanged for their shards. Throws Error for one that is not managed.
  std::vector<torch::optim::OptimizerParamGroup> with_shards(
      std::vector<torch::optim::OptimizerParamGroup> groups) const;

  const ZeroOptions& options() const;
  const std::vector<ZeroLeaf>& leaves() const;
  const ZeroStatus& status() const;
  // Null without fp16. Its state belongs in a checkpoint.
  LossScale* loss_scale();
  // Stage 3; empty before the first step.
  const GatherSchedule& gather_schedule() const;

  // Gradients of the parameters to gradients of the shards, clipped; false where the step is to be
  // skipped. A parameter that the program wrote since the last step (a loaded checkpoint) is taken over
  // first. Throws Error: a plain gradient, one of a parameter that was frozen, a parameter that is another
  // tensor now (set_data, to, device_get), a collective that failed. Then parameters are as they were, and
  // gradients are not: clear_gradients() before going on.
  bool reduce_gradients();
  // Before a step with a closure, which begins with the parameters: takes over what the program wrote into
  // them. Throws Error where such a step cannot do what the options ask for.
  void begin_closure();
  // Shards to parameters, of those that have a gradient; complete at their first use. A gather that fails
  // throws there, at every use. The program must not write a shard before.
  void update_parameters();
  void clear_gradients(bool set_to_none);

 private:
  friend class reduce_scope;
  class Core;
  std::shared_ptr<Core> core_;
};

// The spec of a parameter's optimizer shard: `axis` added to the largest dim whose size it divides
// after what shards the dim already; the spec itself where none does.
PartitionSpec zero_spec(const NamedSharding& sharding, const std::vector<std::int64_t>& shape,
                        const std::string& axis);

// Tells a Zero from another optimizer, behind torch::optim::Optimizer.
class AnyZero {
 public:
  virtual ~AnyZero() = default;
};

template <class Optimizer>
class Zero : private ZeroEngine, public Optimizer, public AnyZero {
 public:
  // `options` are the optimizer's own: AdamWOptions(3e-4).
  template <class Options>
  Zero(std::vector<at::Tensor> parameters, ZeroOptions zero, Options options)
      : ZeroEngine(std::move(parameters), std::move(zero)),
        Optimizer(ZeroEngine::shards(), std::move(options)) {}
  // Groups with options of their own, as of the optimizer.
  template <class Options>
  Zero(std::vector<torch::optim::OptimizerParamGroup> groups, ZeroOptions zero, Options options)
      : ZeroEngine(parameters_of(groups), std::move(zero)),
        Optimizer(ZeroEngine::with_shards(std::move(groups)), std::move(options)) {}

  using ZeroEngine::shards;
  using ZeroEngine::status;
  ZeroEngine& engine() { return *this; }

  std::optional<double> gradient_norm() const { return status().gradient_norm; }

  // What comes later would be no part of Zero: give all groups to the constructor.
  void add_param_group(const torch::optim::OptimizerParamGroup& group) = delete;

  // With a closure (LBFGS needs one) every evaluation all-gathers the parameters, runs the closure and
  // reduce-scatters the gradients; the closure calls zero_grad() and backward() as always.
  at::Tensor step(typename Optimizer::LossClosure closure = nullptr) override {
    if (closure == nullptr) {
      if (!reduce_gradients()) return {};
      update(nullptr);
      update_parameters();
      return {};
    }
    begin_closure();
    at::Tensor loss = update([&] {
      const use_scope use(Use::activations);
      update_parameters();
      at::Tensor value = closure();
      reduce_gradients();
      return value;
    });
    update_parameters();
    return loss;
  }

  // The gradients of the model's parameters, and what of them was reduced: that is in no parameter's grad(),
  // so neither model->zero_grad() nor clip_grad_norm_(model->parameters()) reaches it. (Called on an Optimizer&, libtorch's zero_grad clears those of
  // the shards only: it is not virtual.)
  void zero_grad(bool set_to_none = true) { clear_gradients(set_to_none); }

 private:
  at::Tensor update(typename Optimizer::LossClosure closure) {
    const use_scope use(Use::optimizer);
    return Optimizer::step(std::move(closure));
  }
  static std::vector<at::Tensor> parameters_of(
      const std::vector<torch::optim::OptimizerParamGroup>& groups) {
    std::vector<at::Tensor> all;
    for (const auto& group : groups)
      all.insert(all.end(), group.params().begin(), group.params().end());
    return all;
  }
};

// When gradients are reduced, until it is destroyed: Reduce::each for the last microbatch, so that its
// backward launches what is final (all that added up before included), Reduce::once to hold back what
// would be reduced in each (no_sync).
class reduce_scope {
 public:
  reduce_scope(ZeroEngine& engine, Reduce reduce);
  template <class Optimizer>
  reduce_scope(Zero<Optimizer>& optimizer, Reduce reduce)
      : reduce_scope(optimizer.engine(), reduce) {}
  ~reduce_scope();
  reduce_scope(const reduce_scope&) = delete;
  reduce_scope& operator=(const reduce_scope&) = delete;

 private:
  std::shared_ptr<ZeroEngine::Core> core_;
  std::optional<Reduce> outer_;
};

}  // namespace meshtorch
