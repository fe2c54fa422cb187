// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/meta.h>

#include <ATen/ATen.h>

#include <meshtorch/comm/group_chunk.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {
namespace {

// One fresh tensor for each distinct shape.
class Distinct {
 public:
  explicit Distinct(const at::TensorOptions& options) : options_(options) {}

  const at::Tensor& get(at::IntArrayRef sizes) {
    for (const at::Tensor& made : made_) {
      if (made.sizes() == sizes) return made;
    }
    return made_.emplace_back(at::empty(sizes, options_));
  }

 private:
  at::TensorOptions options_;
  std::vector<at::Tensor> made_;
};

bool same_parts(const Shards& shards, const std::vector<std::int64_t>& a,
                const std::vector<std::int64_t>& b) {
  for (std::size_t rank = 0; rank < a.size(); ++rank) {
    const auto at = [&](std::int64_t position) {
      return shards[static_cast<std::size_t>(position)];
    };
    if (!at(a[rank]).is_same(at(b[rank]))) return false;
  }
  return true;
}

// Runs `collective(group, results)` for the groups that differ; a group of the same parts as the one
// before it gets the same results.
template <class F>
Shards by_group(const Request& request, const Shards& shards, F collective) {
  Shards results(shards.size());
  const std::vector<std::int64_t>* before = nullptr;
  for (const auto& group : request.mesh.groups(request.axes)) {
    if (before != nullptr && same_parts(shards, group, *before)) {
      for (std::size_t rank = 0; rank < group.size(); ++rank) {
        results[static_cast<std::size_t>(group[rank])] =
            results[static_cast<std::size_t>((*before)[rank])];
      }
    } else {
      collective(group, results);
    }
    before = &group;
  }
  return results;
}

Shards all_reduce(const Request& request, const Shards& shards) {
  return by_group(request, shards, [&](const auto& group, Shards& results) {
    const at::Tensor sum = at::empty_like(shards[static_cast<std::size_t>(group[0])]);
    for (const std::int64_t position : group) results[static_cast<std::size_t>(position)] = sum;
  });
}

Shards all_gather(const Request& request, const Shards& shards) {
  return by_group(request, shards, [&](const auto& group, Shards& results) {
    std::vector<at::Tensor> parts;
    for (const std::int64_t position : group)
      parts.push_back(shards[static_cast<std::size_t>(position)]);
    const at::Tensor whole = at::cat(parts, request.dim);
    for (const std::int64_t position : group) results[static_cast<std::size_t>(position)] = whole;
  });
}

Shards reduce_scatter(const Request& request, const Shards& shards) {
  Distinct distinct(shards.front().options());
  return by_group(request, shards, [&](const auto& group, Shards& results) {
    Shape sizes = shards[static_cast<std::size_t>(group[0])].sizes().vec();
    const std::int64_t whole = sizes[static_cast<std::size_t>(request.dim)];
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
      sizes[static_cast<std::size_t>(request.dim)] =
          group_chunk(request.mesh, request.axes, whole, static_cast<std::int64_t>(rank)).size();
      results[static_cast<std::size_t>(group[rank])] = distinct.get(sizes);
    }
  });
}

Shards all_to_all(const Request& request, const Shards& shards) {
  Distinct distinct(shards.front().options());
  return by_group(request, shards, [&](const auto& group, Shards& results) {
    Shape sizes = shards[static_cast<std::size_t>(group[0])].sizes().vec();
    const std::int64_t whole = sizes[static_cast<std::size_t>(request.dim)];
    std::int64_t sum = 0;
    for (const std::int64_t position : group)
      sum += shards[static_cast<std::size_t>(position)].size(request.concat_dim);
    sizes[static_cast<std::size_t>(request.concat_dim)] = sum;
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
      sizes[static_cast<std::size_t>(request.dim)] =
          group_chunk(request.mesh, request.axes, whole, static_cast<std::int64_t>(rank)).size();
      results[static_cast<std::size_t>(group[rank])] = distinct.get(sizes);
    }
  });
}

Shards permute(const Request& request, const Shards& shards) {
  Distinct distinct(shards.front().options());
  Shards results(shards.size());
  for (std::size_t position = 0; position < shards.size(); ++position) {
    results[position] = distinct.get(
        shard_shape(request.mesh, request.shape, request.to, static_cast<std::int64_t>(position)));
  }
  return results;
}

Shards broadcast(const Request& request, const Shards& shards) {
  return by_group(request, shards, [&](const auto& group, Shards& results) {
    const at::Tensor& source = shards[static_cast<std::size_t>(group[request.root])];
    for (const std::int64_t position : group)
      results[static_cast<std::size_t>(position)] = at::empty_like(source);
  });
}

}  // namespace

bool is_meta(const Shards& shards) { return !shards.empty() && shards.front().is_meta(); }

at::Tensor without_values(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

Shards without_values(const Shards& shards) {
  Shards results;
  results.reserve(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const bool repeats = i > 0 && shards[i].is_same(shards[i - 1]);
    results.push_back(repeats ? results.back() : without_values(shards[i]));
  }
  share_equal(results);
  return results;
}

void share_equal(Shards& shards) {
  std::vector<at::Tensor> kept;
  for (at::Tensor& shard : shards) {
    if (!shard.defined()) continue;
    bool found = false;
    for (const at::Tensor& other : kept) {
      if (!shard.is_same(other) &&
          (shard.sizes() != other.sizes() || shard.strides() != other.strides()))
        continue;
      shard = other;
      found = true;
      break;
    }
    if (!found) kept.push_back(shard);
  }
}

Shards meta::run(const Request& request, const Shards& shards) {
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

}  // namespace meshtorch
