// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/collectives.h>

#include <ATen/ATen.h>

#include <map>
#include <tuple>

#include <meshtorch/comm/distributed/leaves.h>
#include <meshtorch/comm/distributed/mail.h>
#include <meshtorch/comm/group_chunk.h>
#include <meshtorch/layout/plan.h>

namespace meshtorch {
namespace {

// Part i of n elements cut in k: whole cache lines, the last ones may be short.
Interval slice_of(std::int64_t n, std::int64_t i, std::int64_t k) {
  constexpr std::int64_t kAlign = 64;
  const std::int64_t lines = (n + kAlign - 1) / kAlign;
  const Interval piece = chunk({0, lines}, i, k);
  return {std::min(n, piece.begin * kAlign), std::min(n, piece.end * kAlign)};
}

class Collectives {
 public:
  Collectives(Session& session, const Ticket& ticket, const DevicePlacement& placement, int me,
              const Request& request, const Shards& shards)
      : session_(session),
        ticket_(ticket),
        placement_(placement),
        me_(me),
        request_(request),
        shards_(shards),
        groups_(placement.groups(request.mesh, request.axes, me)),
        results_(shards.size()) {}

  CollectiveResult run() {
    switch (request_.kind) {
      case Collective::all_reduce:
        all_reduce();
        break;
      case Collective::all_gather:
        all_gather();
        break;
      case Collective::reduce_scatter:
        reduce_scatter();
        break;
      case Collective::all_to_all:
        all_to_all();
        break;
      case Collective::broadcast:
        broadcast();
        break;
      case Collective::permute:
        permute();
        break;
    }
    return {std::move(results_), wire_};
  }

 private:
  using Member = GroupRoute::Member;

  bool mine(const Member& member) const { return member.process == me_; }
  at::Tensor empty(const Shape& shape) const { return at::empty(shape, shards_[0].options()); }
  void exchange(bool more = false) { wire_ += mail_.exchange(session_, ticket_, more); }

  template <class F>
  void to_others(const GroupRoute& group, F f) const {
    for (const int peer : group.processes) {
      if (peer != me_) f(peer);
    }
  }

  // Every member of this process gets the value, each in memory of its own.
  void spread(const GroupRoute& group, const at::Tensor& value) {
    bool first = true;
    for (const Member& member : group.members) {
      if (!mine(member)) continue;
      results_[member.index] = std::exchange(first, false) ? value : fresh(value);
    }
  }

  Shards inputs_of(const GroupRoute& group) const {
    Shards inputs;
    for (const Member& member : group.members) inputs.push_back(shards_[member.index]);
    return inputs;
  }

  // A sum on its way: flat values, one for each leaf, of the elements that this process combines.
  struct Sum {
    const GroupRoute* group = nullptr;
    Shape shape;
    std::vector<Subtree> leaves;
    Shards values;
    at::Tensor result;             // flat, whole
    std::vector<Interval> slices;  // by place in group->processes; one for all where it is direct
    Interval own;

    bool direct() const { return slices.empty(); }
  };

  void all_reduce() {
    std::vector<Sum> sums;
    for (const GroupRoute& group : groups_) {
      if (group.crosses()) {
        sums.push_back(begin_sum(group));
      } else {
        spread(group, fresh_tree(inputs_of(group), request_.reduction));
      }
    }
    exchange();
    for (Sum& sum : sums) {
      at::Tensor part = narrow(sum.result, 0, sum.own);
      combine_leaves(part, *sum.group, sum.values, request_.reduction);
      if (!sum.direct()) gather_slices(sum, part);
    }
    exchange(true);
    for (const Sum& sum : sums) spread(*sum.group, sum.result.view(sum.shape));
  }

  Sum begin_sum(const GroupRoute& group) {
    Sum sum{.group = &group, .leaves = leaves_of(group)};
    std::vector<at::Tensor> whole;  // by leaf, those of this process
    for (const Subtree& leaf : sum.leaves) {
      whole.push_back(
          leaf.process != me_
              ? at::Tensor()
              : combine_leaf(group, leaf, shards_, request_.reduction).contiguous().view({-1}));
      if (whole.back().defined()) sum.result = at::empty_like(whole.back());
    }
    sum.shape = shape_of_any(group);
    const std::int64_t n = sum.result.numel();
    sum.own = {0, n};
    if (static_cast<std::int64_t>(sum.result.nbytes()) > kDirectBytes) {
      const auto count = static_cast<std::int64_t>(group.processes.size());
      for (std::int64_t i = 0; i < count; ++i) {
        sum.slices.push_back(slice_of(n, i, count));
        if (group.processes[static_cast<std::size_t>(i)] == me_) sum.own = sum.slices.back();
      }
    }
    for (std::size_t i = 0; i < group.processes.size(); ++i) {
      const int peer = group.processes[i];
      if (peer == me_) continue;
      for (const std::int64_t size : sum.shape) mail_.agree(peer, static_cast<std::uint64_t>(size));
      for (const at::Tensor& value : whole) {
        if (value.defined())
          mail_.send(peer, sum.direct() ? value : narrow(value, 0, sum.slices[i]));
      }
    }
    for (std::size_t i = 0; i < sum.leaves.size(); ++i) {
      if (whole[i].defined()) {
        sum.values.push_back(narrow(whole[i], 0, sum.own));
      } else {
        sum.values.push_back(empty({sum.own.size()}));
        mail_.receive(sum.leaves[i].process, sum.values.back());
      }
    }
    return sum;
  }

