// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/local_map_graph.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/rank_agreement.h>
#include <meshtorch/train/rank_run.h>
#include <meshtorch/train/rank_values.h>
#include <meshtorch/train/recording.h>

namespace meshtorch {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge;
using autograd::edge_list;
using autograd::variable_list;

[[noreturn]] void fail_closed_over(const std::string& where, const std::string& what) {
  fail({.op = "local_map",
        .where = where,
        .what = "fn closes over " + what + " that requires a gradient, which it would not get",
        .remedy = "pass it as an argument, or close over its detach()"});
}

// The gradient of a gradient.
class NoSecond : public autograd::Node {
 public:
  explicit NoSecond(edge_list&& edges) : Node(std::move(edges)) {}
  variable_list apply(variable_list&&) override {
    fail({.op = "local_map",
          .where = "backward",
          .what = "gradients of local_map have no gradients themselves (double backward)",
          .remedy = "take the inner gradient inside of fn, with torch::autograd::grad"});
  }
  std::string name() const override { return "LocalMapSecond"; }
};

class LocalMapNode : public autograd::Node {
 public:
  LocalMapNode(edge_list&& edges, RankHistory history)
      : Node(std::move(edges)), history_(std::move(history)) {
    for (const at::Tensor& tensor : std::exchange(history_.read, {}))
      saved_.emplace_back(tensor, /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    check_inputs();
    std::vector<variable_list> seeds = seeds_for(gradients);
    edge_list second;
    if (c10::GradMode::is_enabled()) second = autograd::collect_next_edges(gradients);
    gradients.clear();
    std::vector<variable_list> found(history_.graphs.size());
    {
      c10::NoGradGuard no_grad;
      run_ranks(seeds, found);
      seeds.clear();
    }
    finish();
    variable_list result = collect(found);
    if (c10::GradMode::is_enabled()) forbid_second(result, std::move(second));
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    free_graphs();
  }

  std::string name() const override { return "LocalMap"; }

 private:
  const RankGrid& grid() const { return *history_.grid; }

  // Throws libtorch's error where one was written since: the ranks' graphs have its memory.
  void check_inputs() const {
    if (history_.graphs.empty()) {
      fail({.op = "local_map",
            .where = "backward",
            .what = "the graph was run before and is freed",
            .remedy = "give the first backward() retain_graph = true"});
    }
    for (const auto& input : saved_) input.unpack();
  }

  // By rank and result.
  std::vector<variable_list> seeds_for(const variable_list& gradients) const {
    c10::NoGradGuard no_grad;
    std::vector<variable_list> seeds(grid().ranks.size(), variable_list(gradients.size()));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined())
        split(gradients[i].detach(), history_.results[i].manual, i, seeds);
    }
    return seeds;
  }

  // A gradient as each rank gets it. Where every rank returned the value, one has the gradient: the
  // first, or all, where each has a summand of it.
  void split(const at::Tensor& gradient, const Layout& result, std::size_t i,
             std::vector<variable_list>& seeds) const {
    const AxisSet shared = grid().manual - result.sharded() - result.unreduced;
    Layout manual{result.dims, {}};
    if (const ShardedView* view = sharded_view(gradient))
      manual.unreduced = view->unreduced() & shared;
    const at::Tensor laid = lay_out(grid(), gradient, manual, "gradient");
    const ShardedView& view = *sharded_view(laid);
    const Shards locals = view.locals();
    for (std::size_t rank = 0; rank < seeds.size(); ++rank) {
      at::Tensor part = rank_tensor(grid(), rank, shape_of(laid), view.layout(), locals);
      bool first = true;
      for (const int axis : shared - manual.unreduced)
        first = first && grid().mesh.coordinate(grid().ranks[rank].position, axis) == 0;
      seeds[rank][i] = first ? part : at::zeros_like(part);
    }
  }

  void run_ranks(const std::vector<variable_list>& seeds, std::vector<variable_list>& found) {
    const bool keep = autograd::get_current_graph_task_keep_graph();
    const std::vector<std::size_t> asked = asked_inputs();
    meshtorch::run_ranks("local_map.backward", grid(), history_.seeds, *history_.bindings,
                         [&](std::size_t rank, RankTurns& turns) {
                           const RankGraph& graph = history_.graphs[rank];
                           const Rank self(grid(), rank, turns, graph.anchor);
                           found[rank] = run_rank(graph, seeds[rank], asked, keep);
                         });
  }

  std::vector<std::size_t> asked_inputs() const {
    std::vector<std::size_t> asked;
    for (std::size_t i = 0; i < history_.inputs.size(); ++i) {
      if (task_should_compute_output(i)) asked.push_back(i);
    }
    return asked;
  }

