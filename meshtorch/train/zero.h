// SPDX-License-Identifier: Apache-2.0
//
// ZeRO around any torch optimizer (Rajbhandari et al., arXiv 1910.02054). Stage 1: the optimizer's
// state is sharded over a data-parallel axis; parameters and gradients are not.
//
//   mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), {.axis = "dp"}, AdamWOptions(3e-4));
//   ... backward() any number of times: gradients add up unreduced, without communication ...
//   optimizer.step();       // one reduce-scatter, AdamW on the shards, one all-gather
//   optimizer.zero_grad();
//
// It is the optimizer: `Zero<AdamW>` derives from AdamW, whose parameters are the shards. So learning-
// rate schedulers, parameter groups and state work as ever, and the state is ordinary sharded tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {

struct ZeroOptions {
  std::string axis = "dp";
  // 1 is the stage there is; others are rejected.
  int stage = 1;
  // Scale gradients so that their global norm is at most this, each element counted once whatever its
  // layout; as torch::nn::utils::clip_grad_norm_ does on one device.
  std::optional<double> clip_norm;
};

// The part that does not depend on the optimizer.
class ZeroShards {
 public:
  // Every parameter must be a sharded tensor of one mesh that has the axis, and whole over that axis.
  ZeroShards(std::vector<at::Tensor> parameters, ZeroOptions options);

  // One leaf per parameter (a parameter that is given twice has one): the parameter's spec plus the axis on its largest dim that divides; a
  // parameter that has none stays as it is ("replicated over the axis").
  const std::vector<at::Tensor>& shards() const { return shards_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  // Gradients of the parameters to gradients of the shards: one reduce-scatter, and one all-reduce for
  // the parameters that stay whole. Then clips. A parameter that the program wrote since the last step
  // (a loaded checkpoint) is taken over first.
  void reduce_gradients();
  // Shards to parameters: one all-gather, of those that have a gradient.
  void gather_parameters();
  void clear_gradients(bool set_to_none);

  // The global norm before clipping of the last step; nothing where clip_norm is not set and
  // in a meta run.
  std::optional<double> gradient_norm() const { return gradient_norm_; }

 private:
  void take_outside_changes();
  void clip();
  std::optional<double> global_norm() const;  // nothing for meta shards

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> shards_;
  std::vector<std::uint64_t>
      versions_;  // of the parameters when the shards were last equal to them
  ZeroOptions options_;
  std::optional<double> gradient_norm_;
};

// The spec of a parameter's optimizer shard: `axis` added to the largest dim whose size it divides
// after what shards the dim already; the spec itself where none does.
PartitionSpec zero_spec(const NamedSharding& sharding, const std::vector<std::int64_t>& shape,
                        const std::string& axis);

template <class Optimizer>
class Zero : private ZeroShards, public Optimizer {
 public:
  // `options` are the optimizer's own: AdamWOptions(3e-4).
  template <class Options>
  Zero(std::vector<at::Tensor> parameters, ZeroOptions zero, Options options)
      : ZeroShards(std::move(parameters), std::move(zero)),
        Optimizer(ZeroShards::shards(), std::move(options)) {}

  using ZeroShards::gradient_norm;
  using ZeroShards::shards;

  // With a closure (LBFGS needs one) every evaluation all-gathers the parameters, runs the closure and
  // reduce-scatters the gradients; the closure calls zero_grad() and backward() as always.
  at::Tensor step(typename Optimizer::LossClosure closure = nullptr) override {
    if (closure == nullptr) {
      reduce_gradients();
      Optimizer::step(nullptr);
      gather_parameters();
      return {};
    }
    at::Tensor loss = Optimizer::step([&] {
      gather_parameters();
      at::Tensor value = closure();
      reduce_gradients();
      return value;
    });
    gather_parameters();
    return loss;
  }

  // The gradients of the model's parameters.
  void zero_grad(bool set_to_none = true) { clear_gradients(set_to_none); }
};

}  // namespace meshtorch
