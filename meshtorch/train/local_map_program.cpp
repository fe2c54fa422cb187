// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/local_map_program.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <optional>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/local_map_graph.h>
#include <meshtorch/train/rank_agreement.h>
#include <meshtorch/train/rank_arguments.h>
#include <meshtorch/train/rank_replicas.h>
#include <meshtorch/train/rank_run.h>
#include <meshtorch/train/rank_snapshot.h>
#include <meshtorch/train/rank_streams.h>
#include <meshtorch/train/rank_values.h>
#include <meshtorch/train/rank_written.h>
#include <meshtorch/train/recording.h>

namespace meshtorch {
namespace {

// What one rank gave.
struct Given {
  std::vector<std::string> paths;
  std::vector<PartitionSpec> specs;
  std::vector<RankPart> parts;
  std::vector<bool> computed;  // by result: has a gradient
  std::vector<bool> written;   // by leaf
  RankGraph graph;
};

// Next number of the runtime's counter, and from it one seed a rank.
std::vector<std::uint64_t> draw_seeds(const RankGrid& grid, RankRandom random, bool backward,
                                      std::uint64_t draw) {
  const std::uint64_t seed = Runtime::current().random().seed;
  std::vector<std::uint64_t> seeds;
  for (const RankPlace& place : grid.ranks) {
    const auto number = static_cast<std::uint64_t>(place.number);
    seeds.push_back(
        stream_seed(seed, 2 * draw + backward, random == RankRandom::same ? 0 : number));
  }
  return seeds;
}

std::uint64_t next_draw() {
  Runtime& runtime = Runtime::current();
  if (runtime.processes() > 1)
    runtime.communicator().record("a random draw", runtime.random().draws);
  return runtime.random().draws++;
}

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

// One call.
class Call {
 public:
  Call(std::shared_ptr<const RankGrid> grid, const RankProgramOptions& options,
       const std::vector<RankLeaf>& arguments, RankCode& code)
      : grid_(std::move(grid)),
        options_(options),
        arguments_(arguments),
        code_(code),
        firsts_(firsts_of(arguments)),
        laid_(lay_out_all(*grid_, arguments)),
        before_(arguments_, laid_),
        given_(grid_->ranks.size()) {}

  std::vector<at::Tensor> run() {
    const std::uint64_t draw = next_draw();
    try {
      run_ranks(draw_seeds(*grid_, options_.random, false, draw));
      std::vector<at::Tensor> results = put_together();
      const std::vector<std::size_t> written = written_leaves(grid(), arguments_, laid_, written_);
      if (c10::GradMode::is_enabled()) record(results, draw);
      settle_written(grid(), arguments_, laid_, written_, written);
      bindings_->settle();
      return results;
    } catch (...) {
      before_.restore();
      throw;
    }
  }

 private:
  const RankGrid& grid() const { return *grid_; }

  void run_ranks(const std::vector<std::uint64_t>& seeds) {
    values_ = all_values();
    bindings_ = bindings();
    meshtorch::run_ranks("local_map", grid(), seeds, *bindings_,
                         [&](std::size_t rank, RankTurns& turns) {
                           at::Tensor anchor = at::zeros({});
                           if (c10::GradMode::is_enabled()) anchor.requires_grad_();
                           const Rank self(grid(), rank, turns, anchor);
                           given_[rank] = run_rank(rank, anchor);
                         });
  }

  Given run_rank(std::size_t rank, const at::Tensor& anchor) {
    const std::vector<at::Tensor> leaves = bind(rank);
    std::vector<std::int64_t> versions;
    for (const at::Tensor& leaf : leaves) versions.push_back(version_of(leaf));
    const Recording recording;
    std::vector<RankLeaf> results = run_code(rank);
    Given given = take(rank, results);
    for (std::size_t i = 0; i < leaves.size(); ++i)
      given.written.push_back(version_of(leaves[i]) != versions[i]);
    std::vector<at::Tensor> tensors;
    for (RankLeaf& result : results) tensors.push_back(std::move(result.tensor));
    if (c10::GradMode::is_enabled())
      given.graph = take_graph(recording, grid().ranks[rank], leaves, anchor, tensors);
    return given;
  }

  std::vector<RankLeaf> run_code(std::size_t rank) {
    const stranger_watch watch(grid().ranks[rank]);
    return code_.run(rank);
  }

  // By rank and leaf.
  std::vector<std::vector<at::Tensor>> all_values() const {
    std::vector<std::vector<at::Tensor>> all(given_.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      for (std::size_t i = 0; i < laid_.size(); ++i) {
        const std::size_t first = firsts_[i];
        all[rank].push_back(first < i ? all[rank][first] : value_of(i, rank));
      }
    }
    return all;
  }

  // Of the modules' tensors.
  std::shared_ptr<RankBindings> bindings() const {
    std::vector<at::Tensor> handles;
    std::vector<std::vector<at::Tensor>> values(values_.size());
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!arguments_[i].of_module || firsts_[i] < i) continue;
      handles.push_back(arguments_[i].tensor);
      for (std::size_t rank = 0; rank < values.size(); ++rank)
        values[rank].push_back(values_[rank][i]);
    }
    return std::make_shared<RankBindings>(std::move(handles), std::move(values));
  }

  // What the rank sees for the leaves.
  std::vector<at::Tensor> bind(std::size_t rank) {
    c10::NoGradGuard no_grad;
    std::vector<at::Tensor> leaves;
    for (std::size_t i = 0; i < laid_.size(); ++i) {
      leaves.push_back(arguments_[i].of_module ? arguments_[i].tensor : values_[rank][i]);
      leaves.back().requires_grad_(laid_[i].needs_gradient);
    }
    code_.bind(rank, values_[rank]);
    values_[rank].clear();
    return leaves;
  }

