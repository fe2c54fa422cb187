// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/coalesce.h>

#include <ATen/ATen.h>

#include <map>
#include <tuple>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/memory.h>
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

}  // namespace

Flight::Flight(const Mesh& mesh, std::vector<Move> moves, const Cause& cause)
    : Flight(mesh, std::move(moves), cause, false) {}

Flight::Flight(const Mesh& mesh, std::vector<Move> moves, const Cause& cause, bool now)
    : mesh_(mesh), moves_(std::move(moves)), cause_(cause), now_(now), next_(moves_.size(), 0) {
  for (const Move& move : moves_) {
    const auto item_size = static_cast<std::int64_t>(move.locals.front().element_size());
    plans_.push_back(&cached_plan(mesh, move.shape, item_size, move.from, move.to));
  }
  begin_round();
}

bool Flight::arrived() const {
  for (const Bucket& bucket : flying_) {
    if (bucket.started && !bucket.started->done()) return false;
  }
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (next_[i] < plans_[i]->steps.size()) return false;
  }
  return true;
}

std::vector<Move>& Flight::wait() {
  if (failure_) std::rethrow_exception(failure_);
  try {
    while (!flying_.empty()) {
      end_round();
      begin_round();
    }
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
  return moves_;
}

// What cannot share a buffer, alone and at once.
void Flight::run_alone(std::size_t i) {
  const Step& step = plans_[i]->steps[next_[i]++];
  Move& move = moves_[i];
  move.locals = redistribute(mesh_, move.shape, step.before, step.after, move.locals, cause_);
}

void Flight::begin_round() {
  at::AutoDispatchBelowADInplaceOrView below;
  using Key = std::tuple<StepKind, std::uint64_t, at::ScalarType>;
  std::map<Key, std::vector<std::size_t>> ready;
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    const auto& steps = plans_[i]->steps;
    while (next_[i] < steps.size() && !coalesces(mesh_, moves_[i].shape, steps[next_[i]]))
      run_alone(i);
    if (next_[i] == steps.size()) continue;
    const Step& step = steps[next_[i]];
    ready[{step.kind, step.axes.packed(), moves_[i].locals.front().scalar_type()}].push_back(i);
  }
  for (const auto& [key, members] : ready) begin(members);
}

void Flight::begin(const std::vector<std::size_t>& members) {
  Bucket bucket{.members = members};
  Weight weight{.bytes = 0, .tensors = static_cast<int>(members.size())};
  for (const std::size_t i : members) {
    bucket.steps.push_back(&plans_[i]->steps[next_[i]++]);
    weight.bytes += bucket.steps.back()->bytes;
  }
  Request request = request_of(mesh_, moves_[members[0]].shape, *bucket.steps[0]);
  if (is_meta(moves_[members[0]].locals)) {
    // One by one - shapes need no common buffer - and one collective all the same.
    record_collective(request, weight, cause_);
    for (std::size_t k = 0; k < members.size(); ++k) {
      Move& move = moves_[members[k]];
      move.locals = meta::run(request_of(mesh_, move.shape, *bucket.steps[k]), move.locals);
    }
    bucket.members.clear();
  } else {
    const Shards flats = pack(bucket);
    request.dim = 0;  // of the flat buffers
    const use_scope use(Use::communication);
    if (now_) {
      bucket.results = run_collective(std::move(request), flats, weight, cause_);
    } else {
      bucket.started.emplace(std::move(request), flats, weight, cause_);
    }
  }
  flying_.push_back(std::move(bucket));
}

Shards Flight::pack(Bucket& bucket) {
  const std::int64_t n = mesh_.shards(bucket.steps[0]->axes);
  const bool scatters = bucket.steps[0]->kind == StepKind::reduce_scatter;
  const std::size_t devices = moves_[bucket.members[0]].locals.size();
  bucket.locals.resize(bucket.members.size());
  Shards flats(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    std::vector<at::Tensor> parts;
    for (std::size_t k = 0; k < bucket.members.size(); ++k) {
      at::Tensor& local = moves_[bucket.members[k]].locals[d];
      bucket.locals[k].push_back(shape_of(local));
      parts.push_back(scatters ? pieces(local, bucket.steps[k]->to_dim, n)
                               : local.reshape({1, -1}));
      local.reset();
    }
    const use_scope use(Use::communication);
    const device_scope on(device_number(mesh_, d));
    flats[d] = parts.size() == 1 ? parts[0] : at::cat(parts, 1);
  }
  return flats;
}

void Flight::place(Bucket& bucket, std::size_t k, std::size_t d, const at::Tensor& flat) {
  const Step& step = *bucket.steps[k];
  Move& move = moves_[bucket.members[k]];
  const Shape& local = bucket.locals[k][d];
  if (step.kind != StepKind::all_gather) {
    move.locals[d] = flat.reshape(local);
  } else if (move.into.empty() || step.after != move.to) {
    move.locals[d] = joined(flat, local, step.from_dim);
  } else {
    join_into(move.into[d], flat, local, step.from_dim);
    move.locals[d] = move.into[d];
  }
}

void Flight::unpack(Bucket& bucket) {
  const std::int64_t n = mesh_.shards(bucket.steps[0]->axes);
  for (std::size_t d = 0; d < bucket.results.size(); ++d) {
    const device_scope on(device_number(mesh_, d));
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < bucket.members.size(); ++k) {
      Shape& local = bucket.locals[k][d];
      if (bucket.steps[k]->kind == StepKind::reduce_scatter)
        local[static_cast<std::size_t>(bucket.steps[k]->to_dim)] /= n;
      const std::int64_t size = numel(local);
      place(bucket, k, d, bucket.results[d].narrow(1, offset, size));
      offset += size;
    }
    bucket.results[d].reset();
  }
}

void Flight::end_round() {
  at::AutoDispatchBelowADInplaceOrView below;
  std::vector<Bucket> landed = std::exchange(flying_, {});
  for (Bucket& bucket : landed) {
    if (bucket.members.empty()) continue;
    if (bucket.started) {
      bucket.results = bucket.started->wait();
      bucket.started.reset();
    }
    unpack(bucket);
  }
}

void redistribute_all(const Mesh& mesh, std::vector<Move>& moves, const Cause& cause) {
  if (moves.empty()) return;
  Flight flight(mesh, std::move(moves), cause, true);
  moves = std::move(flight.wait());
}

}  // namespace meshtorch
