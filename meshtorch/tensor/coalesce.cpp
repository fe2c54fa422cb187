// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/coalesce.h>

#include <ATen/ATen.h>

#include <map>
#include <tuple>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

// A step that flat buffers can carry: every device's piece has the same size.
bool coalesces(const Mesh& mesh, const Shape& shape, const Step& step) {
  const std::int64_t n = mesh.shards(step.axes);
  switch (step.kind) {
    case StepKind::all_reduce:
      return true;
    case StepKind::all_gather:
    case StepKind::reduce_scatter: {
      const auto dim = static_cast<std::size_t>(std::max(step.from_dim, step.to_dim));
      const Layout& whole = step.kind == StepKind::all_gather ? step.after : step.before;
      const std::int64_t cut = mesh.shards(whole.dims[dim]) * n;
      return shape[dim] % cut == 0;
    }
    default:
      return false;
  }
}

using Bucket = std::vector<Move*>;

// The local tensor of `move` on device d as n equal pieces along dim, flat: [n, size].
at::Tensor pieces(const at::Tensor& local, std::int64_t dim, std::int64_t n) {
  auto sizes = local.sizes().vec();
  const auto at_dim = static_cast<std::size_t>(dim);
  sizes[at_dim] /= n;
  sizes.insert(sizes.begin() + dim, n);
  return local.reshape(sizes).movedim(dim, 0).reshape({n, -1});
}

// The inverse: [n, size] to the tensor whose n pieces along dim they are.
at::Tensor joined(const at::Tensor& flat, Shape piece, std::int64_t dim) {
  const std::int64_t n = flat.size(0);
  Shape stacked = piece;
  stacked.insert(stacked.begin(), n);
  piece[static_cast<std::size_t>(dim)] *= n;
  return flat.reshape(stacked).movedim(0, dim).reshape(piece);
}

// As joined, into a tensor that is there.
void join_into(at::Tensor into, const at::Tensor& flat, const Shape& piece, std::int64_t dim) {
  const std::int64_t n = flat.size(0);
  Shape stacked = piece;
  stacked.insert(stacked.begin(), n);
  into.unflatten(dim, {n, piece[static_cast<std::size_t>(dim)]})
      .movedim(dim, 0)
      .copy_(flat.reshape(stacked));
}

// Meta shards go one by one - shapes need no common buffer - and are one collective all the same.
void run_meta(const Mesh& mesh, const std::vector<const Step*>& steps, Bucket& bucket) {
  for (std::size_t i = 0; i < bucket.size(); ++i) {
    bucket[i]->locals = meta::run(request_of(mesh, bucket[i]->shape, *steps[i]), bucket[i]->locals);
  }
}

void run_bucket(const Mesh& mesh, const Step& step, const std::vector<const Step*>& steps,
                Bucket& bucket, const Weight& weight, const Cause& cause) {
  Request request = request_of(mesh, bucket[0]->shape, step);
  if (is_meta(bucket[0]->locals)) {
    record_collective(request, weight, cause);
    return run_meta(mesh, steps, bucket);
  }
  const std::int64_t n = mesh.shards(step.axes);
  const std::size_t devices = bucket[0]->locals.size();
  Shards flats(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    std::vector<at::Tensor> parts;
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      const at::Tensor& local = bucket[i]->locals[d];
      parts.push_back(step.kind == StepKind::reduce_scatter ? pieces(local, steps[i]->to_dim, n)
                                                            : local.reshape({1, -1}));
    }
    flats[d] = parts.size() == 1 ? parts[0] : at::cat(parts, 1);
  }
  request.dim = 0;  // of the flat buffers
  const Shards results = run_collective(std::move(request), flats, weight, cause);
  for (std::size_t d = 0; d < devices; ++d) {
    flats[d].reset();
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      Shape local = bucket[i]->locals[d].sizes().vec();
      if (step.kind == StepKind::reduce_scatter)
        local[static_cast<std::size_t>(steps[i]->to_dim)] /= n;
      const std::int64_t size = numel(local);
      const at::Tensor flat = results[d].narrow(1, offset, size);
      Move& move = *bucket[i];
      if (step.kind != StepKind::all_gather) {
        move.locals[d] = flat.reshape(local);
      } else if (move.into.empty() || steps[i]->after != move.to) {
        move.locals[d] = joined(flat, local, steps[i]->from_dim);
      } else {
        join_into(move.into[d], flat, local, steps[i]->from_dim);
        move.locals[d] = move.into[d];
      }
      offset += size;
    }
  }
}

}  // namespace

void redistribute_all(const Mesh& mesh, std::vector<Move>& moves, const Cause& cause) {
  at::AutoDispatchBelowADInplaceOrView below;
  std::vector<const Plan*> plans;
  for (const Move& move : moves) {
    const auto item_size = static_cast<std::int64_t>(move.locals.front().element_size());
    plans.push_back(&cached_plan(mesh, move.shape, item_size, move.from, move.to));
  }
  std::vector<std::size_t> next(moves.size(), 0);
  for (bool more = true; more;) {
    more = false;
    using Key = std::tuple<StepKind, std::uint64_t, at::ScalarType>;
    std::map<Key, std::vector<std::size_t>> ready;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      // What cannot share a buffer runs alone, at once.
      while (next[i] < plans[i]->steps.size() &&
             !coalesces(mesh, moves[i].shape, plans[i]->steps[next[i]])) {
        const Step& step = plans[i]->steps[next[i]++];
        moves[i].locals =
            redistribute(mesh, moves[i].shape, step.before, step.after, moves[i].locals, cause);
      }
      if (next[i] == plans[i]->steps.size()) continue;
      const Step& step = plans[i]->steps[next[i]];
      ready[{step.kind, step.axes.packed(), moves[i].locals.front().scalar_type()}].push_back(i);
    }
    for (const auto& [key, members] : ready) {
      more = true;
      Bucket bucket;
      std::vector<const Step*> steps;
      std::int64_t bytes = 0;
      for (const std::size_t i : members) {
        bucket.push_back(&moves[i]);
        steps.push_back(&plans[i]->steps[next[i]++]);
        bytes += steps.back()->bytes;
      }
      const Step& step = *steps.front();
      run_bucket(mesh, step, steps, bucket,
                 {.bytes = bytes, .tensors = static_cast<int>(members.size())}, cause);
    }
  }
}

}  // namespace meshtorch
