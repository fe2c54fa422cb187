// SPDX-License-Identifier: Apache-2.0
//
// A module's state as data, as Flax NNX has it: an ordered list of named tensors that can be taken
// apart by kind, path or predicate, put together, and written back.
//
//   auto [parameters, statistics, others] =
//       mt::split(*model, mt::Kind::parameter, mt::Kind::batch_statistic, mt::rest);
//   mt::State decayed = parameters.filter("weight$");
//   mt::State snapshot = mt::State(*model).clone();
//   ...
//   mt::update(*model, snapshot);            // the weights, the statistics, the next dropout mask
//
// An entry shares memory with the module's tensor, as everywhere in libtorch; clone() makes a snapshot.
// Random state is always one.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/mesh/partition_spec.h>

namespace meshtorch {

enum class Kind {
  parameter,
  buffer,
  // running_mean, running_var and num_batches_tracked of a module that keeps the first two: libtorch's
  // BatchNorm and InstanceNorm, and norms of the program's own.
  batch_statistic,
  // Where the next random numbers come from: "random.runtime" of sharded tensors (Runtime::random():
  // seed and draws, int64 [2]), "random.torch" of plain ones (the state of libtorch's CPU generator, uint8).
  random_state,
};

std::string_view name(Kind kind);  // "parameter", "buffer", "batch statistic", "random state"

// Of the module's parameter or buffer at this path. Throws Error where it has none there.
Kind kind_of(const torch::nn::Module& module, const std::string& path);

struct StateEntry {
  std::string path;
  Kind kind = Kind::parameter;
  at::Tensor tensor;
};

// Which entries: of a kind, whose path a regex is found in (ECMAScript, searched as PathRules do; an Error
// where it does not compile), or for which a predicate holds.
class StateFilter {
 public:
  StateFilter(Kind kind);  // NOLINT: each is a filter
  StateFilter(const std::string& pattern);
  StateFilter(const char* pattern) : StateFilter(std::string(pattern)) {}
  template <std::predicate<const StateEntry&> Predicate>
  StateFilter(Predicate takes) : takes_(std::move(takes)), text_("a predicate") {}

  bool operator()(const StateEntry& entry) const { return takes_(entry); }
  const std::string& to_string() const { return text_; }

 private:
  std::function<bool(const StateEntry&)> takes_;
  std::string text_;
};

// The last filter of a split that takes whatever the others left.
struct Rest {
  bool operator()(const StateEntry&) const { return true; }
};
inline constexpr Rest rest{};

class State {
 public:
  State() = default;
  // The module's parameters and buffers in its own order, then the random state of the program. A tensor
  // under several paths is one entry, under the first.
  explicit State(const torch::nn::Module& module);
  template <class Contained>
  explicit State(const torch::nn::ModuleHolder<Contained>& module)
      : State(static_cast<const torch::nn::Module&>(*module)) {}
  // Throws Error where a path occurs twice.
  explicit State(std::vector<StateEntry> entries);

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const std::vector<StateEntry>& entries() const { return entries_; }

  // Null where there is none.
  const StateEntry* find(const std::string& path) const;
  // Throws Error where there is none.
  const at::Tensor& at(const std::string& path) const;

  // As a tree (tree.h) whose paths are the entries' own, and the same entries with the tensors of such a
  // one. Throws Error where the paths are not the same.
  //
  //   State halved = state.with(tree_map([](const Tensor& x) { return x / 2; }, state.tensors()));
  std::map<std::string, at::Tensor> tensors() const;
  State with(const std::map<std::string, at::Tensor>& tensors) const;

  State filter(const StateFilter& filter) const;
  // Copies in memory of their own, in the same layouts, without autograd.
  State clone() const;
  // A table: path, kind, shape, dtype, layout.
  std::string to_string() const;

 private:
  std::vector<StateEntry> entries_;
};

// The random state alone: "random.runtime" where a runtime lives, and "random.torch".
State random_state();
// Puts it back. Throws Error, before anything is set: an entry that random_state() would not give, so too
// "random.runtime" where no runtime lives, or of another size.
void set_random_state(const State& state);

// What split() calls. One state per filter: an entry goes to the first that takes it. Throws Error with
// the path of an entry that none takes, and where `rest`, the filter of number `rest_at`, is not the last.
std::vector<State> split_by(const State& state, const std::vector<StateFilter>& filters,
                            std::size_t rest_at);

// The states that the filters take, an entry going to the first that fits; mt::rest, perhaps the last of
// them, takes what the others left. `source` is a State or a module. Throws Error: split_by.
template <class Source, class... Filters>
std::array<State, sizeof...(Filters)> split(const Source& source, const Filters&... filters) {
  std::size_t rest_at = sizeof...(Filters), i = 0;
  ((rest_at = std::same_as<Filters, Rest> && i < rest_at ? i : rest_at, ++i), ...);
  std::vector<State> states = split_by(State(source), {StateFilter(filters)...}, rest_at);
  std::array<State, sizeof...(Filters)> parts;
  std::move(states.begin(), states.end(), parts.begin());
  return parts;
}

// All entries, in order. Throws Error with a path that occurs twice.
State merge(const std::vector<State>& states);
template <std::same_as<State>... States>
State merge(const State& first, const States&... others) {
  return merge(std::vector<State>{first, others...});
}

// Writes the entries' values into the module's tensors, whatever the layouts of either; the module keeps
// its layouts, ties, requires_grad and leaves that the state lacks. Random state is set. Throws Error,
// before anything is written: a path that the module lacks, another shape or dtype, and as
// set_random_state.
void update(torch::nn::Module& module, const State& state);

// How each parameter and buffer lies, by path and in the module's order; P() of a plain one. A tensor
// under several paths is under all of them.
torch::OrderedDict<std::string, PartitionSpec> partition_specs(const torch::nn::Module& module);

// Every tensor whole on every device of the mesh; random state stays on the host.
State replicate(const State& state, const Mesh& mesh);

// Every tensor whole and plain, from whatever layout.
State dereplicate(const State& state);

}  // namespace meshtorch
