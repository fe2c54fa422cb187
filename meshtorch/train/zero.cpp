// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/zero.h>

#include <torch/torch.h>

#include <cmath>
#include <set>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/coalesce.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

void check(const std::vector<at::Tensor>& parameters, const ZeroOptions& options) {
  auto refuse = [](std::string where, std::string what, std::string remedy) {
    fail({.op = "Zero",
          .where = std::move(where),
          .what = std::move(what),
          .remedy = std::move(remedy)});
  };
  if (options.stage != 1) {
    refuse("stage", text("got ", options.stage, ", expected 1"),
           "use stage 1, the one there is so far");
  }
  if (options.clip_norm && !(*options.clip_norm > 0)) {
    refuse("clip_norm", text("got ", *options.clip_norm, ", expected a positive number"),
           "leave it out not to clip");
  }
  if (parameters.empty()) refuse("parameters", "there are none", "give model->parameters()");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string where = text("parameter ", i);
    const ShardedView* view = sharded_view(parameters[i]);
    if (view == nullptr) refuse(where, "is a plain tensor", "shard(model, mesh, rules) first");
    const int axis = view->mesh().axis(options.axis);
    if (view->mesh() != sharded_view(parameters[0])->mesh()) {
      refuse(where, "is on another mesh than parameter 0", "use one Zero per mesh");
    }
    if (view->layout().sharded().contains(axis)) {
      refuse(where, "is sharded over \"" + options.axis + "\" already: " + describe(parameters[i]),
             "shard parameters over other axes");
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

// Every element of every shard counted once: where replicas hold the same, the first one counts.
bool counts(const Mesh& mesh, const ShardedView& view, std::int64_t position) {
  const AxisSet sharded = view.layout().sharded();
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    if (!sharded.contains(axis) && mesh.coordinate(position, axis) != 0) return false;
  }
  return true;
}

AxisSet all_axes(const Mesh& mesh) {
  AxisSet axes;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.axis_size(axis) > 1) axes.insert(axis);
  }
  return axes;
}

}  // namespace

PartitionSpec zero_spec(const NamedSharding& sharding, const std::vector<std::int64_t>& shape,
                        const std::string& axis) {
  const Mesh& mesh = sharding.mesh;
  Layout layout = resolve(mesh, sharding.spec, static_cast<std::int64_t>(shape.size()), "Zero");
  const int index = mesh.axis(axis);
  int best = -1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const std::int64_t pieces = mesh.shards(layout.dims[dim]) * mesh.axis_size(index);
    const bool divides = shape[dim] > 0 && shape[dim] % pieces == 0;
    if (divides && (best < 0 || shape[dim] > shape[static_cast<std::size_t>(best)]))
      best = static_cast<int>(dim);
  }
  if (best >= 0) layout.dims[static_cast<std::size_t>(best)].push_back(index);
  return spec_of(mesh, layout);
}

ZeroShards::ZeroShards(std::vector<at::Tensor> parameters, ZeroOptions options)
    : parameters_(unique(std::move(parameters))), options_(std::move(options)) {
  check(parameters_, options_);
  torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters_) {
    const PartitionSpec spec =
        zero_spec(sharding_of(parameter), shape_of(parameter), options_.axis);
    shards_.push_back(reshard(parameter.detach(), spec).requires_grad_(parameter.requires_grad()));
    versions_.push_back(sharded_view(parameter)->allocation()->version);
  }
}

void ZeroShards::take_outside_changes() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::uint64_t version = sharded_view(parameters_[i])->allocation()->version;
    if (std::exchange(versions_[i], version) != version)
      shards_[i].detach().copy_(parameters_[i].detach());
  }
}

void ZeroShards::reduce_gradients() {
  torch::NoGradGuard no_grad;
  take_outside_changes();
  named_scope scope("zero");
  std::vector<Move> moves;
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    shards_[i].mutable_grad().reset();
    if (!gradient.defined()) continue;
    const ShardedView* view = sharded_view(gradient);
    if (view == nullptr) {
      fail({.op = "Zero",
            .where = text("gradient of parameter ", i),
            .what = "is a plain tensor",
            .remedy = "assign a sharded one"});
    }
    moves.push_back(
        {shape_of(gradient), view->layout(), sharded_view(shards_[i])->layout(), view->locals()});
    owners.push_back(i);
  }
  if (moves.empty()) return;
  const Mesh mesh = sharded_view(parameters_[0])->mesh();
  redistribute_all(mesh, moves,
                   {.op = "Zero::reduce_gradients", .origin = Origin::asked, .where = ""});
  for (std::size_t k = 0; k < moves.size(); ++k) {
    at::Tensor& shard = shards_[owners[k]];
    // A gradient that had nothing to reduce still belongs to the program: clipping must not scale it.
    for (std::size_t d = 0; d < moves[k].locals.size(); ++d) {
      if (options_.clip_norm && moves[k].locals[d].is_alias_of(
                                    sharded_view(parameters_[owners[k]].grad())->locals()[d])) {
        moves[k].locals[d] = moves[k].locals[d].clone();
      }
    }
    shard.mutable_grad() = wrap(mesh, moves[k].shape, moves[k].to, std::move(moves[k].locals));
  }
  if (options_.clip_norm) clip();
}