  void gather_slices(Sum& sum, const at::Tensor& part) {
    for (std::size_t i = 0; i < sum.slices.size(); ++i) {
      const int peer = sum.group->processes[i];
      if (peer == me_) continue;
      mail_.send(peer, part);
      mail_.receive(peer, narrow(sum.result, 0, sum.slices[i]));
    }
  }

  struct Scatter {
    const GroupRoute* group = nullptr;
    std::size_t index = 0;  // of the result
    Shards values;          // by leaf
  };

  void reduce_scatter() {
    std::vector<Scatter> scatters;
    for (const GroupRoute& group : groups_) {
      const std::vector<Subtree> leaves = leaves_of(group);
      Shards values;
      for (const Subtree& leaf : leaves) {
        values.push_back(leaf.process == me_ ? combine_leaf(group, leaf, shards_, Reduction::sum)
                                             : at::Tensor());
      }
      for (std::size_t rank = 0; rank < group.members.size(); ++rank)
        scatter_rank(group, leaves, values, rank, scatters);
    }
    exchange();
    for (Scatter& scatter : scatters) {
      at::Tensor& result = results_[scatter.index];
      if (scatter.values.size() == 1) {
        result = fresh(scatter.values[0]);
      } else {
        result = empty(scatter.values[0].sizes().vec());
        combine_leaves(result, *scatter.group, scatter.values, Reduction::sum);
      }
    }
  }

  void scatter_rank(const GroupRoute& group, const std::vector<Subtree>& leaves,
                    const Shards& values, std::size_t rank, std::vector<Scatter>& scatters) {
    const Member& member = group.members[rank];
    Scatter scatter{.group = &group, .index = member.index, .values = {}};
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (values[i].defined()) {
        const at::Tensor piece = chunk_of(values[i], rank);
        if (mine(member)) {
          scatter.values.push_back(piece);
        } else {
          mail_.send(member.process, piece);
        }
      } else if (mine(member)) {
        scatter.values.push_back(empty(chunk_of(shards_[member.index], rank).sizes().vec()));
        mail_.receive(leaves[i].process, scatter.values.back());
      }
    }
    if (mine(member)) scatters.push_back(std::move(scatter));
  }

  at::Tensor chunk_of(const at::Tensor& tensor, std::size_t rank) const {
    return narrow(tensor, request_.dim,
                  group_chunk(request_.mesh, request_.axes, tensor.size(request_.dim),
                              static_cast<std::int64_t>(rank)));
  }

  // The size along `dim` of every member's input, by group and rank.
  std::vector<std::vector<std::int64_t>> sizes_along(std::int64_t dim) {
    std::vector<std::vector<std::int64_t>> sizes;
    std::vector<std::tuple<std::size_t, std::size_t, at::Tensor>> asked;
    for (const GroupRoute& group : groups_) {
      std::vector<std::int64_t>& known = sizes.emplace_back();
      for (const Member& member : group.members) {
        if (mine(member) || request_.even) {
          known.push_back(shards_[mine(member) ? member.index : 0].size(dim));
          if (request_.even) continue;
          to_others(group, [&](int peer) {
            mail_.send(peer, at::scalar_tensor(known.back(), at::kLong));
          });
        } else {
          asked.emplace_back(sizes.size() - 1, known.size(), at::empty({}, at::kLong));
          mail_.receive(member.process, std::get<2>(asked.back()));
          known.push_back(0);
        }
      }
    }
    exchange();
    for (const auto& [group, rank, answer] : asked)
      sizes[group][rank] = answer.item<std::int64_t>();
    return sizes;
  }

  void all_gather() {
    const auto sizes = sizes_along(request_.dim);
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // where a received piece belongs
    std::vector<at::Tensor> wholes;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      wholes.push_back(gather_group(groups_[g], sizes[g], copies));
    exchange();
    for (auto& [target, piece] : copies) target.copy_(piece);
    for (std::size_t g = 0; g < groups_.size(); ++g) spread(groups_[g], wholes[g]);
  }

  at::Tensor gather_group(const GroupRoute& group, const std::vector<std::int64_t>& sizes,
                          std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
    Shape shape = shape_of_any(group);
    std::int64_t& along = shape[static_cast<std::size_t>(request_.dim)];
    along = 0;
    for (const std::int64_t size : sizes) along += size;
    const at::Tensor whole = empty(shape);
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank < group.members.size(); offset += sizes[rank++]) {
      const Member& member = group.members[rank];
      const at::Tensor place = whole.narrow(request_.dim, offset, sizes[rank]);
      if (mine(member)) {
        const at::Tensor& input = shards_[member.index];
        place.copy_(input);
        to_others(group, [&](int peer) { mail_.send(peer, input); });
      } else if (place.is_contiguous()) {
        mail_.receive(member.process, place);
      } else {
        copies.emplace_back(place, empty(place.sizes().vec()));
        mail_.receive(member.process, copies.back().second);
      }
    }
    return whole;
  }

