// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/gradient_buckets.h>

#include <ATen/ATen.h>

#include <utility>

#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/train/local_bytes.h>

namespace meshtorch {
namespace {

const Cause kCause{.op = "Zero::reduce_gradients", .origin = Origin::asked, .where = ""};

// Meta shards are one tensor for many devices.
bool same_on_all(const Shards& locals) { return locals.front().is_meta(); }

void cast_all(Shards& locals, at::ScalarType type) {
  for (at::Tensor& local : locals) {
    if (local.is_floating_point()) local = local.to(type);
  }
}

// `sum` += `part`, both laid out alike.
void add_into(const Shards& sum, const Shards& part) {
  if (same_on_all(sum)) return;
  for (std::size_t d = 0; d < sum.size(); ++d) sum[d].add_(part[d]);
}

}  // namespace

void GradientBuckets::add(const ZeroLeaf& leaf, const at::Tensor& gradient) {
  const std::int64_t bytes = local_bytes(gradient);
  if (!parts_.empty() && bytes_ + bytes > options_.bucket_bytes) launch();
  parts_.push_back({leaf.shard(), gradient.detach()});
  bytes_ += bytes;
  if (bytes_ >= options_.bucket_bytes) launch();
}

void GradientBuckets::launch() {
  if (parts_.empty()) return;
  send();
  while (flying_.size() > (options_.overlap ? kMostInFlight : 0)) land();
}

void GradientBuckets::send() {
  at::AutoDispatchBelowADInplaceOrView below;
  const named_scope scope("zero");
  const Mesh mesh = sharded_view(parts_[0].shard)->mesh();
  std::vector<Move> moves;
  std::vector<at::Tensor> shards;
  for (const Part& part : parts_) {
    const ShardedView& view = *sharded_view(part.gradient);
    Shards locals = view.locals();
    if (options_.reduce) cast_all(locals, *options_.reduce);
    moves.push_back({.shape = shape_of(part.gradient),
                     .from = view.layout(),
                     .to = sharded_view(part.shard)->layout(),
                     .locals = std::move(locals)});
    shards.push_back(part.shard);
  }
  parts_.clear();
  bytes_ = 0;
  flying_.push_back({std::move(shards), Flight(mesh, std::move(moves), kCause)});
}

void GradientBuckets::land() {
  at::AutoDispatchBelowADInplaceOrView below;
  const named_scope scope("zero");
  const use_scope use(Use::gradients);
  Bucket bucket = std::move(flying_.front());
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
  launch();
  while (!flying_.empty() && flying_.front().flight.arrived()) land();
}

void GradientBuckets::flush() {
  launch();
  while (!flying_.empty()) land();
}

void GradientBuckets::drop() {
  parts_.clear();
  bytes_ = 0;
  at::AutoDispatchBelowADInplaceOrView below;
  for (Bucket& bucket : std::exchange(flying_, {})) bucket.flight.wait();
}

}  // namespace meshtorch
