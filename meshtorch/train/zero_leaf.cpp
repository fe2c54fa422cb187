// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/zero_leaf.h>

#include <torch/torch.h>

#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/cast.h>
#include <meshtorch/train/gather_schedule.h>

namespace meshtorch {
namespace {

// Axes of size one lay nothing out.
Layout effective(const Mesh& mesh, Layout layout) {
  for (AxisList& axes : layout.dims) {
    AxisList kept;
    for (int i = 0; i < axes.size(); ++i) {
      if (mesh.axis_size(axes[i]) > 1) kept.push_back(axes[i]);
    }
    axes = kept;
  }
  return layout;
}

// The tensor in another layout and dtype: the same memory where neither differs.
at::Tensor laid_out(const at::Tensor& tensor, const PartitionSpec& spec, at::ScalarType type) {
  const ShardedView& view = *sharded_view(tensor);
  const at::Tensor whole = cast_floating(tensor.detach(), type);
  const Layout wanted = resolve(view.mesh(), spec, tensor.dim());
  if (effective(view.mesh(), wanted) == effective(view.mesh(), view.layout())) return whole;
  return reshard(whole, spec);
}

// As ops see it that lies over the axis already (FsdpRule): without.
PartitionSpec without_axis(const NamedSharding& sharding, std::int64_t rank,
                           const std::string& axis) {
  Layout layout = resolve(sharding.mesh, sharding.spec, rank, "Zero");
  const AxisSet gone = AxisSet::of(sharding.mesh.axis(axis));
  for (AxisList& axes : layout.dims) axes = axes.without(gone);
  return spec_of(sharding.mesh, layout);
}

// The parameter in another layout, without values: what it keeps has them.
void show_as(const at::Tensor& parameter, const PartitionSpec& spec) {
  const auto constraint = sharded_view(parameter)->allocation()->constraint;
  const at::Tensor model = device_put(
      at::empty(parameter.sizes(), at::TensorOptions(parameter.dtype()).device(at::kMeta)),
      {sharded_view(parameter)->mesh(), spec});
  rebind(parameter, shape_of(parameter),
         c10::intrusive_ptr<ShardedView>::reclaim_copy(sharded_view(model)));
  sharded_view(parameter)->allocation()->constraint = constraint;
  sharded_view(parameter)->allocation()->placed = true;
}

}  // namespace

ZeroLeaf::ZeroLeaf(at::Tensor parameter, const ZeroOptions& options, std::size_t index,
                   const std::shared_ptr<GatherSchedule>& schedule)
    : index_(index), parameter_(std::move(parameter)), frozen_(!parameter_.requires_grad()) {
  torch::NoGradGuard no_grad;
  GatherSchedule::unstore(parameter_);
  const at::ScalarType own = parameter_.scalar_type();
  const bool casts = options.precision.has_value() && parameter_.is_floating_point();
  const at::ScalarType compute = casts ? options.precision->compute : own;
  const at::ScalarType master = casts && !frozen_ ? options.precision->params : own;
  const NamedSharding given = sharding_of(parameter_);
  const PartitionSpec whole = without_axis(given, parameter_.dim(), options.axis);
  const PartitionSpec parts = zero_spec(given, shape_of(parameter_), options.axis);
  const bool divides = effective(given.mesh, resolve(given.mesh, parts, parameter_.dim())) !=
                       effective(given.mesh, resolve(given.mesh, whole, parameter_.dim()));
  split_ = divides && options.stage == 3;

  const bool state = divides && options.stage >= 1 && (!frozen_ || split_);
  const at::Tensor before = parameter_.detach();  // in the dtype that it came in
  if (compute != own) {
    const auto constraint = sharded_view(parameter_)->allocation()->constraint;
    parameter_.set_data(cast_floating(before, compute));
    sharded_view(parameter_)->allocation()->constraint = constraint;
    sharded_view(parameter_)->allocation()->placed = true;
  }
  if (casts && !frozen_) parameter_.set_grad_dtype(options.precision->accumulate);
  const bool same_type = frozen_ || master == compute;
  shard_ = laid_out(same_type ? parameter_ : before, state ? parts : whole,
                    same_type ? compute : master);
  stored_ = parameter_;
  if (split_) {
    stored_ = same_type ? shard_.detach() : laid_out(parameter_, parts, compute);
    if (whole != given.spec) show_as(parameter_, whole);
    GatherSchedule::store(schedule, index, parameter_, stored_);
  }
  shares_ =
      sharded_view(shard_)->models().front().is_alias_of(sharded_view(stored_)->models().front());
  sharded_view(shard_)->allocation()->placed = true;
  if (!frozen_) shard_.requires_grad_(true);
  sync();
}

Layout ZeroLeaf::use_layout() const { return sharded_view(parameter_)->layout(); }
Layout ZeroLeaf::stored_layout() const { return sharded_view(stored_)->layout(); }
Layout ZeroLeaf::state_layout() const { return sharded_view(shard_)->layout(); }

void ZeroLeaf::updated() {
  ++sharded_view(parameter_)->allocation()->version;
  parameter_.unsafeGetTensorImpl()->bump_version();
  sync();
}

void ZeroLeaf::sync() {
  allocation_ = sharded_view(parameter_)->allocation();
  version_ = sharded_view(parameter_)->allocation()->version;
}

void ZeroLeaf::take_outside_change() {
  const ShardedView* view = sharded_view(parameter_);
  if (view == nullptr || view->allocation() != allocation_.lock()) {
    fail({.op = "Zero",
          .where = text("parameter ", index_),
          .what = "holds another tensor than when Zero was made (set_data, module->to, device_get, "
                  "another Zero): " +
                  describe(parameter_),
          .remedy = "make a new Zero after it"});
  }
  if (version_ == sharded_view(parameter_)->allocation()->version) return;
  if (!shares_) shard_.detach().copy_(stored_.detach());
  sync();
}

}  // namespace meshtorch