  Shape shape_of_any(const GroupRoute& group) const {
    for (const Member& member : group.members) {
      if (mine(member)) return shards_[member.index].sizes().vec();
    }
    return {};
  }

  void all_to_all() {
    const auto sizes = sizes_along(request_.concat_dim);
    std::map<std::size_t, Shards> pieces;  // by result, by source rank
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const GroupRoute& group = groups_[g];
      for (std::size_t rank = 0; rank < group.members.size(); ++rank)
        exchange_rank(group, sizes[g], rank, pieces);
    }
    exchange();
    for (auto& [index, parts] : pieces)
      results_[index] = at::cat(parts, request_.concat_dim).contiguous();
  }

  // Every source's chunk for one member.
  void exchange_rank(const GroupRoute& group, const std::vector<std::int64_t>& sizes,
                     std::size_t rank, std::map<std::size_t, Shards>& pieces) {
    const Member& member = group.members[rank];
    for (std::size_t source = 0; source < group.members.size(); ++source) {
      const Member& from = group.members[source];
      if (mine(from)) {
        const at::Tensor piece = chunk_of(shards_[from.index], rank);
        if (mine(member)) {
          pieces[member.index].push_back(piece);
        } else {
          mail_.send(member.process, piece);
        }
      } else if (mine(member)) {
        Shape shape = chunk_of(shards_[member.index], rank).sizes().vec();
        shape[static_cast<std::size_t>(request_.concat_dim)] = sizes[source];
        pieces[member.index].push_back(empty(shape));
        mail_.receive(from.process, pieces[member.index].back());
      }
    }
  }

  void broadcast() {
    std::vector<at::Tensor> values;
    for (const GroupRoute& group : groups_) {
      const Member& root = group.members[static_cast<std::size_t>(request_.root)];
      if (mine(root)) {
        values.push_back(fresh(shards_[root.index]));
        to_others(group, [&](int peer) { mail_.send(peer, values.back()); });
      } else {
        values.push_back(empty(shape_of_any(group)));
        mail_.receive(root.process, values.back());
      }
    }
    exchange();
    for (std::size_t g = 0; g < groups_.size(); ++g) spread(groups_[g], values[g]);
  }

  void permute() {
    const auto& [mesh, shape, from, to] =
        std::tie(request_.mesh, request_.shape, request_.from, request_.to);
    const auto& positions = placement_.positions_of(me_);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const Box target = shard_box(mesh, shape, to, positions[i]);
      const Box source = shard_box(mesh, shape, from, positions[i]);
      results_[i] = empty(shape_of(target));
      const Box kept = intersect(source, target);
      if (volume(kept) > 0)
        narrow(results_[i], kept, target).copy_(narrow(shards_[i], kept, source));
    }
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;
    for (const Transfer& transfer : transfers(mesh, shape, from, to)) move(transfer, copies);
    exchange();
    for (auto& [target, piece] : copies) target.copy_(piece);
  }

  void move(const Transfer& transfer, std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
    const int source = placement_.process_of(transfer.source);
    const int destination = placement_.process_of(transfer.destination);
    at::Tensor piece, place;
    if (source == me_) {
      piece = narrow(shards_[placement_.index_of(transfer.source)], transfer.box,
                     shard_box(request_.mesh, request_.shape, request_.from, transfer.source));
    }
    if (destination == me_) {
      place = narrow(results_[placement_.index_of(transfer.destination)], transfer.box,
                     shard_box(request_.mesh, request_.shape, request_.to, transfer.destination));
    }
    if (place.defined() && piece.defined()) {
      place.copy_(piece);
    } else if (piece.defined()) {
      mail_.send(destination, piece);
    } else if (place.defined()) {
      copies.emplace_back(place, empty(place.sizes().vec()));
      mail_.receive(source, copies.back().second);
    }
  }

  Session& session_;
  const Ticket& ticket_;
  const DevicePlacement& placement_;
  const int me_;
  const Request& request_;
  const Shards& shards_;
  const std::vector<GroupRoute> groups_;
  Shards results_;
  Mail mail_;
  std::int64_t wire_ = 0;
};

}  // namespace

CollectiveResult run_collective(Session& session, const Ticket& ticket,
                                const DevicePlacement& placement, int process,
                                const Request& request, const Shards& shards) {
  // What a lazily conjugated or negated tensor means is not in its bytes.
  Shards values;
  for (const at::Tensor& shard : shards) values.push_back(shard.resolve_conj().resolve_neg());
  return Collectives(session, ticket, placement, process, request, values).run();
}

}  // namespace meshtorch