  // By the node's inputs; undefined where there is none.
  static variable_list run_rank(const RankGraph& graph, const variable_list& seeds,
                                const std::vector<std::size_t>& asked, bool keep) {
    edge_list roots, ends{autograd::impl::gradient_edge(graph.anchor)};
    variable_list given;
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      if (!seeds[i].defined() || !graph.results[i].is_valid()) continue;
      roots.push_back(graph.results[i]);
      given.push_back(seeds[i]);
    }
    std::vector<std::size_t> inputs;
    for (const std::size_t i : asked) {
      if (!graph.leaves[i].is_valid()) continue;
      ends.push_back(graph.leaves[i]);
      inputs.push_back(i);
    }
    variable_list result(graph.leaves.size());
    if (roots.empty()) return result;
    variable_list found = autograd::Engine::get_default_engine().execute(
        roots, given, keep, /*create_graph=*/false, /*accumulate_grad=*/false, ends);
    for (std::size_t k = 0; k < inputs.size(); ++k) result[inputs[k]] = std::move(found[k + 1]);
    return result;
  }

  void free_graphs() {
    history_.graphs.clear();
    history_.bindings.reset();
    saved_.clear();
  }

  // A stranger that is alive once the graphs are gone is not fn's own.
  void finish() {
    if (autograd::get_current_graph_task_keep_graph()) return;
    std::vector<at::Tensor> strangers;
    for (RankGraph& graph : history_.graphs)
      strangers.insert(strangers.end(), graph.strangers.begin(), graph.strangers.end());
    free_graphs();
    for (at::Tensor& stranger : strangers) {
      if (stranger.use_count() > 1)
        fail_closed_over("backward", text("a tensor of sizes ", stranger.sizes()));
    }
  }

  // What one rank alone has, of another process perhaps, is zero on the others.
  variable_list collect(std::vector<variable_list>& found) const {
    c10::NoGradGuard no_grad;
    std::vector<std::vector<RankPart>> parts(found.size());  // by rank and input
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      parts[rank].resize(history_.inputs.size());
      for (std::size_t i = 0; i < parts[rank].size(); ++i) {
        const at::Tensor gradient = std::move(found[rank][i]);
        if (gradient.defined())
          parts[rank][i] = take_part(grid(), rank, gradient, "gradient", 1);
      }
    }
    const auto layouts = layouts_everywhere(grid(), parts);
    variable_list result(history_.inputs.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (!layouts[i]) continue;
      std::vector<RankPart> mine;
      for (auto& of_rank : parts) mine.push_back(std::move(of_rank[i]));
      result[i] = join(std::move(mine), history_.inputs[i], *layouts[i]);
    }
    return result;
  }

  // The gradient of what all ranks had is the sum of theirs; of a summand, each rank's.
  at::Tensor join(std::vector<RankPart> parts, const RankSide& input,
                  const Layout& automatic) const {
    Layout manual{input.manual.dims, {}};
    for (const int axis : grid().manual - input.manual.sharded() - input.manual.unreduced) {
      if (grid().mesh.axis_size(axis) > 1) manual.unreduced.insert(axis);
    }
    return assemble(grid(), std::move(parts),
                    {.shape = input.shape,
                     .manual = std::move(manual),
                     .automatic = automatic,
                     .zeros = input.options});
  }

  static void forbid_second(variable_list& gradients, edge_list&& edges) {
    const auto node = c10::make_intrusive<NoSecond>(std::move(edges));
    for (at::Tensor& gradient : gradients) {
      if (gradient.defined()) autograd::set_history(gradient, node);
    }
  }

  RankHistory history_;
  std::vector<autograd::SavedVariable> saved_;
};

}  // namespace

RankGraph take_graph(const Recording& recording, const RankPlace& place,
                     const std::vector<at::Tensor>& leaves, const at::Tensor& anchor,
                     const std::vector<at::Tensor>& results) {
  RankGraph graph{.anchor = anchor};
  std::set<const autograd::Node*> ours{autograd::impl::gradient_edge(anchor).function.get()};
  for (const at::Tensor& leaf : leaves) {
    Edge edge;
    if (leaf.requires_grad()) edge = autograd::impl::gradient_edge(leaf);
    // A leaf that is there twice gets its gradient once.
    if (edge.is_valid() && !ours.insert(edge.function.get()).second) edge = {};
    graph.leaves.push_back(edge);
  }
  const auto see = [&](const Edge& edge) {
    if (recording.has(edge) || !ours.insert(edge.function.get()).second) return;
    const at::Tensor* leaf = leaf_of(edge);
    if (leaf == nullptr) fail_closed_over("rank (" + place.name + ")", "a tensor");
    graph.strangers.push_back(*leaf);
  };
  std::vector<at::Tensor> computed;
  for (const at::Tensor& result : results) {
    graph.results.push_back(result.requires_grad() ? autograd::impl::gradient_edge(result)
                                                   : Edge());
    if (!result.requires_grad()) continue;
    see(graph.results.back());
    if (result.grad_fn() != nullptr) computed.push_back(result);
  }
  for (const Edge& edge : distinct(recording.leaving(computed))) see(edge);
  return graph;
}

void set_history(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs,
                 RankHistory history) {
  std::set<const void*> seen;
  for (const RankGraph& graph : history.graphs) {
    std::set<const void*> mine;
    for (const at::Tensor& stranger : graph.strangers) {
      if (!mine.insert(stranger.unsafeGetTensorImpl()).second) continue;
      if (!seen.insert(stranger.unsafeGetTensorImpl()).second)
        fail_closed_over("fn", text("a tensor of sizes ", stranger.sizes()));
    }
  }
  const auto node =
      c10::make_intrusive<LocalMapNode>(autograd::collect_next_edges(inputs), std::move(history));
  for (const at::Tensor& result : results) autograd::set_history(result, node);
}

}  // namespace meshtorch