  at::Tensor value_of(std::size_t i, std::size_t rank) const {
    const LaidOut& laid = laid_[i];
    const at::Tensor value = rank_tensor(grid(), rank, laid.shape, laid.layout, laid.locals);
    if (is_sharded(value)) sharded_view(value)->allocation()->constraint = laid.constraint;
    return arguments_[i].row ? value.select(0, 0) : value;
  }

  Given take(std::size_t rank, const std::vector<RankLeaf>& results) {
    Given given;
    for (const RankLeaf& result : results) {
      given.specs.push_back(result.spec);
      given.paths.push_back(result.path);
      given.computed.push_back(c10::GradMode::is_enabled() && result.tensor.requires_grad());
      // Known: the result itself, and its leaf.
      given.parts.push_back(take_part(grid(), rank, result.tensor, result.path, 2));
    }
    return given;
  }

  std::vector<at::Tensor> put_together() {
    std::vector<std::vector<RankPart>> parts;
    for (Given& given : given_) parts.push_back(std::move(given.parts));
    const RankReport report = report_everywhere(grid(), parts);
    agree();
    std::vector<at::Tensor> results;
    const Given& first = given_.front();
    for (std::size_t i = 0; i < first.paths.size(); ++i) {
      std::vector<RankPart> mine;
      for (auto& part : parts) mine.push_back(std::move(part[i]));
      std::vector<Shape> theirs;
      for (const auto& rank : report.shapes) theirs.push_back(rank[i]);
      const Layout manual = manual_layout(
          grid(), first.specs[i], static_cast<std::int64_t>(theirs[0].size()), first.paths[i]);
      const Shape shape = whole_shape(grid(), theirs, manual, first.paths[i]);
      results.push_back(assemble(
          grid(), std::move(mine),
          {.shape = shape, .manual = manual, .automatic = report.layouts[i], .zeros = {}}));
      sides_.push_back({.shape = shape, .manual = manual});
      if (options_.check_equal)
        check_equal(grid(), sharded_view(results.back())->locals(), manual, first.paths[i]);
    }
    return results;
  }

  // What any rank did, of any process.
  void agree() {
    const std::size_t leaves = laid_.size(), results = given_.front().computed.size();
    std::vector<bool> flags(2 * leaves + results);
    for (std::size_t i = 0; i < leaves; ++i) flags[leaves + i] = before_.changed(i);
    for (const Given& given : given_) {
      for (std::size_t i = 0; i < leaves; ++i) flags[i] = flags[i] || given.written[i];
      for (std::size_t i = 0; i < results; ++i)
        flags[2 * leaves + i] = flags[2 * leaves + i] || given.computed[i];
    }
    flags = on_any_rank(grid(), flags);
    const auto at = [&](std::size_t i) { return flags.begin() + static_cast<std::ptrdiff_t>(i); };
    written_.counted.assign(at(0), at(leaves));
    written_.changed.assign(at(leaves), at(2 * leaves));
    computed_.assign(at(2 * leaves), flags.end());
  }

  void record(const std::vector<at::Tensor>& results, std::uint64_t draw) {
    RankHistory history{.grid = grid_, .graphs = {}, .bindings = bindings_};
    std::vector<at::Tensor> differentiable, inputs;
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!computed_[i]) continue;
      kept.push_back(i);
      differentiable.push_back(results[i]);
      history.results.push_back(sides_[i]);
    }
    for (std::size_t i = 0; i < laid_.size(); ++i) {
      inputs.push_back(laid_[i].tensor);
      history.inputs.push_back({.shape = laid_[i].shape,
                                .manual = laid_[i].manual,
                                .options = laid_[i].locals.front().options()});
      if (!written_.any(i) && !arguments_[i].buffer) history.read.push_back(laid_[i].tensor);
    }
    for (Given& given : given_) {
      RankGraph graph = std::move(given.graph);
      torch::autograd::edge_list edges;
      for (const std::size_t i : kept) edges.push_back(graph.results[i]);
      graph.results = std::move(edges);
      history.graphs.push_back(std::move(graph));
    }
    if (kept.empty()) return;
    history.seeds = draw_seeds(grid(), options_.random, true, draw);
    set_history(differentiable, inputs, std::move(history));
  }

  const std::shared_ptr<const RankGrid> grid_;
  const RankProgramOptions& options_;
  const std::vector<RankLeaf>& arguments_;
  RankCode& code_;
  const std::vector<std::size_t> firsts_;
  const std::vector<LaidOut> laid_;
  const BufferSnapshot before_;
  std::vector<std::vector<at::Tensor>> values_;  // by rank and leaf
  std::shared_ptr<RankBindings> bindings_;
  std::vector<Given> given_;
  RankWritten written_;
  std::vector<bool> computed_;   // by result: has a gradient
  std::vector<RankSide> sides_;  // by result
};

}  // namespace

RankProgram::RankProgram(const Mesh& mesh, RankProgramOptions options)
    : grid_(std::make_shared<const RankGrid>(mesh, options.manual_axes)),
      options_(std::move(options)) {}

std::size_t RankProgram::ranks() const { return grid_->ranks.size(); }

std::vector<at::Tensor> RankProgram::run(const std::vector<RankLeaf>& arguments,
                                         RankCode& code) const {
  return Call(grid_, options_, arguments, code).run();
}

}  // namespace meshtorch
