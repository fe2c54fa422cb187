// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_collectives.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/node.h>

#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/train/rank.h>

namespace meshtorch {
namespace {

namespace autograd = torch::autograd;
using autograd::variable_list;

// A collective as a value, apart from what it is applied to.
struct Exchange {
  Collective kind = Collective::all_reduce;
  Reduction reduction = Reduction::sum;
  AxisList axes;
  std::int64_t dim = 0, concat_dim = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  std::string op;

  std::string to_string(const Mesh& mesh) const;
  Exchange transposed() const;
  // Dims of x that are gathered or cut.
  std::vector<std::int64_t> whole_dims() const;
};

std::string Exchange::to_string(const Mesh& mesh) const {
  std::string what = text(op, " over ", axis_names(mesh, axes));
  if (kind == Collective::all_gather || kind == Collective::reduce_scatter)
    what += text(" along dim ", dim);
  if (kind == Collective::all_to_all) what += text(" from dim ", dim, " to dim ", concat_dim);
  if (kind == Collective::permute) {
    std::vector<std::string> arrows;
    for (const auto& [source, destination] : pairs)
      arrows.push_back(text(source, "->", destination));
    what += " by " + join(arrows, " ");
  }
  return what;
}

Exchange Exchange::transposed() const {
  Exchange result = *this;
  result.reduction = Reduction::sum;
  if (!op.ends_with(".backward")) result.op += ".backward";
  switch (kind) {
    case Collective::all_gather:
      result.kind = Collective::reduce_scatter;
      break;
    case Collective::reduce_scatter:
      result.kind = Collective::all_gather;
      break;
    case Collective::all_to_all:
      std::swap(result.dim, result.concat_dim);
      break;
    default:
      for (auto& [source, destination] : result.pairs) std::swap(source, destination);
  }
  return result;
}

std::vector<std::int64_t> Exchange::whole_dims() const {
  if (kind == Collective::all_gather || kind == Collective::reduce_scatter) return {dim};
  if (kind == Collective::all_to_all) return {dim, concat_dim};
  return {};
}

at::Tensor exchange(const Exchange& what, const at::Tensor& x);

// Zeros as a result lies: what its gradient is where nothing asks for one.
class ZerosOf {
 public:
  explicit ZerosOf(const at::Tensor& result)
      : shape_(shape_of(result)), options_(result.options()) {
    const ShardedView* view = sharded_view(result);
    if (view == nullptr) return;
    mesh_ = view->mesh();
    layout_ = {view->dims(), {}};
    options_ = view->models().front().options();
  }

  at::Tensor make() const {
    if (!mesh_.defined()) return at::zeros(shape_, options_);
    Shards locals;
    for (const std::int64_t position : Runtime::current().communicator().addressable(mesh_))
      locals.push_back(at::zeros(shard_shape(mesh_, shape_, layout_, position), options_));
    return wrap(mesh_, shape_, layout_, std::move(locals));
  }

 private:
  Shape shape_;
  at::TensorOptions options_;
  Mesh mesh_;  // not defined: plain
  Layout layout_;
};

// The backward of a linear collective is its transpose. Of an extreme: the sum, to where x is it.
class ExchangeNode : public autograd::Node {
 public:
  ExchangeNode(autograd::edge_list&& edges, Exchange what, const at::Tensor& result,
               at::Tensor holds)
      : Node(std::move(edges)),
        what_(std::move(what)),
        zeros_(result),
        extreme_(holds.defined()),
        holds_(std::move(holds)) {}

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    const at::Tensor given = gradient.defined() ? gradient : zeros_.make();
    if (!extreme_) return {exchange(what_, given)};
    if (!holds_.defined()) fail_freed();
    const at::Tensor held = holds_.to(given.scalar_type());
    return {exchange(what_, given) * held / exchange(what_, held)};
  }

  void release_variables() override { holds_.reset(); }
  std::string name() const override { return what_.op; }

 private:
  [[noreturn]] void fail_freed() const {
    fail({.op = what_.op,
          .where = "",
          .what = "the graph was run before and is freed",
          .remedy = "give the first backward() retain_graph = true"});
  }

