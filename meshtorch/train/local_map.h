// SPDX-License-Identifier: Apache-2.0
//
// Per-rank code: local_map runs a function once for each coordinate of some axes of a mesh, the manual
// ones, on what the devices there hold. The other axes stay automatic. (JAX: shard_map.)
//
//   auto loss = mt::local_map(
//       [](const at::Tensor& x, const at::Tensor& w) {   // x: this rank's rows; w: all of it
//         return mt::psum(x.matmul(w).pow(2).sum(), "dp");
//       },
//       mesh, {P("dp"), P()}, P(), {.manual_axes = {"dp"}});
//   loss(x, w).backward();                               // w.grad() is unreduced over dp
//
// In fn tensors are plain where a rank has one device, so that code which knows only plain tensors runs
// as it is, and else sharded over the automatic axes of the rank's own mesh, in the argument's layout.
// What a rank needs of others it asks for: rank_collectives.h.
//
// Arguments and results are trees of tensors (tree.h). A spec names manual axes only:
//
//   argument  P("dp")               each rank has its part; P(): all of it; P().unreduced("dp"): its summand
//   result    P("dp")               the ranks' results are parts of one tensor: equal, or ceil chunks
//             P()                   every rank returns the same; a gradient goes to the rank at coordinate 0
//             P().unreduced("dp")   each returns a summand
//
// Plain arguments are placed by their spec (device_put), sharded ones resharded; one that lies so already
// is used where it is. Modules are arguments as others: fn gets the same module, whose
// parameters and buffers are the rank's tensors while the rank has its turn. Nothing is copied; but what a
// forward leaves in other members, ranks leave to each other.
//
// Gradients: fn may use autograd inside, and local_map as a whole is differentiable, once. Backward runs
// the ranks again, each through its own graph, meeting at the transposes of their collectives. The gradient
// of an argument that all ranks have comes out unreduced over the axes: nobody reduces it here.
//
// Ranks are threads of which one runs at a time, in order, up to the next collective: a program does the
// same on every run. What they do on their own is as private as a function's: fn may call anything. Each rank
// draws random numbers from streams of its own (RankRandom), whose numbers depend on the Runtime's seed,
// the call and the rank, not on the number of processes; the program's generators are afterwards as before.
//
// Of several processes each runs the ranks of its own devices; a rank's devices must be of one process. Values and
// gradients are those of one process, whatever single ranks do.
//
// Throws Error (ranks are named by their coordinates): specs that name other axes, or do not fit; ranks that ask
// for different collectives, or where one returns while another waits; results that do not fit together;
// an argument that fn wrote in place; fn closing over a tensor that requires a gradient, or over a sharded
// one that it uses: pass it as an argument. (A leaf that one rank alone uses is found out in backward.)
// What fn throws on one rank ends all ranks of its process and is thrown here; modules' batch statistics and
// small buffers are as before. Another process, which waits in a collective, throws once this one's exception
// leaves the program, once it asks for something else, or after the communicator's timeout.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/mesh/partition_spec.h>
#include <meshtorch/tensor/tree.h>
#include <meshtorch/train/local_map_program.h>
#include <meshtorch/train/rank_collectives.h>

namespace meshtorch {

// The specs of one argument, or of the result: one for all its leaves, one for each, or by a function
// of path and tensor.
class RankSpecs {
 public:
  // What is to be done with each leaf: pmap says more of it than a spec.
  using Rule = std::function<void(std::vector<RankLeaf>& leaves, const TreeSlots& tree)>;

  RankSpecs(PartitionSpec all);  // NOLINT: reads as a spec
  RankSpecs(std::initializer_list<PartitionSpec> each)
      : RankSpecs(std::vector<PartitionSpec>(each)) {}
  RankSpecs(std::vector<PartitionSpec> each);
  template <class Fn>
  requires std::invocable<Fn&, const std::string&, const at::Tensor&> RankSpecs(Fn by)
      : RankSpecs(
            Rule([by = std::move(by)](std::vector<RankLeaf>& leaves, const TreeSlots&) mutable {
              for (RankLeaf& leaf : leaves) leaf.spec = by(leaf.path, leaf.tensor);
            })) {}
  explicit RankSpecs(Rule rule) : rule_(std::move(rule)) {}

  // The leaves of a tree, with their specs. Throws Error where there is one for each and their number is
  // another. `what`: "argument 0".
  std::vector<RankLeaf> of(const TreeSlots& tree, const std::string& what) const;

