// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/leaf_plan.h>

#include <map>
#include <tuple>
#include <utility>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/layout/plan.h>
#include <meshtorch/tensor/redistribute.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {
namespace {

// What one tensor has still to go through.
class Remaining {
 public:
  Remaining(const Mesh& mesh, const LeafRoute& route)
      : steps_(plan_redistribution(mesh, route.shape,
                                   static_cast<std::int64_t>(c10::elementSize(route.type)),
                                   route.from, route.to)
                   .steps) {
    std::erase_if(steps_, [](const Step& step) { return !is_collective(step.kind); });
  }
  const Step* next() { return at_ < steps_.size() ? &steps_[at_++] : nullptr; }

 private:
  std::vector<Step> steps_;
  std::size_t at_ = 0;
};

}  // namespace

LeafPlan plan_of(const ZeroLeaf& leaf, const ZeroOptions& options, AxisSet batch_axes) {
  const at::ScalarType own = leaf.parameter().scalar_type();
  const bool casts = options.precision && leaf.parameter().is_floating_point();
  LeafPlan plan{.shape = shape_of(leaf.parameter()),
                .use = leaf.use_layout(),
                .gradient = leaf.use_layout(),
                .state = leaf.state_layout(),
                .stored = leaf.stored_layout(),
                .compute = own,
                .accumulate = casts ? options.precision->accumulate : own,
                .wire = casts ? options.precision->reduce : own,
                .master = leaf.shard().scalar_type(),
                .frozen = leaf.frozen(),
                .split = leaf.is_split(),
                .shares = leaf.shares()};
  const int axis = sharded_view(leaf.shard())->mesh().axis(options.axis);
  plan.gradient.unreduced = batch_axes - plan.use.sharded();
  plan.whole = options.stage > 0 && !plan.state.sharded().contains(axis);
  return plan;
}

// Step by step, those of a kind together. All can share a buffer: the axis only cuts what divides.
std::vector<PlannedCollective> flight(const Mesh& mesh, const std::vector<LeafRoute>& routes,
                                      const std::string& meanwhile) {
  std::vector<Remaining> plans;
  for (const LeafRoute& route : routes) plans.emplace_back(mesh, route);
  std::vector<PlannedCollective> all;
  for (bool more = true; std::exchange(more, false);) {
    std::map<std::tuple<StepKind, std::uint64_t, at::ScalarType>, PlannedCollective> round;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const Step* step = plans[i].next();
      if (step == nullptr) continue;
      more = true;
      const PlannedCollective fresh{.kind = request_of(mesh, routes[i].shape, *step).kind,
                                    .axes = axis_names(mesh, step->axes),
                                    .tensors = 0,
                                    .meanwhile = meanwhile};
      const std::tuple key{step->kind, step->axes.packed(), routes[i].type};
      PlannedCollective& one = round.try_emplace(key, fresh).first->second;
      one.bytes += step->bytes;
      one.whole += routes[i].whole ? step->bytes : 0;
      ++one.tensors;
    }
    for (auto& [key, one] : round) all.push_back(std::move(one));
  }
  return all;
}

std::vector<PlannedCollective> scalar_sum(const Mesh& mesh, AxisSet axes, at::ScalarType type) {
  Layout from = Layout::replicated(0);
  from.unreduced = axes;
  auto all = flight(mesh, {{{}, from, Layout::replicated(0), type}});
  for (PlannedCollective& one : all) one.scalar = true;
  return all;
}

}  // namespace meshtorch
