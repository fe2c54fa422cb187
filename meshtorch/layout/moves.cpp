// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/moves.h>

#include <algorithm>

namespace meshtorch {
namespace {

AxisList list_of(AxisSet axes) {
  AxisList list;
  for (const int axis : axes) list.push_back(axis);
  return list;
}

AxisList suffix(AxisList list, int count) {
  AxisList tail;
  for (int i = list.size() - count; i < list.size(); ++i) tail.push_back(list[i]);
  return tail;
}

void append(AxisList& list, AxisList tail) {
  for (int i = 0; i < tail.size(); ++i) list.push_back(tail[i]);
}

// Every non-empty sub-list, orders kept.
std::vector<AxisList> sub_lists(AxisList list) {
  std::vector<AxisList> all;
  for (unsigned bits = 1; bits < (1u << list.size()); ++bits) {
    AxisList& sub = all.emplace_back();
    for (int i = 0; i < list.size(); ++i) {
      if ((bits >> i) & 1u) sub.push_back(list[i]);
    }
  }
  return all;
}

// The moves from one layout, gathered kind by kind.
class Moves {
 public:
  Moves(const Route& route, const Layout& at) : route_(route), at_(at) {
    replicated_ = route.moving - at.sharded() - at.unreduced;
    to_reduce_ = (route.moving & at.unreduced) - route.to.unreduced;
    for (std::size_t d = 0; d < at.dims.size(); ++d) {
      extents_.push_back(shard_interval(route.mesh, route.shape[d], at.dims[d], 0).size());
    }
  }

  void slices() {
    for (int d = 0; d < rank(); ++d) {
      for (const AxisList axes : sub_lists(at_home(d, replicated_))) {
        add({.kind = StepKind::slice, .axes = axes, .to_dim = d});
      }
    }
  }

  // Last of all: it stands in no other step's way, and then has the least to clear.
  void mask() {
    const AxisSet axes = replicated_ & route_.to.unreduced;
    if (axes.empty() || Layout{at_.dims, at_.unreduced | axes} != route_.to) return;
    add({.kind = StepKind::mask, .axes = list_of(axes)});
  }

  void pads() {
    for_each_suffix([&](int d, AxisList axes) {
      if (!(axes.set() - route_.to.unreduced).empty()) return;
      add({.kind = StepKind::pad, .axes = axes, .from_dim = d});
    });
  }

  void all_gathers() {
    for_each_suffix([&](int d, AxisList axes) {
      const std::int64_t whole = extent_without(d, axes);
      add({.kind = StepKind::all_gather, .axes = axes, .from_dim = d},
          others(d) * (whole - smallest(whole, axes)));
    });
  }

  void all_reduces() {
    for (const AxisList axes : sub_lists(list_of(to_reduce_))) all_reduce(axes);
  }

  void all_reduce(AxisList axes) {
    const std::int64_t n = route_.mesh.shards(axes);
    add({.kind = StepKind::all_reduce, .axes = axes});
    const std::int64_t bytes = others(-1) * route_.item_size;
    steps_.back().bytes = (2 * (n - 1) * bytes + n - 1) / n;  // rounded up
  }

  void reduce_scatters() {
    for (int d = 0; d < rank(); ++d) {
      for (const AxisList axes : sub_lists(at_home(d, to_reduce_))) {
        add({.kind = StepKind::reduce_scatter, .axes = axes, .to_dim = d},
            others(d) * (extents_[d] - smallest(extents_[d], axes)));
      }
    }
  }

  void all_to_alls() {
    for_each_suffix([&](int d, AxisList axes) {
      const int home = route_.to.dim_of(axes.front());
      if (home < 0 || home == d || !(axes.set() - route_.to.dims[home].set()).empty()) return;
      add({.kind = StepKind::all_to_all, .axes = axes, .from_dim = d, .to_dim = home},
          others(d, home) * exchanged(d, home, axes));
    });
  }

  void permute() {
    Step step{.kind = StepKind::permute, .before = at_, .after = permuted()};
    if (step.after == at_) return;
    step.axes = list_of(at_.sharded() & route_.moving);
    step.bytes = most_received(step.after) * route_.item_size;
    steps_.push_back(std::move(step));
  }

  std::vector<Step> take() { return std::move(steps_); }
  AxisSet to_reduce() const { return to_reduce_; }

 private:
  int rank() const { return static_cast<int>(at_.dims.size()); }

  // Those of `axes` whose home is dimension d, in the order that they have there.
  AxisList at_home(int d, AxisSet axes) const {
    return route_.to.dims[d].without(route_.to.dims[d].set() - axes);
  }

  // Minor axes of each dimension, all of which may move.
  template <class Visit>
  void for_each_suffix(Visit visit) const {
    for (int d = 0; d < rank(); ++d) {
      const AxisList list = at_.dims[d];
      for (int n = 1; n <= list.size() && route_.moving.contains(list[list.size() - n]); ++n) {
        visit(d, suffix(list, n));
      }
    }
  }