 private:
  Rule rule_;
};

using LocalMapOptions = RankProgramOptions;

namespace detail {

// Throws Error where there are not as many specs as arguments.
void check_count(std::size_t specs, std::size_t arguments);

}  // namespace detail

// Made by local_map(); called with as many arguments as there are in_specs.
template <class Fn>
class LocalMap {
 public:
  LocalMap(Fn fn, const Mesh& mesh, std::vector<RankSpecs> in_specs, RankSpecs out_specs,
           LocalMapOptions options)
      : state_(
            std::make_shared<State>(State{std::move(fn), std::move(in_specs), std::move(out_specs),
                                          RankProgram(mesh, std::move(options))})) {}

  template <class... Arguments>
  auto operator()(const Arguments&... arguments) const {
    using Output = std::decay_t<std::invoke_result_t<Fn&, std::decay_t<Arguments>&...>>;
    static_assert(!std::is_void_v<Output>, "fn returns a tree of tensors");
    Call<Output, std::decay_t<Arguments>...> call(*state_, arguments...);
    const auto results = state_->program.run(call.leaves(), call);
    return tree_unflatten(call.output(), results);
  }

 private:
  struct State {
    Fn fn;
    std::vector<RankSpecs> in_specs;
    RankSpecs out_specs;
    RankProgram program;
  };

  template <class Output, class... Arguments>
  class Call final : public RankCode {
   public:
    Call(State& state, const Arguments&... arguments)
        : state_(state), arguments_(arguments...), ranks_(state.program.ranks()) {
      detail::check_count(state.in_specs.size(), sizeof...(Arguments));
      each_argument([this](std::size_t i, const auto& argument) {
        auto mine =
            state_.in_specs[i].of(tree_detail::slots_of(argument), "argument " + std::to_string(i));
        counts_.push_back(mine.size());
        leaves_.insert(leaves_.end(), mine.begin(), mine.end());
      });
    }

    const std::vector<RankLeaf>& leaves() const { return leaves_; }
    const Output& output() const { return *ranks_.front().output; }

    void bind(std::size_t rank, const std::vector<at::Tensor>& values) override {
      auto next = values.begin();
      ranks_[rank].arguments.emplace(bind_all(next, std::index_sequence_for<Arguments...>()));
    }

    std::vector<RankLeaf> run(std::size_t rank) override {
      auto arguments = std::move(*ranks_[rank].arguments);
      ranks_[rank].arguments.reset();
      const Output& output = ranks_[rank].output.emplace(std::apply(state_.fn, arguments));
      return state_.out_specs.of(tree_detail::slots_of(output), "result");
    }

   private:
    struct OfRank {
      std::optional<std::tuple<Arguments...>> arguments;
      std::optional<Output> output;
    };

    template <class F>
    void each_argument(F f) {
      [&]<std::size_t... i>(std::index_sequence<i...>) { (f(i, std::get<i>(arguments_)), ...); }
      (std::index_sequence_for<Arguments...>());
    }

    using Values = std::vector<at::Tensor>::const_iterator;

    template <std::size_t... i>
    std::tuple<Arguments...> bind_all(Values& next, std::index_sequence<i...>) {
      // Braces: in order.
      return std::tuple<Arguments...>{bind_one(i, std::get<i>(arguments_), next)...};
    }

    // The argument, with the rank's tensors for those that are no module's.
    template <class T>
    T bind_one(std::size_t i, const T& argument, Values& next) {
      const Values begin = std::exchange(next, next + static_cast<std::ptrdiff_t>(counts_[i]));
      const TreeSlots slots = tree_detail::slots_of(argument);
      const auto values = tree_detail::spread("local_map", slots, {begin, next});
      return tree_detail::with_values("local_map", argument, slots, values,
                                      tree_detail::NewLeaves::Modules::keep);
    }

    State& state_;
    const std::tuple<const Arguments&...> arguments_;
    std::vector<RankLeaf> leaves_;
    std::vector<std::size_t> counts_;  // leaves, by argument
    std::vector<OfRank> ranks_;
  };

  std::shared_ptr<State> state_;
};

// fn as a function of tensors on the whole mesh. No manual axes: all are.
template <class Fn>
LocalMap<std::decay_t<Fn>> local_map(Fn&& fn, const Mesh& mesh, std::vector<RankSpecs> in_specs,
                                     RankSpecs out_specs, LocalMapOptions options = {}) {
  return {std::forward<Fn>(fn), mesh, std::move(in_specs), std::move(out_specs),
          std::move(options)};
}

}  // namespace meshtorch