std::optional<double> ZeroShards::global_norm() const {
  const Mesh& mesh = sharded_view(shards_[0])->mesh();
  Runtime& runtime = Runtime::current();
  const auto& positions = runtime.communicator().addressable(mesh);
  at::AutoDispatchBelowADInplaceOrView below;
  Shards sums(positions.size());
  const bool meta = is_meta(shards_[0]);
  const auto options = at::TensorOptions(at::kDouble).device(meta ? at::kMeta : at::kCPU);
  for (std::size_t d = 0; d < positions.size(); ++d) sums[d] = at::zeros({}, options);
  for (const at::Tensor& shard : shards_) {
    if (!shard.grad().defined()) continue;
    const ShardedView& view = *sharded_view(shard.grad());
    for (std::size_t d = 0; d < positions.size(); ++d) {
      if (meta || !counts(mesh, view, positions[d])) continue;
      const at::Tensor norm =
          at::linalg_vector_norm(view.locals()[d], 2, std::nullopt, false, at::kDouble);
      sums[d].add_(norm.square());
    }
  }
  const AxisSet axes = all_axes(mesh);
  if (!axes.empty()) {
    Layout from = Layout::replicated(0);
    from.unreduced = axes;
    sums = redistribute(mesh, {}, from, Layout::replicated(0), sums,
                        {.op = "Zero::clip", .origin = Origin::asked, .where = ""});
  }
  if (meta) return std::nullopt;
  return std::sqrt(sums[0].item<double>());
}

void ZeroShards::clip() {
  gradient_norm_ = global_norm();
  if (!gradient_norm_) return;  // scaling meta shards changes nothing
  const double scale = *options_.clip_norm / (*gradient_norm_ + 1e-6);
  if (scale >= 1) return;
  at::AutoDispatchBelowADInplaceOrView below;
  for (const at::Tensor& shard : shards_) {
    if (!shard.grad().defined()) continue;
    for (const at::Tensor& local : sharded_view(shard.grad())->locals()) local.mul_(scale);
  }
}

void ZeroShards::gather_parameters() {
  torch::NoGradGuard no_grad;
  named_scope scope("zero");
  std::vector<Move> moves;
  std::vector<std::size_t> owners;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!shards_[i].grad().defined()) continue;
    const ShardedView& shard = *sharded_view(shards_[i]);
    const ShardedView& parameter = *sharded_view(parameters_[i]);
    moves.push_back({.shape = shape_of(shards_[i]),
                     .from = shard.layout(),
                     .to = parameter.layout(),
                     .locals = shard.locals(),
                     .into = parameter.locals()});
    owners.push_back(i);
  }
  if (moves.empty()) return;
  const Mesh mesh = sharded_view(parameters_[0])->mesh();
  redistribute_all(mesh, moves,
                   {.op = "Zero::gather_parameters", .origin = Origin::asked, .where = ""});
  at::AutoDispatchBelowADInplaceOrView below;
  for (std::size_t k = 0; k < moves.size(); ++k) {
    const at::Tensor& tensor = parameters_[owners[k]];
    ShardedView& parameter = *sharded_view(tensor);
    for (std::size_t d = 0; d < moves[k].locals.size(); ++d) {
      const at::Tensor& result = moves[k].locals[d];
      if (!result.is_same(parameter.locals()[d])) parameter.locals()[d].copy_(result);
    }
    versions_[owners[k]] = ++parameter.allocation()->version;
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

void ZeroShards::clear_gradients(bool set_to_none) {
  for (at::Tensor& parameter : parameters_) {
    if (!parameter.grad().defined()) continue;
    if (set_to_none) {
      parameter.mutable_grad().reset();
    } else {
      torch::NoGradGuard no_grad;
      parameter.mutable_grad().detach_().zero_();
    }
  }
}

}  // namespace meshtorch
