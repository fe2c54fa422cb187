// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/gradient_buckets.h>

#include <ATen/ATen.h>

#include <utility>

#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/train/cast.h>
#include <meshtorch/train/local_bytes.h>

namespace meshtorch {
namespace {

const Cause kCause{.op = "Zero::reduce_gradients", .origin = Origin::asked, .where = ""};

void cast_all(Shards& locals, at::ScalarType type) {
  for (at::Tensor& local : locals) local = cast_floating(local, type);
}

// `sum` += `part`, both laid out alike.
void add_into(const Shards& sum, const Shards& part) {
  if (is_meta(sum)) return;
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d].add_(part[d]);
}

}  // namespace

void GradientBuckets::add(const ZeroLeaf& leaf, const at::Tensor& gradient) {
  parts_.add({leaf.shard(), gradient.detach()}, local_bytes(gradient),
             [this](const auto& parts) { launch(parts); });
}

void GradientBuckets::launch(const std::vector<Part>& parts) {
  send(parts);
  while (flying_.size() > (options_.overlap ? kMostInFlight : 0)) land();
}

void GradientBuckets::send(const std::vector<Part>& parts) {
  at::AutoDispatchBelowADInplaceOrView below;
  const named_scope scope("zero");
  const Mesh mesh = sharded_view(parts[0].shard)->mesh();
  std::vector<Move> moves;
  std::vector<at::Tensor> shards;
  for (const Part& part : parts) {
    const ShardedView& view = *sharded_view(part.gradient);
    Shards locals = view.locals();
    if (options_.reduce) cast_all(locals, *options_.reduce);
    moves.push_back({.shape = shape_of(part.gradient),
                     .from = view.layout(),
                     .to = sharded_view(part.shard)->layout(),
                     .locals = std::move(locals)});
    shards.push_back(part.shard);
  }
  flying_.push_back({std::move(shards), Flight(mesh, std::move(moves), kCause)});
}

void GradientBuckets::land() {
  at::AutoDispatchBelowADInplaceOrView below;
  const named_scope scope("zero");
  const use_scope use(Use::gradients);
  Sent bucket = std::move(flying_.front());
  flying_.pop_front();
  std::vector<Move>& moves = bucket.flight.wait();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    at::Tensor& shard = bucket.shards[i];
    cast_all(moves[i].locals, options_.accumulate.value_or(shard.scalar_type()));
    if (shard.grad().defined()) {
      add_into(sharded_view(shard.grad())->locals(), moves[i].locals);
    } else {
      shard.mutable_grad() = wrap(sharded_view(shard)->mesh(), moves[i].shape, moves[i].to,
                                  std::move(moves[i].locals));
      account_for(shard.grad(), Use::gradients);
    }
  }
}

// What has arrived lands without a collective, so that its time orders none.
void GradientBuckets::end_of_backward() {
  parts_.flush([this](const auto& parts) { launch(parts); });
  while (!flying_.empty() && flying_.front().flight.arrived()) land();
}

void GradientBuckets::flush() {
  parts_.flush([this](const auto& parts) { launch(parts); });
  while (!flying_.empty()) land();
}

void GradientBuckets::drop() {
  parts_.clear();
  at::AutoDispatchBelowADInplaceOrView below;
  for (Sent& bucket : std::exchange(flying_, {})) bucket.flight.wait();
}

}  // namespace meshtorch
