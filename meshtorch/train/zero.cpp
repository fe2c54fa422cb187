// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/zero.h>

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/divisible_dim.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/gather_schedule.h>
#include <meshtorch/train/gradient_buckets.h>
#include <meshtorch/train/loss_scale.h>
#include <meshtorch/train/norm.h>
#include <meshtorch/train/parameter_update.h>
#include <meshtorch/train/zero_leaf.h>

namespace meshtorch {
namespace {

[[noreturn]] void refuse(std::string where, std::string what, std::string remedy) {
  fail({.op = "Zero",
        .where = std::move(where),
        .what = std::move(what),
        .remedy = std::move(remedy)});
}

// Calls a function when a parameter's gradient has been accumulated.
class AfterAccumulation final : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterAccumulation(std::function<void()> call) : call_(std::move(call)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

bool has_hook(const at::Tensor& parameter) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (!accumulator) return false;
  const auto& hooks = accumulator->post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const AfterAccumulation*>(hook.get()) != nullptr;
  });
}

void check(const ZeroOptions& options) {
  if (options.stage < 0 || options.stage > 3) {
    refuse("stage", text("got ", options.stage, ", expected 0 to 3"),
           "0: replicated, 1: optimizer state, 2: gradients too, 3: parameters too");
  }
  if (options.clip_norm && !(*options.clip_norm > 0)) {
    refuse("clip_norm", text("got ", *options.clip_norm, ", expected a positive number"),
           "leave it out not to clip");
  }
  if (options.bucket_bytes < 1) {
    refuse("bucket_bytes", text("got ", options.bucket_bytes, ", expected at least 1"),
           "leave it out for 25 MB");
  }
  if (options.loss_scale && !(options.precision && options.precision->needs_loss_scale()))
    refuse("loss_scale", "is for a precision that computes in float16", "leave it out");
  for (const auto place : {&Precision::params, &Precision::compute, &Precision::output,
                           &Precision::reduce, &Precision::accumulate}) {
    if (options.precision && !at::isFloatingType((*options.precision).*place)) {
      refuse("precision", text("got ", (*options.precision).*place, ", expected floating point"),
             "see Precision::parse");
    }
  }
  if (options.keep_gathered && options.stage != 3) {
    refuse("keep_gathered", text("is for stage 3, got stage ", options.stage), "leave it out");
  }
}

void check(const std::vector<at::Tensor>& parameters, const ZeroOptions& options) {
  if (parameters.empty()) refuse("parameters", "there are none", "give model->parameters()");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string where = text("parameter ", i);
    const ShardedView* view = sharded_view(parameters[i]);
    if (view == nullptr) refuse(where, "is a plain tensor", "shard(model, mesh, rules) first");
    if (!parameters[i].is_leaf()) refuse(where, "is no leaf", "give what ops were not run on");
    if (has_hook(parameters[i])) {
      refuse(where, "is in another Zero, which takes its gradients", "destroy that one first");
    }
    const int axis = view->mesh().axis(options.axis);
    if (view->mesh() != sharded_view(parameters[0])->mesh()) {
      refuse(where, "is on another mesh than parameter 0", "use one Zero per mesh");
    }
    if (view->layout().sharded().contains(axis) && options.stage != 3) {
      refuse(where, "is sharded over \"" + options.axis + "\" already: " + describe(parameters[i]),
             "shard parameters over other axes, or use stage 3, which keeps them so");
    }
    if (!view->unreduced().empty())
      refuse(where, "is unreduced: " + describe(parameters[i]), "reshard it first");
  }
}

std::vector<at::Tensor> unique(std::vector<at::Tensor> parameters) {
  std::set<const void*> seen;
  std::erase_if(parameters,
                [&](const at::Tensor& p) { return !seen.insert(p.unsafeGetTensorImpl()).second; });
  return parameters;
}

}  // namespace

Reduce reduction(const ZeroOptions& options) {
  return options.reduce.value_or(options.stage >= 2 ? Reduce::each : Reduce::once);
}

PartitionSpec zero_spec(const NamedSharding& sharding, const std::vector<std::int64_t>& shape,
                        const std::string& axis) {
  const Mesh& mesh = sharding.mesh;
  Layout layout = resolve(mesh, sharding.spec, static_cast<std::int64_t>(shape.size()), "Zero");
  const int index = mesh.axis(axis);
  if (layout.sharded().contains(index)) return sharding.spec;
  const int best = divisible_dim(mesh, shape, layout, index);
  if (best >= 0) layout.dims[static_cast<std::size_t>(best)].push_back(index);
  return spec_of(mesh, layout);
}

