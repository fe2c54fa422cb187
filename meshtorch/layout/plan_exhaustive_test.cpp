// SPDX-License-Identifier: Apache-2.0
//
// Every plan between all pairs of layouts on small meshes, carried out on numbers. The executor
// below does each step by its definition, knows nothing of the planner, and checks what backends
// rely on: pieces in rank order are consecutive, no element is missing or comes twice.
#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include <meshtorch/layout/moves.h>
#include <meshtorch/layout/plan.h>

namespace meshtorch {
namespace {

using Index = std::vector<std::int64_t>;
using Values = std::map<Index, double>;  // by global index
using Devices = std::vector<Values>;     // by position

void visit(const Box& box, const std::function<void(const Index&)>& f, Index prefix = {}) {
  if (prefix.size() == box.size()) return f(prefix);
  const Interval range = box[prefix.size()];
  prefix.push_back(range.begin);
  for (; prefix.back() < range.end; ++prefix.back()) visit(box, f, prefix);
}

AxisList list_of(AxisSet axes) {
  AxisList list;
  for (const int axis : axes) list.push_back(axis);
  return list;
}

// All layouts: each axis at every place of every dim, replicated, or unreduced.
std::vector<Layout> all_layouts(int axes, std::int64_t rank) {
  std::vector<Layout> all{Layout::replicated(rank)};
  for (int axis = 0; axis < axes; ++axis) {
    std::vector<Layout> more = all;
    for (Layout layout : all) {
      for (std::size_t d = 0; d < layout.dims.size(); ++d) {
        for (int at = 0; at <= layout.dims[d].size(); ++at) {
          Layout& next = more.emplace_back(layout);
          AxisList list;
          for (int i = 0; i < at; ++i) list.push_back(layout.dims[d][i]);
          list.push_back(axis);
          for (int i = at; i < layout.dims[d].size(); ++i) list.push_back(layout.dims[d][i]);
          next.dims[d] = list;
        }
      }
      layout.unreduced.insert(axis);
      more.push_back(layout);
    }
    all = std::move(more);
  }
  return all;
}

class Executor {
 public:
  Executor(const Mesh& mesh, const Shape& shape) : mesh_(mesh), shape_(shape) {
    Box whole;
    for (const std::int64_t size : shape) whole.push_back({0, size});
    visit(whole, [&](const Index& at) { dense_[at] = random(); });
  }

  // Random summands, the same on replicas.
  Devices place(const Layout& layout) {
    const AxisList axes = list_of(layout.unreduced);
    std::vector<Values> summands(static_cast<std::size_t>(mesh_.shards(axes)), dense_);
    for (std::size_t i = 1; i < summands.size(); ++i) {
      for (auto& [at, value] : summands[i]) summands[0][at] -= value = random();
    }
    Devices devices(static_cast<std::size_t>(mesh_.size()));
    each_position([&](std::int64_t p) {
      const Values& summand = summands[mesh_.group_rank(p, axes)];
      visit(box(layout, p), [&](const Index& at) { devices[p][at] = summand.at(at); });
    });
    return devices;
  }

  Devices run(const Step& step, const Devices& old) {
    Devices now(old.size());
    each_position([&](std::int64_t p) {
      Values& value = now[p];
      const Box after = box(step.after, p);
      const auto own = [&] { take(old[p], intersect(after, box(step.before, p)), value); };
      const auto group = mesh_.group(p, step.axes);
      switch (step.kind) {
        case StepKind::slice:
        case StepKind::relabel:
          own();
          break;
        case StepKind::mask:
          if (mesh_.group_rank(p, step.axes) == 0) own();
          zeros(after, value);
          break;
        case StepKind::pad:
          own();
          zeros(after, value);
          break;
        case StepKind::all_reduce:
        case StepKind::reduce_scatter:
          visit(after, [&](const Index& at) {
            for (const std::int64_t q : group) value[at] += old[q].at(at);
          });
          break;
        case StepKind::all_gather:
        case StepKind::all_to_all:
          for (const std::int64_t q : group) {
            take(old[q], intersect(after, box(step.before, q)), value);
          }
          break;
        case StepKind::permute:
          own();
      }
    });
    if (step.kind == StepKind::permute) permute(step, old, now);
    check(step, now);
    return now;
  }

