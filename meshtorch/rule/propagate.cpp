// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/rule/propagate.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {
namespace {

// What one tensor is along one mesh axis: sharded on a dim (>= 0), whole or unreduced.
using State = int;
constexpr State kWhole = -1;
constexpr State kUnreduced = -2;

enum class Kind { factor, pass, replicate };

// One way to use an axis.
struct Way {
  Kind kind;
  int factor = -1;
  std::vector<State> operands;
  std::vector<State> outputs;
};

struct Cost {
  double moved = 0;    // bytes now, times n squared so that ties are exact
  double charged = 0;  // and later
  double later = 0;    // what reducing the results will cost that is not charged
  int changes = 0;     // operands whose layout changes
  int spread = 0;      // whole joint operands that become unreduced; negative where that is wanted
};

bool cheaper(const Way& a, const Cost& x, const Way& b, const Cost& y) {
  const auto key = [](const Way& way, const Cost& cost) {
    return std::tuple(cost.charged, way.kind != Kind::factor, cost.later, cost.changes, cost.spread,
                      way.kind);
  };
  return key(a, x) < key(b, y);
}

int dim_with(const OperandFactors& operand, int factor) {
  for (std::size_t d = 0; d < operand.size(); ++d) {
    if (std::find(operand[d].begin(), operand[d].end(), factor) != operand[d].end()) {
      return static_cast<int>(d);
    }
  }
  return -1;
}

class Propagation {
 public:
  Propagation(const OpRule& rule, const Mesh& mesh,
              const std::vector<std::optional<Operand>>& operands, const PropagateOptions& options)
      : rule_(rule),
        mesh_(mesh),
        operands_(operands),
        pinned_(options.pinned.value_or(-1)),
        accumulates_(options.accumulates),
        ways_(kMaxAxes) {
    check();
  }

  std::optional<Placement> run() {
    const std::vector<int> axes = used_axes();
    // The second round charges results by what all other axes do to them, not only the earlier
    // ones.
    for (int round = 0; round < 2; ++round) {
      settled_ = {};
      bytes_ = 0;
      for (int axis : axes) {
        std::optional<Way> way = choose(axis);
        if (!way) return std::nullopt;
        ways_[axis] = std::move(way);
        settled_.insert(axis);
      }
    }
    return place();
  }

 private:
  void check() const {
    if (operands_.size() != rule_.operands.size()) {
      fail({rule_.name, "",
            text("got ", operands_.size(), " operands, expected ", rule_.operands.size()),
            "bind the rule to the operands of this call"});
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const bool bound = rule_.operands[i].has_value();
      if (bound != operands_[i].has_value() ||
          (bound && operands_[i]->layout.dims.size() != rule_.operands[i]->size())) {
        fail({rule_.name, text("operand ", i), "is not the one that the rule was bound to",
              "bind the rule to the shapes of this call"});
      }
    }
  }

  // Operand indices; the pinned one first, since its order of axes must stay.
  std::vector<int> scan_order() const {
    std::vector<int> order;
    if (pinned_ >= 0) order.push_back(pinned_);
    for (int i = 0; i < static_cast<int>(operands_.size()); ++i) {
      if (operands_[i] && i != pinned_) order.push_back(i);
    }
    return order;
  }

  // Major to minor as they stand in the operands' dims, so that the major factor of a merged dim is
  // cut before the minor one is considered.
  std::vector<int> used_axes() const {
    std::vector<int> axes;
    AxisSet seen;
    const auto use = [&](int axis) {
      if (!seen.contains(axis)) axes.push_back(axis);
      seen.insert(axis);
    };
    for (int i : scan_order()) {
      for (AxisList dim : operands_[i]->layout.dims) {
        for (int a = 0; a < dim.size(); ++a) use(dim[a]);
      }
    }
    for (int i : scan_order()) {
      for (int axis : operands_[i]->layout.unreduced) use(axis);
    }
    return axes;
  }

  State state(int operand, int axis) const {
    const Layout& layout = operands_[operand]->layout;
    return layout.unreduced.contains(axis) ? kUnreduced : layout.dim_of(axis);
  }