class ZeroEngine::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::vector<at::Tensor> all, ZeroOptions given)
      : options(std::move(given)),
        parameters(unique(std::move(all))),
        schedule(std::make_shared<GatherSchedule>(
            GatherSchedule::Options{.bucket_bytes = options.bucket_bytes,
                                    .overlap = options.overlap,
                                    .keep = options.keep_gathered})),
        buckets({.bucket_bytes = options.bucket_bytes,
                 .overlap = options.overlap,
                 .reduce = dtype(&Precision::reduce),
                 .accumulate = dtype(&Precision::accumulate)}) {
    check(options);
    check(parameters, options);
    if (options.precision && options.precision->needs_loss_scale())
      loss_scale.emplace(options.loss_scale.value_or(LossScaleOptions{}));
    if (loss_scale) status.loss_scale = loss_scale->scale();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      leaves.emplace_back(parameters[i], options, i, schedule);
      shards.push_back(leaves[i].shard());
      account_for(leaves[i].stored(), Use::parameters);
      if (!leaves[i].shares()) account_for(leaves[i].shard(), Use::optimizer);
    }
    taken.assign(leaves.size(), 0);
  }

  ~Core() {
    schedule->retire();
    for (const auto& [accumulator, hook] : hooks) accumulator->del_post_hook(hook);
  }

  // After construction: hooks know the core by a weak pointer.
  static void watch(const std::shared_ptr<Core>& core) {
    for (std::size_t i = 0; i < core->leaves.size(); ++i) {
      if (core->leaves[i].frozen()) continue;
      auto accumulator = torch::autograd::impl::grad_accumulator(core->parameters[i]);
      const auto hook = accumulator->add_post_hook(
          std::make_unique<AfterAccumulation>([weak = std::weak_ptr<Core>(core), i] {
            if (const auto alive = weak.lock()) alive->accumulated(i);
          }));
      core->hooks.emplace_back(std::move(accumulator), hook);
    }
  }

  Reduce reduce() const { return scoped.value_or(reduction(options)); }

  // The gradient of a parameter, on its way to the shard's.
  const at::Tensor& gradient_of(std::size_t i) const {
    const at::Tensor& gradient = parameters[i].grad();
    if (sharded_view(gradient) == nullptr)
      refuse(text("gradient of parameter ", i), "is a plain tensor", "assign a sharded one");
    return gradient;
  }

  void accumulated(std::size_t i) {
    if (!parameters[i].grad().defined()) return;
    account_for(parameters[i].grad(), Use::gradients);
    if (reduce() == Reduce::each) take(i);
  }

  // Once for each backward: when it is over, what it reduces is on its way.
  void await_end_of_backward() {
    const int backward = torch::autograd::get_current_graph_task_id();
    if (backward == -1 || backward == std::exchange(awaited, backward)) return;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      torch::NoGradGuard no_grad;
      if (const auto alive = weak.lock()) alive->buckets.end_of_backward();
    });
  }

  // The parameter's gradient goes to its shard's, for good.
  void take(std::size_t i) {
    await_end_of_backward();
    const at::Tensor gradient = gradient_of(i);
    parameters[i].mutable_grad().reset();
    if (!std::exchange(taken[i], 1)) shards[i].mutable_grad().reset();
    buckets.add(leaves[i], gradient);
  }

  std::optional<at::ScalarType> dtype(at::ScalarType Precision::*place) const {
    return options.precision ? std::optional((*options.precision).*place) : std::nullopt;
  }

  // An optimizer wants gradients in the dtype of what it updates.
  void cast_gradients() {
    for (at::Tensor& shard : shards) {
      if (shard.grad().defined() && shard.grad().scalar_type() != shard.scalar_type())
        shard.mutable_grad() = shard.grad().to(shard.scalar_type());
    }
  }

  void take_outside_changes() {
    for (const auto& arrive : std::exchange(arrivals, {})) arrive();
    for (ZeroLeaf& leaf : leaves) leaf.take_outside_change();
  }

  // What no backward took. It stays the parameter's where nothing of it was: to be read, until zero_grad.
  void reduce_rest() {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const at::Tensor& gradient = parameters[i].grad();
      if (leaves[i].frozen() && gradient.defined()) {
        refuse(text("parameter ", i), "was frozen when Zero was made, and has a gradient now",
               "make a Zero after requires_grad_(true)");
      }
      if (!taken[i]) shards[i].mutable_grad().reset();
      if (!gradient.defined()) continue;
      if (taken[i]) {
        take(i);
      } else {
        buckets.add(leaves[i], gradient_of(i));
      }
    }
    buckets.flush();
  }

  // A gradient that had nothing to reduce still belongs to the program: clipping must not scale it.
  void own_gradients() {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const at::Tensor &mine = shards[i].grad(), &theirs = parameters[i].grad();
      if (!mine.defined() || !theirs.defined()) continue;
      const Shards& locals = sharded_view(theirs)->locals();
      if (sharded_view(mine)->locals().front().is_alias_of(locals.front()))
        shards[i].mutable_grad() = mine.clone();
    }
  }

  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& shard : shards) all.push_back(shard.grad());
    return all;
  }

  // Clips and unscales; false where the step is to be skipped.
  bool finish_gradients() {
    status.skipped = false;
    status.gradient_norm.reset();
    if (!options.clip_norm && !options.skip_nonfinite && !loss_scale) return true;
    const named_scope scope("zero");
    own_gradients();
    const auto all = gradients();
    const double scale = loss_scale ? loss_scale->scale() : 1;
    const std::optional<double> scaled = global_norm(all);
    if (!scaled) return true;  // a dry run
    const double norm = *scaled / scale;
    status.gradient_norm = norm;
    const bool finite = std::isfinite(norm);
    if (loss_scale) {
      loss_scale->update(finite);
      status.loss_scale = loss_scale->scale();
    }
    if (!finite && (options.skip_nonfinite || loss_scale)) {
      status.skipped = true;
      ++status.skips;
      return false;
    }
    scale_all(all, (options.clip_norm ? clip_factor(norm, *options.clip_norm) : 1) / scale);
    return true;
  }

  ZeroOptions options;
  std::vector<at::Tensor> parameters, shards;
  std::shared_ptr<GatherSchedule> schedule;
  std::vector<ZeroLeaf> leaves;
  GradientBuckets buckets;
  std::vector<char> taken;  // 1: the shard's gradient has a part that the parameter's has not
  int awaited = -1;         // the backward whose end is awaited
  std::optional<Reduce> scoped;
  std::optional<LossScale> loss_scale;
  ZeroStatus status;
  std::vector<std::function<void()>> arrivals;  // of parameters under way
  std::vector<std::pair<c10::intrusive_ptr<torch::autograd::Node>, std::uintptr_t>> hooks;
};