  const Exchange what_;
  const ZerosOf zeros_;
  const bool extreme_;
  at::Tensor holds_;
};

void record(const at::Tensor& result, const at::Tensor& x, const Exchange& what, const Rank& rank,
            at::Tensor holds) {
  autograd::edge_list edges = autograd::collect_next_edges(x);
  if (!edges[0].is_valid()) edges[0] = autograd::impl::gradient_edge(rank.anchor);
  autograd::set_history(result, c10::make_intrusive<ExchangeNode>(
                                    std::move(edges), what.transposed(), result, std::move(holds)));
}

// The layout of x on the rank's own mesh, with these dims whole and, of what is not linear, reduced.
at::Tensor settle(const at::Tensor& x, const Exchange& what) {
  const ShardedView* view = sharded_view(x);
  if (view == nullptr) return x;
  Layout layout = view->layout();
  for (const std::int64_t dim : what.whole_dims()) layout.dims[static_cast<std::size_t>(dim)] = {};
  if (what.reduction != Reduction::sum) layout.unreduced = {};
  return layout == view->layout() ? x : reshard(x, spec_of(view->mesh(), layout));
}

void check_own(const std::string& op, const at::Tensor& x, const RankPlace& place) {
  const ShardedView* view = sharded_view(x);
  if (view == nullptr || (place.mesh.defined() && view->mesh() == place.mesh)) return;
  fail({.op = op,
        .where = "rank (" + place.name + ")",
        .what = "x is " + describe(x) + ", a tensor from outside of local_map",
        .remedy = "pass it to local_map as an argument"});
}

std::string in_words(const Exchange& what, const at::Tensor& x, const Mesh& mesh) {
  std::string words = text(what.to_string(mesh), " of ", x.scalar_type(), x.sizes());
  if (const ShardedView* view = sharded_view(x))
    words += " as " + to_string(view->mesh(), view->layout());
  return words;
}

Shards locals_of(const at::Tensor& x, const RankPlace& place) {
  if (const ShardedView* view = sharded_view(x)) return view->locals();
  return Shards(place.devices.size(), x.detach());
}

// What a dim of the result is, where the collective changes it.
Shape result_shape(const Exchange& what, const at::Tensor& x, std::int64_t n) {
  Shape shape = x.sizes().vec();
  const auto at = [&](std::int64_t dim) -> std::int64_t& {
    return shape[static_cast<std::size_t>(dim)];
  };
  if (what.kind == Collective::all_gather) at(what.dim) *= n;
  if (what.kind == Collective::reduce_scatter || what.kind == Collective::all_to_all)
    at(what.dim) /= n;
  if (what.kind == Collective::all_to_all) at(what.concat_dim) *= n;
  return shape;
}

at::Tensor rebuild(Shards& results, const at::Tensor& x, const Shape& shape) {
  // Meta shards of several ranks may be one tensor.
  if (const ShardedView* view = sharded_view(x))
    return wrap(view->mesh(), shape, view->layout(), std::move(results));
  return results.front().detach();
}

// Where gradients of an extreme go.
at::Tensor holders(const Exchange& what, const at::Tensor& x, const at::Tensor& result) {
  if (what.reduction == Reduction::sum) return {};
  return x.detach().eq(result);
}

at::Tensor exchange(const Exchange& what, const at::Tensor& given) {
  Rank& rank = Rank::current(what.op);
  check_own(what.op, given, rank.place());
  const at::Tensor x = settle(given, what);
  RankMeeting meeting;
  meeting.what = in_words(what, x, rank.grid.mesh);
  meeting.kind = what.kind;
  meeting.reduction = what.reduction;
  meeting.axes = what.axes;
  meeting.dim = what.dim;
  meeting.concat_dim = what.concat_dim;
  meeting.pairs = what.pairs;
  meeting.op = what.op;
  meeting.scope = named_scope::path();
  meeting.shards = locals_of(x, rank.place());
  meeting.recorded = c10::GradMode::is_enabled() && x.requires_grad();
  rank.turns.meet(rank.index, meeting);
  at::Tensor result =
      rebuild(meeting.shards, x, result_shape(what, x, rank.grid.mesh.shards(what.axes)));
  if (meeting.recorded && c10::GradMode::is_enabled()) {
    c10::NoGradGuard no_grad;
    at::Tensor holds = holders(what, x, result);
    record(result, x, what, rank, std::move(holds));
  }
  return result;
}

// The axes of size one take no part.
Exchange over(const std::string& op, const RankAxes& axis, Collective kind) {
  const Rank& rank = Rank::current(op);
  Exchange what{.kind = kind, .op = op};
  const AxisList axes = rank.manual_axes(op, axis.names());
  for (int i = 0; i < axes.size(); ++i) {
    if (rank.grid.mesh.axis_size(axes[i]) > 1) what.axes.push_back(axes[i]);
  }
  return what;
}

std::int64_t size_of(const Exchange& what) {
  return Rank::current(what.op).grid.mesh.shards(what.axes);
}

std::int64_t checked_dim(const std::string& op, std::int64_t dim, std::int64_t rank) {
  if (dim >= -rank && dim < rank) return dim < 0 ? dim + rank : dim;
  fail({.op = op,
        .where = text("dim ", dim),
        .what = text("is none of a tensor of ", rank, " dims"),
        .remedy = "name a dim that x has"});
}

void check_divides(const Exchange& what, const at::Tensor& x) {
  const std::int64_t n = size_of(what), size = x.size(what.dim);
  if (size % n == 0) return;
  fail({.op = what.op,
        .where = text("dim ", what.dim),
        .what = text("of size ", size, " does not divide over ", n, " ranks"),
        .remedy = "pad it"});
}

at::Tensor reduce(const std::string& op, const at::Tensor& x, const RankAxes& axis,
                  Reduction reduction) {
  Exchange what = over(op, axis, Collective::all_reduce);
  what.reduction = reduction;
  return what.axes.empty() ? x : exchange(what, x);
}

void check_pairs(const Exchange& what) {
  const std::int64_t n = size_of(what);
  std::set<std::int64_t> sources, destinations;
  for (const auto& [source, destination] : what.pairs) {
    const bool there = std::min(source, destination) >= 0 && std::max(source, destination) < n;
    if (there && sources.insert(source).second && destinations.insert(destination).second) continue;
    fail({.op = what.op,
          .where = text("pair (", source, ", ", destination, ")"),
          .what = there ? std::string("has a place that is a source or a destination already")
                        : text("has a place that is not one of ", n),
          .remedy = "let each place be at most once a source and once a destination"});
  }
}

}  // namespace

