// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <map>
#include <numeric>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/combine.h>
#include <meshtorch/comm/group_chunk.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/plan.h>

namespace meshtorch {
namespace {

Shards all_reduce(const Request& request, const Shards& shards) {
  Shards results(shards.size());
  for (const auto& group : request.mesh.groups(request.axes)) {
    const Shards parts = members(shards, group);
    const at::Tensor sum = fresh_tree(parts, request.reduction);
    results[group[0]] = sum;
    for (std::size_t rank = 1; rank < group.size(); ++rank) results[group[rank]] = fresh(sum);
  }
  return results;
}

Shards all_gather(const Request& request, const Shards& shards) {
  Shards results(shards.size());
  for (const auto& group : request.mesh.groups(request.axes)) {
    const at::Tensor whole = at::cat(members(shards, group), request.dim).contiguous();
    results[group[0]] = whole;
    for (std::size_t rank = 1; rank < group.size(); ++rank) results[group[rank]] = fresh(whole);
  }
  return results;
}

// What `join` makes, for each rank, of its nested chunks of all parts.
template <class F>
Shards chunk_by_rank(const Request& request, const Shards& shards, F join) {
  Shards results(shards.size());
  for (const auto& group : request.mesh.groups(request.axes)) {
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
      Shards parts = members(shards, group);
      const Interval piece = group_chunk(request.mesh, request.axes, parts[0].size(request.dim),
                                         static_cast<std::int64_t>(rank));
      for (at::Tensor& part : parts) part = narrow(part, request.dim, piece);
      results[group[rank]] = join(parts);
    }
  }
  return results;
}

Shards reduce_scatter(const Request& request, const Shards& shards) {
  return chunk_by_rank(request, shards,
                       [](const Shards& parts) { return fresh_tree(parts, Reduction::sum); });
}

Shards all_to_all(const Request& request, const Shards& shards) {
  return chunk_by_rank(request, shards, [&](const Shards& parts) {
    return at::cat(parts, request.concat_dim).contiguous();
  });
}

Shards broadcast(const Request& request, const Shards& shards) {
  Shards results(shards.size());
  for (const auto& group : request.mesh.groups(request.axes)) {
    const at::Tensor& source = shards[group[static_cast<std::size_t>(request.root)]];
    for (const std::int64_t position : group) results[position] = fresh(source);
  }
  return results;
}

Shards permute(const Request& request, const Shards& shards) {
  const auto& [mesh, shape, from, to] =
      std::tie(request.mesh, request.shape, request.from, request.to);
  Shards results(shards.size());
  std::vector<Box> source(shards.size()), target(shards.size());
  for (std::size_t position = 0; position < shards.size(); ++position) {
    source[position] = shard_box(mesh, shape, from, static_cast<std::int64_t>(position));
    target[position] = shard_box(mesh, shape, to, static_cast<std::int64_t>(position));
    results[position] = at::empty(shape_of(target[position]), shards[position].options());
    const Box kept = intersect(source[position], target[position]);
    if (volume(kept) > 0) {
      narrow(results[position], kept, target[position])
          .copy_(narrow(shards[position], kept, source[position]));
    }
  }
  for (const Transfer& transfer : transfers(mesh, shape, from, to)) {
    narrow(results[transfer.destination], transfer.box, target[transfer.destination])
        .copy_(narrow(shards[transfer.source], transfer.box, source[transfer.source]));
  }
  return results;
}

Shards run_local(const Request& request, const Shards& shards) {
  switch (request.kind) {
    case Collective::all_reduce:
      return all_reduce(request, shards);
    case Collective::all_gather:
      return all_gather(request, shards);
    case Collective::reduce_scatter:
      return reduce_scatter(request, shards);
    case Collective::all_to_all:
      return all_to_all(request, shards);
    case Collective::broadcast:
      return broadcast(request, shards);
    case Collective::permute:
      return permute(request, shards);
  }
  return {};
}

class LocalCommunicator final : public Communicator {
 public:
  explicit LocalCommunicator(std::int64_t devices) : devices_(devices) {}

  std::int64_t devices() const override { return devices_; }

  const std::vector<std::int64_t>& addressable(const Mesh& mesh) const override {
    auto& positions = positions_[mesh.size()];
    if (positions.empty()) {
      positions.resize(static_cast<std::size_t>(mesh.size()));
      std::iota(positions.begin(), positions.end(), 0);
    }
    return positions;
  }

  Pending start(Request request, const Shards& shards) override {
    return Pending(is_meta(shards) ? meta::run(request, shards) : run_local(request, shards));
  }

 private:
  std::int64_t devices_;
  mutable std::map<std::int64_t, std::vector<std::int64_t>> positions_;
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(std::int64_t devices) {
  if (devices < 1) {
    fail({.op = "Runtime",
          .where = "devices",
          .what = text("got ", devices, ", expected at least 1"),
          .remedy = "give the number of virtual devices"});
  }
  return std::make_unique<LocalCommunicator>(devices);
}

}  // namespace meshtorch
