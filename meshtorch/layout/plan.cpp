// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/plan.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/moves.h>

namespace meshtorch {
namespace {

// Beyond this many layouts the search gives up optimality. Four moving axes stay far below it.
constexpr int kMaxVisits = 5000;

struct Hash {
  std::size_t operator()(const Layout& layout) const {
    std::uint64_t hash = layout.unreduced.bits() + 1;
    for (const AxisList axes : layout.dims) {
      hash = (hash ^ axes.packed()) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return static_cast<std::size_t>(hash);
  }
};

// Compared in this order.
struct Cost {
  std::int64_t bytes = 0;
  int collectives = 0;
  int permutes = 0;
  int steps = 0;

  Cost plus(const Step& step) const {
    return {bytes + step.bytes, collectives + is_collective(step.kind),
            permutes + (step.kind == StepKind::permute), steps + 1};
  }
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

// Uniform-cost search. Every step costs something (at least its place in `steps`), so the first
// time that a layout leaves the queue its cost is final.
class Search {
 public:
  Search(const Route& route, const Layout& from) : route_(route), from_(from) {
    limit_ = std::max(max_shard_numel(route.mesh, route.shape, from),
                      max_shard_numel(route.mesh, route.shape, route.to));
    reach(from, {}, {});
  }

  std::vector<Step> run() {
    for (int visits = 0; visits < kMaxVisits && !queue_.empty(); ++visits) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (entry.cost != entry.node->second.cost) continue;  // reached cheaper since
      if (entry.node->first == route_.to) return steps_to(*entry.node);
      for (Step& step : moves(route_, entry.node->first)) follow(entry, std::move(step));
    }
    return direct_moves(route_, from_);
  }

 private:
  struct Reached {
    Cost cost;
    Step step;  // that led here; its `before` names the layout before
  };
  using Node = std::pair<const Layout, Reached>;
  struct Entry {
    Cost cost;
    int order;  // first come, first served: the plan does not depend on the hash
    const Node* node;
    friend bool operator>(const Entry& a, const Entry& b) {
      return std::tie(a.cost, a.order) > std::tie(b.cost, b.order);
    }
  };

  void follow(const Entry& entry, Step step) {
    const Cost cost = entry.cost.plus(step);
    const auto known = reached_.find(step.after);
    if (known != reached_.end() && known->second.cost <= cost) return;
    if (max_shard_numel(route_.mesh, route_.shape, step.after) > limit_) return;
    const Layout after = step.after;
    reach(after, cost, std::move(step));
  }

  void reach(const Layout& layout, Cost cost, Step step) {
    const auto node = reached_.insert_or_assign(layout, Reached{cost, std::move(step)}).first;
    queue_.push({cost, order_++, &*node});
  }

  std::vector<Step> steps_to(const Node& target) {
    std::vector<Step> steps;
    for (const Node* node = &target; node->first != from_;
         node = &*reached_.find(steps.back().before)) {
      steps.push_back(node->second.step);
    }
    std::ranges::reverse(steps);
    return steps;
  }

  const Route& route_;
  const Layout& from_;
  std::int64_t limit_;
  std::unordered_map<Layout, Reached, Hash> reached_;  // references stay valid as it grows
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  int order_ = 0;
};

// The axes that keep their place between two layouts: unreduced in both, replicated in both, or in
// the common major part of one dimension.
AxisSet common(const Mesh& mesh, const Layout& from, const Layout& to) {
  const AxisSet used = from.sharded() | to.sharded() | from.unreduced | to.unreduced;
  AxisSet same = from.unreduced & to.unreduced;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    if (!used.contains(axis)) same.insert(axis);
  }
  for (std::size_t d = 0; d < from.dims.size(); ++d) {
    const AxisList a = from.dims[d], b = to.dims[d];
    for (int i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) same.insert(a[i]);
  }
  return same;
}

AxisSet all_axes(const Mesh& mesh) {
  AxisSet axes;
  for (int axis = 0; axis < mesh.rank(); ++axis) axes.insert(axis);
  return axes;
}

// The axes of size one that change place.
AxisSet idle_axes(const Mesh& mesh, const Layout& from, const Layout& to) {
  AxisSet idle;
  for (const int axis : all_axes(mesh) - common(mesh, from, to)) {
    if (mesh.axis_size(axis) == 1) idle.insert(axis);
  }
  return idle;
}

Layout without(Layout layout, AxisSet axes) {
  for (AxisList& list : layout.dims) list = list.without(axes);
  layout.unreduced = layout.unreduced - axes;
  return layout;
}

void relabel(const Layout& before, const Layout& after, AxisSet idle, std::vector<Step>& steps) {
  if (before == after) return;
  Step step{.kind = StepKind::relabel, .before = before, .after = after};
  for (const int axis : idle) step.axes.push_back(axis);
  steps.push_back(std::move(step));
}

void check_rank(const Shape& shape, const Layout& layout, const char* which) {
  if (layout.dims.size() == shape.size()) return;
  fail({.op = "plan_redistribution", .where = which,
        .what = text("the layout has ", layout.dims.size(), " dims, the shape ", shape.size()),
        .remedy = "resolve the spec for this rank"});
}

}  // namespace

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::slice: return "slice";
    case StepKind::mask: return "mask";
    case StepKind::pad: return "pad";
    case StepKind::relabel: return "relabel";
    case StepKind::all_gather: return "all_gather";
    case StepKind::all_reduce: return "all_reduce";
    case StepKind::reduce_scatter: return "reduce_scatter";
    case StepKind::all_to_all: return "all_to_all";
    case StepKind::permute: return "permute";
  }
  return "";
}

bool is_collective(StepKind kind) { return kind >= StepKind::all_gather; }

Plan plan_redistribution(const Mesh& mesh, const Shape& shape, std::int64_t item_size,
                         const Layout& from, const Layout& to) {
  check_rank(shape, from, "from");
  check_rank(shape, to, "to");
  Plan plan;
  const AxisSet idle = idle_axes(mesh, from, to);
  const Layout start = without(from, idle), goal = without(to, idle);
  if (start == goal) {
    relabel(from, to, idle, plan.steps);
  } else {
    const Route route{mesh, shape, item_size, goal, all_axes(mesh) - common(mesh, start, goal)};
    relabel(from, start, idle, plan.steps);
    for (Step& step : Search(route, start).run()) plan.steps.push_back(std::move(step));
    relabel(goal, to, idle, plan.steps);
  }
  plan.peak_bytes = max_shard_numel(mesh, shape, from) * item_size;
  for (const Step& step : plan.steps) {
    plan.bytes += step.bytes;
    plan.peak_bytes =
        std::max(plan.peak_bytes, max_shard_numel(mesh, shape, step.after) * item_size);
  }
  return plan;
}

std::string to_string(const Mesh& mesh, const Plan& plan) {
  std::vector<std::string> lines;
  for (const Step& step : plan.steps) {
    std::vector<std::string> axes;
    for (int i = 0; i < step.axes.size(); ++i) axes.push_back(mesh.axes()[step.axes[i]].name);
    const std::string price = is_collective(step.kind) ? text(step.bytes, " bytes") : "free";
    lines.push_back(text(name(step.kind), "(", join(axes), "): ", to_string(mesh, step.before),
                         " -> ", to_string(mesh, step.after), ", ", price));
  }
  return join(lines, "\n");
}

}  // namespace meshtorch