  bool any_operand(int axis, bool unreduced) const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i]) continue;
      const State now = state(static_cast<int>(i), axis);
      if (unreduced ? now == kUnreduced : now >= 0) return true;
    }
    return false;
  }

  bool is_linear() const {
    return std::find(rule_.each.begin(), rule_.each.end(), true) != rule_.each.end();
  }

  bool is_sharded(int factor, int axis) const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i]) continue;
      const State now = state(static_cast<int>(i), axis);
      if (now >= 0 && now == dim_with(*rule_.operands[i], factor)) return true;
    }
    return false;
  }

  std::optional<Way> choose(int axis) {
    std::optional<Way> best;
    Cost least;
    for (Way& way : ways(axis)) {
      if (!keeps_pinned(way, axis)) continue;
      const std::optional<Cost> price = cost(way, axis);
      if (!price || (best && !cheaper(way, *price, *best, least))) continue;
      best = std::move(way);
      least = *price;
    }
    const double n = static_cast<double>(mesh_.axis_size(axis));
    bytes_ += static_cast<std::int64_t>(std::ceil(least.moved / (n * n)));
    return best;
  }

  std::vector<Way> ways(int axis) const {
    std::vector<Way> found;
    const bool partial = any_operand(axis, true);
    if (any_operand(axis, false)) {
      for (int f = 0; f < static_cast<int>(rule_.factors.size()); ++f) {
        // A partial sum scattered where nobody shards would have the others follow, and be gathered later.
        if (may_shard(f, axis) && (!partial || !is_linear() || is_sharded(f, axis)))
          add_factor_way(f, found);
      }
    }
    if (partial) add_pass_ways(found);
    found.push_back(blank(Kind::replicate));
    return found;
  }

  Way blank(Kind kind) const {
    return {kind, -1, std::vector<State>(operands_.size(), kWhole),
            std::vector<State>(rule_.outputs.size(), kWhole)};
  }

  std::int64_t shards(int factor, int but_axis = -1) const {
    std::int64_t product = 1;
    for (int axis : settled_) {
      if (axis != but_axis && ways_[axis]->factor == factor) product *= mesh_.axis_size(axis);
    }
    return product;
  }

  bool may_shard(int f, int axis) const {
    const Factor& factor = rule_.factors[f];
    if (factor.whole) return false;
    const std::int64_t cut = shards(f) * mesh_.axis_size(axis);
    if (factor.even && factor.size % cut != 0) return false;
    // A device without a part runs nothing, and could not make what is complete on every device.
    if (some_output_apart(f) && (cut - 1) * ((factor.size + cut - 1) / cut) >= factor.size)
      return false;
    bool found = false;
    for (const auto& operand : rule_.operands) {
      if (!operand) continue;
      found |= dim_with(*operand, f) >= 0;
      if (!majors_are_cut(*operand, f)) return false;
    }
    return found && std::all_of(rule_.outputs.begin(), rule_.outputs.end(),
                                [&](const auto& output) { return majors_are_cut(output, f); });
  }

  bool majors_are_cut(const OperandFactors& operand, int factor) const {
    const int dim = dim_with(operand, factor);
    if (dim < 0) return true;
    for (int major : operand[dim]) {
      if (major == factor) return true;
      if (shards(major) != rule_.factors[major].size) return false;
    }
    return true;
  }

  bool is_reduced(std::size_t output) const {
    return output < rule_.reduced.size() && rule_.reduced[output];
  }

  // Its values are not cut by sharding the factor.
  bool is_apart(std::size_t output, int factor) const {
    if (output >= rule_.apart.size()) return false;
    const std::vector<int>& apart = rule_.apart[output];
    return std::find(apart.begin(), apart.end(), factor) != apart.end();
  }

  bool some_output_apart(int factor) const {
    for (std::size_t o = 0; o < rule_.apart.size(); ++o) {
      if (is_apart(o, factor)) return true;
    }
    return false;
  }

  void add_factor_way(int f, std::vector<Way>& found) const {
    Way way = blank(Kind::factor);
    way.factor = f;
    bool some_contract = false;
    bool all_contract = true;
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o) {
      const int dim = dim_with(rule_.outputs[o], f);
      way.outputs[o] = dim >= 0 ? dim : is_reduced(o) || is_apart(o, f) ? kWhole : kUnreduced;
      some_contract |= way.outputs[o] == kUnreduced;
      all_contract &= dim < 0;
    }
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i]) continue;
      way.operands[i] = dim_with(*rule_.operands[i], f);
      if (way.operands[i] >= 0 || !some_contract || !rule_.joint[i]) continue;
      if (!all_contract) return;  // the summand would count once in one output, often in another
      way.operands[i] = kUnreduced;
    }
    found.push_back(std::move(way));
  }

  // Linear in one operand at a time, or in the joint ones together.
  void add_pass_ways(std::vector<Way>& found) const {
    bool each = false;
    bool joint = false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i]) continue;
      joint |= rule_.joint[i];
      if (!rule_.each[i]) continue;
      each = true;
      found.push_back(pass_way(static_cast<int>(i)));
    }
    if (joint && !each) found.push_back(pass_way(-1));
  }

  Way pass_way(int through) const {
    Way way = blank(Kind::pass);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i] && rule_.joint[i]) way.operands[i] = kUnreduced;
    }
    if (through >= 0) way.operands[through] = kUnreduced;
    for (std::size_t o = 0; o < way.outputs.size(); ++o) {
      if (!is_reduced(o)) way.outputs[o] = kUnreduced;
    }
    return way;
  }

  bool keeps_pinned(const Way& way, int axis) const {
    if (pinned_ < 0) return true;
    const State now = state(pinned_, axis);
    return way.operands[pinned_] == now && !way.outputs.empty() && way.outputs[0] == now;
  }

  std::optional<Cost> cost(const Way& way, int axis) const {
    Cost total;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i]) continue;
      const State from = state(static_cast<int>(i), axis);
      const State to = way.operands[i];
      if (from >= 0 && to == kUnreduced && !rule_.joint[i]) return std::nullopt;
      total.moved += move_cost(static_cast<int>(i), axis, from, to);
      total.changes += from != to;
      if (from == kWhole && to == kUnreduced) total.spread += accumulates_ ? -1 : 1;
    }
    const double n = static_cast<double>(mesh_.axis_size(axis));
    for (std::size_t o = 0; o < way.outputs.size(); ++o) {
      if (way.outputs[o] == kUnreduced) total.later += 2 * (n - 1) * n * output_bytes(o, axis);
    }
    const bool lies_there = way.kind == Kind::factor && total.moved == 0;
    total.charged = total.moved;
    if (!lies_there) total.charged += std::exchange(total.later, 0);
    return total;
  }

  // Times n squared.
  double move_cost(int operand, int axis, State from, State to) const {
    if (from == to || from == kWhole || (from >= 0 && to == kUnreduced)) return 0;
    const double n = static_cast<double>(mesh_.axis_size(axis));
    Layout others = operands_[operand]->layout;
    for (AxisList& dim : others.dims) dim = dim.without(AxisSet::of(axis));
    const double bytes =
        static_cast<double>(max_shard_numel(mesh_, operands_[operand]->shape, others)) *
        static_cast<double>(operands_[operand]->item_size);
    if (from == kUnreduced) return (to == kWhole ? 2 : 1) * (n - 1) * n * bytes;
    return to == kWhole ? (n - 1) * n * bytes : (n - 1) * bytes;
  }

  double output_bytes(std::size_t output, int axis) const {
    double bytes = 4;
    for (auto operand = operands_.rbegin(); operand != operands_.rend(); ++operand) {
      if (*operand) bytes = static_cast<double>((*operand)->item_size);
    }
    for (const DimFactors& dim : rule_.outputs[output]) {
      for (int f : dim) {
        std::int64_t size = rule_.factors[f].size;
        if (size < 0) size = 1;  // not known
        for (int other = 0; other < mesh_.rank(); ++other) {
          if (other == axis || !ways_[other] || ways_[other]->factor != f) continue;
          const std::int64_t n = mesh_.axis_size(other);
          size = (size + n - 1) / n;
        }
        bytes *= static_cast<double>(size);
      }
    }
    return bytes;
  }

  // The axes of every factor, major to minor: as the first operand has them, others in mesh order.
  std::vector<AxisList> factor_axes() const {
    std::vector<AxisList> axes(rule_.factors.size());
    const auto append = [&](int f, int axis) {
      if (!axes[f].contains(axis)) axes[f].push_back(axis);
    };
    for (int i : scan_order()) {
      const OperandFactors& operand = *rule_.operands[i];
      for (std::size_t d = 0; d < operand.size(); ++d) {
        const AxisList now = operands_[i]->layout.dims[d];
        for (int f : operand[d]) {
          for (int a = 0; a < now.size(); ++a) {
            if (settled_.contains(now[a]) && ways_[now[a]]->factor == f) append(f, now[a]);
          }
        }
      }
    }
    for (int axis : settled_) {
      if (ways_[axis]->factor >= 0) append(ways_[axis]->factor, axis);
    }
    return axes;
  }

  static Layout layout_of(const OperandFactors& factors, const std::vector<AxisList>& axes) {
    Layout layout = Layout::replicated(static_cast<std::int64_t>(factors.size()));
    for (std::size_t d = 0; d < factors.size(); ++d) {
      for (int f : factors[d]) {
        for (int a = 0; a < axes[f].size(); ++a) layout.dims[d].push_back(axes[f][a]);
      }
    }
    return layout;
  }

  std::optional<Placement> place() const {
    const std::vector<AxisList> axes = factor_axes();
    Placement placement;
    placement.bytes = bytes_;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      placement.operands.push_back(operands_[i] ? layout_of(*rule_.operands[i], axes) : Layout());
      for (int axis : settled_) {
        if (ways_[axis]->operands[i] == kUnreduced) placement.operands[i].unreduced.insert(axis);
      }
    }
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o) {
      placement.outputs.push_back(layout_of(rule_.outputs[o], axes));
      for (int axis : settled_) {
        if (ways_[axis]->outputs[o] == kUnreduced) placement.outputs[o].unreduced.insert(axis);
      }
    }
    if (pinned_ >= 0 && (placement.operands[pinned_] != operands_[pinned_]->layout ||
                         placement.outputs[0] != operands_[pinned_]->layout)) {
      return std::nullopt;
    }
    return placement;
  }

  const OpRule& rule_;
  const Mesh& mesh_;
  const std::vector<std::optional<Operand>>& operands_;
  const int pinned_;
  const bool accumulates_;
  std::vector<std::optional<Way>>
      ways_;  // by axis: this round's where settled, else the last one's
  AxisSet settled_;
  std::int64_t bytes_ = 0;  // moved, over the settled axes
};

}  // namespace

std::optional<Placement> propagate(const OpRule& rule, const Mesh& mesh,
                                   const std::vector<std::optional<Operand>>& operands,
                                   const PropagateOptions& options) {
  return Propagation(rule, mesh, operands, options).run();
}

}  // namespace meshtorch