at::Tensor psum(const at::Tensor& x, const RankAxes& axis) {
  return reduce("psum", x, axis, Reduction::sum);
}

at::Tensor pmean(const at::Tensor& x, const RankAxes& axis) {
  return reduce("pmean", x, axis, Reduction::sum) / size_of(over("pmean", axis, {}));
}

at::Tensor pmax(const at::Tensor& x, const RankAxes& axis) {
  return reduce("pmax", x, axis, Reduction::max);
}

at::Tensor pmin(const at::Tensor& x, const RankAxes& axis) {
  return reduce("pmin", x, axis, Reduction::min);
}

at::Tensor all_gather(const at::Tensor& x, const RankAxes& axis, std::int64_t dim, bool tiled) {
  Exchange what = over("all_gather", axis, Collective::all_gather);
  what.dim = checked_dim("all_gather", dim, x.dim() + (tiled ? 0 : 1));
  const at::Tensor given = tiled ? x : x.unsqueeze(what.dim);
  return what.axes.empty() ? given : exchange(what, given);
}

at::Tensor psum_scatter(const at::Tensor& x, const RankAxes& axis, std::int64_t dim, bool tiled) {
  Exchange what = over("psum_scatter", axis, Collective::reduce_scatter);
  what.dim = checked_dim("psum_scatter", dim, x.dim());
  check_divides(what, x);
  if (!tiled && x.size(what.dim) != size_of(what)) {
    fail({.op = "psum_scatter",
          .where = text("dim ", what.dim),
          .what = text("is ", x.size(what.dim), ", there are ", size_of(what), " ranks"),
          .remedy = "give each rank one element, or leave tiled true"});
  }
  const at::Tensor result = what.axes.empty() ? x : exchange(what, x);
  return tiled ? result : result.squeeze(what.dim);
}

at::Tensor all_to_all(const at::Tensor& x, const RankAxes& axis, std::int64_t split_dim,
                      std::int64_t concat_dim) {
  Exchange what = over("all_to_all", axis, Collective::all_to_all);
  what.dim = checked_dim("all_to_all", split_dim, x.dim());
  what.concat_dim = checked_dim("all_to_all", concat_dim, x.dim());
  check_divides(what, x);
  return what.axes.empty() ? x : exchange(what, x);
}

at::Tensor ppermute(const at::Tensor& x, const RankAxes& axis,
                    const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
  Exchange what = over("ppermute", axis, Collective::permute);
  what.pairs = pairs;
  check_pairs(what);
  if (!what.axes.empty()) return exchange(what, x);
  return pairs.empty() ? at::zeros_like(x) : x;
}

std::int64_t axis_index(const RankAxes& axis) {
  const Rank& rank = Rank::current("axis_index");
  return rank.grid.mesh.group_rank(rank.place().position,
                                   rank.manual_axes("axis_index", axis.names()));
}

std::int64_t axis_size(const RankAxes& axis) {
  const Rank& rank = Rank::current("axis_size");
  return rank.grid.mesh.shards(rank.manual_axes("axis_size", axis.names()));
}

}  // namespace meshtorch