  void expect_at(const Layout& layout, const Devices& devices) {
    each_position([&](std::int64_t p) {
      Values sum;
      for (const std::int64_t q : mesh_.group(p, list_of(layout.unreduced))) {
        for (const auto& [at, value] : devices[q]) sum[at] += value;
      }
      Values expected;
      take(dense_, box(layout, p), expected);
      EXPECT_EQ(sum, expected) << "position " << p;
    });
  }

 private:
  double random() { return static_cast<double>(engine_() % 2001) - 1000; }  // sums stay exact
  Box box(const Layout& layout, std::int64_t p) const {
    return shard_box(mesh_, shape_, layout, p);
  }
  void each_position(const std::function<void(std::int64_t)>& f) const {
    for (std::int64_t p = 0; p < mesh_.size(); ++p) f(p);
  }
  static void take(const Values& from, const Box& box, Values& to) {
    visit(box, [&](const Index& at) {
      EXPECT_TRUE(to.emplace(at, from.at(at)).second) << "an element came twice";
    });
  }
  static void zeros(const Box& box, Values& to) {
    visit(box, [&](const Index& at) { to.try_emplace(at, 0); });
  }

  void permute(const Step& step, const Devices& old, Devices& now) {
    std::vector<std::int64_t> received(old.size());
    for (const Transfer& move : transfers(mesh_, shape_, step.before, step.after)) {
      EXPECT_GT(volume(move.box), 0);
      const auto group = mesh_.group(move.destination, step.axes);
      EXPECT_TRUE(std::ranges::count(group, move.source)) << "outside the group";
      take(old[move.source], move.box, now[move.destination]);
      received[move.destination] += volume(move.box);
    }
    EXPECT_EQ(step.bytes, 8 * std::ranges::max(received));
  }

  void check(const Step& step, const Devices& now) {
    each_position([&](std::int64_t p) {
      EXPECT_EQ(static_cast<std::int64_t>(now[p].size()), volume(box(step.after, p)));
    });
    for (int i = 0; i < step.axes.size(); ++i) {
      EXPECT_TRUE(!is_collective(step.kind) || mesh_.axis_size(step.axes[i]) > 1);
    }
    if (step.from_dim >= 0) consecutive(step.before, step.from_dim, step);
    if (step.to_dim >= 0) consecutive(step.after, step.to_dim, step);
  }

  // Backends concatenate and split by rank along one dim.
  void consecutive(const Layout& cut, int dim, const Step& step) {
    for (const auto& group : mesh_.groups(step.axes)) {
      std::int64_t end = box(cut, group.front())[dim].begin;
      for (const std::int64_t p : group) {
        const Interval piece = box(cut, p)[dim];
        EXPECT_TRUE(piece.size() == 0 || piece.begin == end);
        end += piece.size();
      }
    }
  }