  std::int64_t extent_without(int d, AxisList axes) const {
    const AxisList kept = at_.dims[d].without(axes.set());
    return shard_interval(route_.mesh, route_.shape[d], kept, 0).size();
  }

  // Elements of the largest shard per element along the skipped dims.
  std::int64_t others(int skip, int skip_too = -1) const {
    std::int64_t product = 1;
    for (int d = 0; d < rank(); ++d) {
      if (d != skip && d != skip_too) product *= extents_[d];
    }
    return product;
  }

  // The piece of `size` elements that each rank of a group holds. `axes` apply in turn, so the
  // smallest need not be the last: 9 over (2, 4) is 2 2 1 0 1 1 1 1.
  std::vector<std::int64_t> pieces(std::int64_t size, AxisList axes) const {
    std::vector<std::int64_t> sizes{size};
    for (int i = 0; i < axes.size(); ++i) {
      const std::int64_t n = route_.mesh.axis_size(axes[i]);
      std::vector<std::int64_t> finer;
      for (const std::int64_t each : sizes) {
        for (std::int64_t c = 0; c < n; ++c) finer.push_back(chunk({0, each}, c, n).size());
      }
      sizes = std::move(finer);
    }
    return sizes;
  }

  std::int64_t smallest(std::int64_t size, AxisList axes) const {
    return std::ranges::min(pieces(size, axes));
  }

  // All-to-all: each rank keeps its old piece of its new piece and receives the rest.
  std::int64_t exchanged(int from_dim, int to_dim, AxisList axes) const {
    const std::int64_t whole = extent_without(from_dim, axes);
    const std::vector<std::int64_t> old_pieces = pieces(whole, axes);
    const std::vector<std::int64_t> new_pieces = pieces(extents_[to_dim], axes);
    std::int64_t most = 0;
    for (std::size_t i = 0; i < old_pieces.size(); ++i) {
      most = std::max(most, (whole - old_pieces[i]) * new_pieces[i]);
    }
    return most;
  }

  // All that is sharded goes home at once. What is unreduced now stays so and follows later; what
  // shall be unreduced stays cut, where a pad can take it.
  Layout permuted() const {
    Layout after{route_.to.dims, at_.unreduced};
    for (int d = 0; d < rank(); ++d) {
      after.dims[d] = after.dims[d].without(at_.unreduced);
      append(after.dims[d], at_.dims[d].without(at_.sharded() - route_.to.unreduced));
    }
    return after;
  }

  std::int64_t most_received(const Layout& after) const {
    std::int64_t most = 0;
    for (std::int64_t position = 0; position < route_.mesh.size(); ++position) {
      std::int64_t wanted = 1, held = 1;
      for (int d = 0; d < rank(); ++d) {
        const Interval old = shard_interval(route_.mesh, route_.shape[d], at_.dims[d], position);
        const Interval next = shard_interval(route_.mesh, route_.shape[d], after.dims[d], position);
        wanted *= next.size();
        held *= std::max<std::int64_t>(
            0, std::min(old.end, next.end) - std::max(old.begin, next.begin));
      }
      most = std::max(most, wanted - held);
    }
    return most;
  }

  void add(Step step, std::int64_t elements = 0) {
    step.before = at_;
    step.after = at_;
    const AxisSet axes = step.axes.set();
    step.after.unreduced = at_.unreduced - axes;
    if (step.from_dim >= 0) {
      step.after.dims[step.from_dim] = at_.dims[step.from_dim].without(axes);
    }
    if (step.to_dim >= 0) append(step.after.dims[step.to_dim], step.axes);
    if (step.kind == StepKind::mask || step.kind == StepKind::pad) {
      step.after.unreduced = at_.unreduced | axes;
    }
    step.bytes = elements * route_.item_size;
    steps_.push_back(std::move(step));
  }

  const Route& route_;
  const Layout& at_;
  AxisSet replicated_;  // moving axes that neither cut nor sum
  AxisSet to_reduce_;
  Shape extents_;       // of the largest shard
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> moves(const Route& route, const Layout& at) {
  Moves from(route, at);
  from.slices();
  from.mask();
  from.pads();
  from.all_gathers();
  from.all_reduces();
  from.reduce_scatters();
  from.all_to_alls();
  from.permute();
  return from.take();
}

std::vector<Step> direct_moves(const Route& route, Layout at) {
  std::vector<Step> plan;
  while (at != route.to) {
    Moves from(route, at);
    if (!from.to_reduce().empty()) {
      from.all_reduce(list_of(from.to_reduce()));
    } else {
      from.permute();
      from.pads();
      from.mask();
    }
    plan.push_back(std::move(from.take().front()));
    at = plan.back().after;
  }
  return plan;
}

}  // namespace meshtorch
