// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <map>
#include <numeric>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/communicator.h>
#include <meshtorch/comm/group_chunk.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/plan.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {
namespace {

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return at::add(a, b);
    case Reduction::max:
      return at::maximum(a, b);
    case Reduction::min:
      return at::minimum(a, b);
  }
  return {};
}

// As combine, into `a`, which the caller owns.
void combine_into(at::Tensor& a, const at::Tensor& b, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      a.add_(b);
      break;
    case Reduction::max:
      at::maximum_out(a, a, b);
      break;
    case Reduction::min:
      at::minimum_out(a, a, b);
      break;
  }
}

// The tree of communicator.h over parts[begin, end); a fresh tensor where there are two or more.
at::Tensor tree(const std::vector<at::Tensor>& parts, std::size_t begin, std::size_t end,
                Reduction reduction) {
  const std::size_t count = end - begin;
  if (count == 1) return parts[begin];
  if (count == 2) return combine(parts[begin], parts[begin + 1], reduction);
  const std::size_t middle = begin + (count + 1) / 2;
  at::Tensor left = tree(parts, begin, middle, reduction);
  combine_into(left, tree(parts, middle, end, reduction), reduction);
  return left;
}

at::Tensor fresh(const at::Tensor& tensor) { return tensor.clone(at::MemoryFormat::Contiguous); }

at::Tensor narrow(const at::Tensor& tensor, std::int64_t dim, Interval piece) {
  return tensor.narrow(dim, piece.begin, piece.size());
}

at::Tensor narrow(at::Tensor tensor, const Box& box, const Box& origin) {
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), box[dim].begin - origin[dim].begin,
                           box[dim].size());
  }
  return tensor;
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

  Shards all_reduce(const Mesh& mesh, AxisList axes, const Shards& shards,
                    Reduction reduction) override {
    if (is_meta(shards)) return meta::all_reduce(mesh, axes, shards);
    Shards results(shards.size());
    for (const auto& group : mesh.groups(axes)) {
      const auto parts = members(shards, group);
      at::Tensor sum =
          parts.size() == 1 ? fresh(parts[0]) : tree(parts, 0, parts.size(), reduction);
      results[group[0]] = sum;
      for (std::size_t rank = 1; rank < group.size(); ++rank) results[group[rank]] = fresh(sum);
    }
    return results;
  }

  Shards all_gather(const Mesh& mesh, AxisList axes, const Shards& shards,
                    std::int64_t dim) override {
    if (is_meta(shards)) return meta::all_gather(mesh, axes, shards, dim);
    Shards results(shards.size());
    for (const auto& group : mesh.groups(axes)) {
      const at::Tensor whole = at::cat(members(shards, group), dim);
      results[group[0]] = whole;
      for (std::size_t rank = 1; rank < group.size(); ++rank) results[group[rank]] = fresh(whole);
    }
    return results;
  }

  Shards reduce_scatter(const Mesh& mesh, AxisList axes, const Shards& shards,
                        std::int64_t dim) override {
    if (is_meta(shards)) return meta::reduce_scatter(mesh, axes, shards, dim);
    Shards results(shards.size());
    for (const auto& group : mesh.groups(axes)) {
      for (std::size_t rank = 0; rank < group.size(); ++rank) {
        auto parts = members(shards, group);
        const Interval piece =
            group_chunk(mesh, axes, parts[0].size(dim), static_cast<std::int64_t>(rank));
        for (auto& part : parts) part = narrow(part, dim, piece);
        results[group[rank]] =
            parts.size() == 1 ? fresh(parts[0]) : tree(parts, 0, parts.size(), Reduction::sum);
      }
    }
    return results;
  }

  Shards all_to_all(const Mesh& mesh, AxisList axes, const Shards& shards, std::int64_t split_dim,
                    std::int64_t concat_dim) override {
    if (is_meta(shards)) return meta::all_to_all(mesh, axes, shards, split_dim, concat_dim);
    Shards results(shards.size());
    for (const auto& group : mesh.groups(axes)) {
      for (std::size_t rank = 0; rank < group.size(); ++rank) {
        auto parts = members(shards, group);
        const Interval piece =
            group_chunk(mesh, axes, parts[0].size(split_dim), static_cast<std::int64_t>(rank));
        for (auto& part : parts) part = narrow(part, split_dim, piece);
        results[group[rank]] = at::cat(parts, concat_dim);
      }
    }
    return results;
  }

  Shards permute(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to,
                 const Shards& shards) override {
    if (is_meta(shards)) return meta::permute(mesh, shape, to, shards);
    Shards results(shards.size());
    std::vector<Box> source(shards.size()), target(shards.size());
    for (std::size_t position = 0; position < shards.size(); ++position) {
      source[position] = shard_box(mesh, shape, from, static_cast<std::int64_t>(position));
      target[position] = shard_box(mesh, shape, to, static_cast<std::int64_t>(position));
      Shape local;
      for (const auto& interval : target[position]) local.push_back(interval.size());
      results[position] = at::empty(local, shards[position].options());
      Box kept = intersect(source[position], target[position]);
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

 private:
  static std::vector<at::Tensor> members(const Shards& shards,
                                         const std::vector<std::int64_t>& group) {
    std::vector<at::Tensor> parts;
    parts.reserve(group.size());
    for (std::int64_t position : group) parts.push_back(shards[static_cast<std::size_t>(position)]);
    return parts;
  }

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
