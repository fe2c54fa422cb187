// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/parameter_update.h>

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include <meshtorch/tensor/coalesce.h>
#include <meshtorch/train/bucket.h>
#include <meshtorch/train/local_bytes.h>

namespace meshtorch {
namespace {

const Cause kCause{.op = "Zero::gather_parameters", .origin = Origin::asked, .where = ""};

Move move_of(const ZeroLeaf& leaf) {
  const ShardedView &shard = *sharded_view(leaf.shard()), &stored = *sharded_view(leaf.stored());
  Move move{.shape = shape_of(leaf.shard()),
            .from = shard.layout(),
            .to = stored.layout(),
            .locals = shard.locals(),
            .into = stored.locals()};
  for (at::Tensor& local : move.locals) local = local.to(leaf.stored().scalar_type());
  return move;
}

class Arrival {
 public:
  Arrival(const Mesh& mesh, std::vector<Move> moves) : flight_(mesh, std::move(moves), kCause) {}

  bool arrived() const { return flight_.arrived(); }

  void land() {
    if (landed_) return;
    at::AutoDispatchBelowADInplaceOrView below;
    for (const Move& move : flight_.wait()) {
      for (std::size_t d = 0; d < move.locals.size() && !move.locals[d].is_meta(); ++d) {
        at::Tensor into = move.into[d];
        if (!move.locals[d].is_same(into)) into.copy_(move.locals[d]);
      }
    }
    landed_ = true;
  }

 private:
  Flight flight_;
  bool landed_ = false;
};

}  // namespace

std::vector<std::function<void()>> bring_to_parameters(const std::vector<ZeroLeaf*>& leaves,
                                                       std::int64_t bucket_bytes, bool overlap) {
  at::AutoDispatchBelowADInplaceOrView below;
  std::vector<std::function<void()>> under_way;
  const auto send = [&](const std::vector<ZeroLeaf*>& together) {
    std::vector<Move> moves;
    for (const ZeroLeaf* leaf : together) moves.push_back(move_of(*leaf));
    const auto arrival =
        std::make_shared<Arrival>(sharded_view(together[0]->stored())->mesh(), std::move(moves));
    if (!overlap || arrival->arrived()) return arrival->land();
    under_way.push_back([arrival] { arrival->land(); });
    for (const ZeroLeaf* leaf : together)
      sharded_view(leaf->stored())->allocation()->arrive = under_way.back();
  };
  Bucket<ZeroLeaf*> bucket(bucket_bytes);
  for (ZeroLeaf* leaf : leaves) {
    if (!leaf->shares()) bucket.add(leaf, local_bytes(leaf->stored()), send);
  }
  bucket.flush(send);
  return under_way;
}

}  // namespace meshtorch