ZeroEngine::ZeroEngine(std::vector<at::Tensor> parameters, ZeroOptions options)
    : core_(std::make_shared<Core>(std::move(parameters), std::move(options))) {
  Core::watch(core_);
}

const std::vector<at::Tensor>& ZeroEngine::shards() const { return core_->shards; }
const std::vector<at::Tensor>& ZeroEngine::parameters() const { return core_->parameters; }
const ZeroOptions& ZeroEngine::options() const { return core_->options; }
const std::vector<ZeroLeaf>& ZeroEngine::leaves() const { return core_->leaves; }
const ZeroStatus& ZeroEngine::status() const { return core_->status; }
LossScale* ZeroEngine::loss_scale() { return core_->loss_scale ? &*core_->loss_scale : nullptr; }
const GatherSchedule& ZeroEngine::gather_schedule() const { return *core_->schedule; }

std::vector<torch::optim::OptimizerParamGroup> ZeroEngine::with_shards(
    std::vector<torch::optim::OptimizerParamGroup> groups) const {
  for (auto& group : groups) {
    for (at::Tensor& parameter : group.params()) {
      const auto found =
          std::find_if(core_->parameters.begin(), core_->parameters.end(),
                       [&](const at::Tensor& mine) { return mine.is_same(parameter); });
      if (found == core_->parameters.end())
        refuse("groups", "hold a tensor that is no parameter of this Zero", "give it there too");
      parameter = core_->shards[static_cast<std::size_t>(found - core_->parameters.begin())];
    }
  }
  return groups;
}

void ZeroEngine::begin_closure() {
  if (core_->options.skip_nonfinite || core_->loss_scale)
    refuse("step", "with a closure no step can be skipped", "leave skip_nonfinite and float16 out");
  torch::NoGradGuard no_grad;
  core_->take_outside_changes();
}

bool ZeroEngine::reduce_gradients() {
  torch::NoGradGuard no_grad;
  core_->take_outside_changes();
  core_->reduce_rest();
  core_->schedule->end_step();
  if (!core_->finish_gradients()) return false;
  core_->cast_gradients();
  return true;
}

void ZeroEngine::update_parameters() {
  torch::NoGradGuard no_grad;
  const named_scope scope("zero");
  std::vector<ZeroLeaf*> updated;
  for (ZeroLeaf& leaf : core_->leaves) {
    if (leaf.shard().grad().defined()) updated.push_back(&leaf);
  }
  core_->arrivals =
      bring_to_parameters(updated, core_->options.bucket_bytes, core_->options.overlap);
  for (ZeroLeaf* leaf : updated) leaf->updated();
}

void ZeroEngine::clear_gradients(bool set_to_none) {
  torch::NoGradGuard no_grad;
  core_->buckets.drop();  // of a batch that was given up
  for (std::size_t i = 0; i < core_->leaves.size(); ++i) {
    at::Tensor &gradient = core_->parameters[i].mutable_grad(),
               &reduced = core_->shards[i].mutable_grad();
    // A gradient that is set to zero stays where it is.
    if (!set_to_none && gradient.defined()) gradient.detach_().zero_();
    if (!set_to_none && core_->taken[i] && reduced.defined()) {
      reduced.zero_();
      continue;
    }
    if (set_to_none) gradient.reset();
    reduced.reset();
    core_->taken[i] = 0;
  }
}

reduce_scope::reduce_scope(ZeroEngine& engine, Reduce reduce)
    : core_(engine.core_), outer_(std::exchange(core_->scoped, reduce)) {}

reduce_scope::~reduce_scope() { core_->scoped = outer_; }

}  // namespace meshtorch