  const Mesh& mesh_;
  const Shape& shape_;
  Values dense_;
  std::mt19937 engine_{7};
};

// What some device lacks of its new shard when nothing needs a sum: no plan can move less.
std::int64_t lower_bound(const Mesh& mesh, const Shape& shape, const Layout& from,
                         const Layout& to) {
  std::int64_t most = 0;
  for (std::int64_t p = 0; p < mesh.size(); ++p) {
    const Box wanted = shard_box(mesh, shape, to, p);
    const Box held = shard_box(mesh, shape, from, p);
    most = std::max(most, volume(wanted) - volume(intersect(wanted, held)));
  }
  return most * 8;
}

// Reduce all, then fetch what is missing: a plan that always exists.
std::int64_t upper_bound(const Mesh& mesh, const Shape& shape, const Layout& from,
                         const Layout& to) {
  const std::int64_t n = mesh.shards(from.unreduced - to.unreduced);
  const std::int64_t local = max_shard_numel(mesh, shape, from) * 8;
  Layout wanted = to;
  wanted.unreduced = {};
  return (2 * (n - 1) * local + n - 1) / n + lower_bound(mesh, shape, from, wanted);
}

void carry_out(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to,
               const std::vector<Step>& steps) {
  Executor executor(mesh, shape);
  Devices devices = executor.place(from);
  Layout at = from;
  for (const Step& step : steps) {
    EXPECT_EQ(step.before, at);
    devices = executor.run(step, devices);
    at = step.after;
  }
  EXPECT_EQ(at, to);
  executor.expect_at(to, devices);
}

void try_pair(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to) {
  const Plan plan = plan_redistribution(mesh, shape, 8, from, to);
  SCOPED_TRACE(testing::Message() << mesh << " " << testing::PrintToString(shape) << " "
                                  << to_string(mesh, from) << " to " << to_string(mesh, to) << "\n"
                                  << to_string(mesh, plan));
  carry_out(mesh, shape, from, to, plan.steps);
  EXPECT_EQ(plan.peak_bytes, 8 * std::max(max_shard_numel(mesh, shape, from),
                                          max_shard_numel(mesh, shape, to)));
  EXPECT_LE(plan.bytes, upper_bound(mesh, shape, from, to));
  if (from.unreduced.empty() && to.unreduced.empty()) {
    EXPECT_EQ(plan.bytes, lower_bound(mesh, shape, from, to));
  }
}

// Every pair of layouts, or every `stride`-th.
void try_all(const Mesh& mesh, const std::vector<Shape>& shapes, std::size_t stride = 1) {
  for (const Shape& shape : shapes) {
    const auto layouts = all_layouts(mesh.rank(), static_cast<std::int64_t>(shape.size()));
    for (std::size_t i = 0; i < layouts.size() * layouts.size(); i += stride) {
      try_pair(mesh, shape, layouts[i / layouts.size()], layouts[i % layouts.size()]);
      if (testing::Test::HasFailure()) return;  // one is enough to read
    }
  }
}

const std::vector<Shape> shapes{{},        {6},       {5},       {1},          {0},
                                {4, 6},    {5, 3},    {1, 7},    {0, 3},       {4, 6, 12},
                                {5, 3, 7}, {1, 2, 3}, {3, 0, 2}};

TEST(PlanExhaustive, TwoDevices) { try_all({{"a", 2}}, shapes); }
TEST(PlanExhaustive, ThreeDevices) { try_all({{"a", 3}}, shapes); }
TEST(PlanExhaustive, TwoByTwo) { try_all({{"a", 2}, {"b", 2}}, shapes); }
TEST(PlanExhaustive, TwoByThree) { try_all({{"a", 2}, {"b", 3}}, shapes); }
TEST(PlanExhaustive, OneByTwo) { try_all({{"a", 1}, {"b", 2}}, {{}, {5}, {4, 6}, {5, 3}}); }
TEST(PlanExhaustive, TwoByOneByTwo) { try_all({{"a", 2}, {"b", 1}, {"c", 2}}, {{5}, {3, 2}}); }
TEST(PlanExhaustive, TwoByTwoByTwo) {
  const Mesh mesh{{"a", 2}, {"b", 2}, {"c", 2}};
  try_all(mesh, {{9}, {5, 3}});
  try_all(mesh, {{2, 3, 4}}, 13);  // a sample
}

// The plan that is used when a search would take too long.
TEST(PlanExhaustive, DirectMoves) {
  const Mesh mesh{{"a", 2}, {"b", 3}};
  const Shape shape{5, 7};
  for (const Layout& from : all_layouts(2, 2)) {
    for (const Layout& to : all_layouts(2, 2)) {
      const AxisSet both = from.unreduced & to.unreduced;
      const Route route{mesh, shape, 8, to, (AxisSet::of(0) | AxisSet::of(1)) - both};
      const std::vector<Step> steps = direct_moves(route, from);
      carry_out(mesh, shape, from, to, steps);
      for (const Step& step : steps) {
        EXPECT_LE(max_shard_numel(mesh, shape, step.after),
                  std::max(max_shard_numel(mesh, shape, from), max_shard_numel(mesh, shape, to)));
      }
    }
  }
}

}  // namespace
}  // namespace meshtorch
