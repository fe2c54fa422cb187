// SPDX-License-Identifier: Apache-2.0
#include "wire.h"

#include <algorithm>
#include <map>
#include <set>

#include <meshtorch/comm/distributed/collectives.h>

namespace meshtorch::suite {
namespace {

constexpr std::int64_t kLine = 64;      // elements: the grain of a cut sum
constexpr std::int64_t kSizeBytes = 8;  // of a size that is asked for

class Counter {
 public:
  Counter(const Case& test, std::int64_t devices, int process)
      : test_(test), request_(test.request), devices_(devices), me_(process) {}

  Bounds count() {
    if (request_.kind == Collective::permute) return permute();
    Bounds all;
    std::set<std::vector<std::int64_t>> seen;
    for (std::int64_t position = 0; position < request_.mesh.size(); ++position) {
      const auto group = group_of(request_.mesh, request_.axes, position);
      if (!seen.insert(group).second) continue;
      const Bounds bounds = of_group(group);
      all.least += bounds.least;
      all.most += bounds.most;
    }
    return all;
  }

 private:
  using Group = std::vector<std::int64_t>;

  int process_of(std::int64_t position) const {
    return static_cast<int>(request_.mesh.devices()[static_cast<std::size_t>(position)] / devices_);
  }
  bool mine(std::int64_t position) const { return process_of(position) == me_; }
  const at::Tensor& input(std::int64_t position) const {
    return test_.inputs[static_cast<std::size_t>(position)];
  }
  static std::int64_t bytes(const at::Tensor& tensor) {
    return static_cast<std::int64_t>(tensor.nbytes());
  }

  // The subtrees of the sum that lie in one process and in no larger such.
  std::map<int, std::int64_t> subtrees(const Group& group) const {
    const bool one = std::all_of(group.begin(), group.end(), [&](std::int64_t position) {
      return process_of(position) == process_of(group[0]);
    });
    if (one) return {{process_of(group[0]), 1}};
    const auto half = static_cast<std::ptrdiff_t>((group.size() + 1) / 2);
    auto counts = subtrees(Group(group.begin(), group.begin() + half));
    for (const auto& [process, count] : subtrees(Group(group.begin() + half, group.end())))
      counts[process] += count;
    return counts;
  }

  std::int64_t chunk_bytes(const at::Tensor& tensor, std::int64_t position) const {
    const std::int64_t size = tensor.size(request_.dim);
    if (size == 0) return 0;
    const auto [begin, end] = nested_chunk(request_.mesh, request_.axes, size, position);
    return bytes(tensor) / size * (end - begin);
  }

  Bounds of_group(const Group& group) const {
    auto subtree = subtrees(group);
    const auto others = static_cast<std::int64_t>(subtree.size()) - 1;
    if (!subtree.contains(me_) || others == 0) return {};
    if (request_.kind == Collective::all_reduce)
      return all_reduce(bytes(input(group[0])), others, subtree[me_],
                        static_cast<std::int64_t>(input(group[0]).element_size()));
    const std::int64_t sent = exact(group, others, subtree[me_]);
    return {sent, sent};
  }

  static Bounds all_reduce(std::int64_t size, std::int64_t others, std::int64_t subtrees,
                           std::int64_t item) {
    if (size <= kDirectBytes) return {others * subtrees * size, others * subtrees * size};
    const std::int64_t count = others + 1;
    const std::int64_t sent = (subtrees + 1) * others * size / count;
    const bool even = size % (count * kLine * item) == 0;
    const std::int64_t slack = even ? 0 : (subtrees + 1) * count * count * kLine * item;
    return {sent - slack, sent + slack};
  }

  std::int64_t exact(const Group& group, std::int64_t others, std::int64_t subtrees) const {
    std::int64_t sent = 0;
    for (const std::int64_t member : group) {
      switch (request_.kind) {
        case Collective::all_gather:
          if (mine(member)) sent += others * bytes(input(member));
          break;
        case Collective::reduce_scatter:
          if (!mine(member)) sent += subtrees * chunk_bytes(input(group[0]), member);
          break;
        case Collective::all_to_all:
          for (const std::int64_t source : group) {
            if (mine(source) && !mine(member)) sent += chunk_bytes(input(source), member);
          }
          break;
        case Collective::broadcast:
          if (mine(member) && member == group[static_cast<std::size_t>(request_.root)])
            sent += others * bytes(input(member));
          break;
        default:
          break;
      }
      const bool asks =
          request_.kind == Collective::all_gather || request_.kind == Collective::all_to_all;
      if (asks && !request_.even && mine(member)) sent += others * kSizeBytes;
    }
    return sent;
  }

  // Where every element has one holder before, who sends it is no question.
  Bounds permute() const {
    const bool replicas = request_.from.sharded().size() < request_.mesh.rank();
    const std::int64_t item = test_.inputs[0].element_size();
    Bounds all;
    for (std::int64_t source = 0; source < request_.mesh.size(); ++source) {
      for (std::int64_t target = 0; target < request_.mesh.size(); ++target) {
        if (mine(source) && !mine(target)) all.most += item * overlap(source, target);
      }
    }
    if (!replicas) all.least = all.most;
    return all;
  }

  std::int64_t overlap(std::int64_t source, std::int64_t target) const {
    std::int64_t elements = 1;
    for (std::size_t dim = 0; dim < request_.shape.size(); ++dim) {
      const auto from =
          nested_chunk(request_.mesh, request_.from.dims[dim], request_.shape[dim], source);
      const auto to =
          nested_chunk(request_.mesh, request_.to.dims[dim], request_.shape[dim], target);
      elements *= std::max<std::int64_t>(
          0, std::min(from.second, to.second) - std::max(from.first, to.first));
    }
    return elements;
  }

  const Case& test_;
  const Request& request_;
  const std::int64_t devices_;
  const int me_;
};

}  // namespace

Bounds expected_wire(const Case& test, std::int64_t devices_per_process, int process) {
  return Counter(test, devices_per_process, process).count();
}

}  // namespace meshtorch::suite
