// SPDX-License-Identifier: Apache-2.0
//
// The first run records fn's graph, reads off it where gradients leave it, and drops it with all that it
// saved. One node takes its place, with these edges. Its backward records the graph anew, ends the edges
// that leave it in ports, and lets the engine run what lies between.
#include <meshtorch/train/remat.h>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

#include <meshtorch/base/error.h>
#include <meshtorch/train/recording.h>
#include <meshtorch/train/rerun.h>

namespace meshtorch {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge;
using autograd::edge_list;
using autograd::variable_list;

// The end of an edge that leaves fn's second graph: a gradient is picked up here, unseen by the hooks of
// the tensor outside, which see it when it arrives there. Second derivatives pass on.
class Port : public autograd::Node {
 public:
  Port(const Edge& outside, bool passes) {
    if (passes) add_next_edge(outside);
    input_metadata_.emplace_back(outside.function->input_metadata(outside.input_nr));
  }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "RematPort"; }
};

// What the second run needs.
struct Replay {
  detail::RematCall::Function fn;
  std::vector<autograd::SavedVariable> inputs;
  std::vector<std::size_t> computed;  // which of fn's results come from the node
  Draws draws;
  Modes modes;
};

[[noreturn]] void fail_other_results(const std::string& what) {
  fail({.op = "remat",
        .where = "backward",
        .what = "fn " + what + " than in forward",
        .remedy = "let it depend on nothing that changes but its inputs and random numbers"});
}

class RematNode : public autograd::Node {
 public:
  // `leaving`: a distinct edge for each end.
  RematNode(Replay replay, edge_list leaving)
      : Node(edge_list(leaving)), replay_(std::move(replay)), outside_(std::move(leaving)) {}

  // Once fn's first graph is gone. A leaf that nothing else holds now was made by fn, as in a gradient
  // that it takes itself; the second run makes another.
  void look_at_leaves() {
    edge_list kept;
    for (const Edge& edge : outside_) {
      const at::Tensor* leaf = leaf_of(edge);
      if (leaf != nullptr && leaf->use_count() == 1) {
        ++own_leaves_;
      } else {
        kept.push_back(edge);
        versions_.push_back(leaf == nullptr ? 0 : leaf->_version());
      }
    }
    next_edges() = kept;
    outside_ = std::move(kept);
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard lock(mutex_);
    const bool passes = c10::GradMode::is_enabled();
    Recording recording;
    variable_list outputs = run_again(recording);
    const edge_list ports = end_in_ports(recording.leaving(outputs), passes);
    edge_list roots;
    variable_list seeds;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(autograd::impl::gradient_edge(outputs[i]));
      seeds.push_back(std::move(gradients[i]));
    }
    outputs.clear();  // the graph keeps what it needs
    return run_between(roots, seeds, ports, passes);
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    replay_.inputs.clear();
    replay_.fn = nullptr;
  }

  std::string name() const override { return "Remat"; }

 private:
  variable_list inputs() {
    if (replay_.fn == nullptr) {
      fail({.op = "remat",
            .where = "backward",
            .what = "the graph was run before and is freed",
            .remedy = "give the first backward() retain_graph = true"});
    }
    variable_list inputs;
    for (const auto& input : replay_.inputs) inputs.push_back(input.unpack());
    return inputs;
  }

  void check_leaves() const {
    for (std::size_t i = 0; i < outside_.size(); ++i) {
      const at::Tensor* leaf = leaf_of(outside_[i]);
      if (leaf == nullptr || leaf->_version() == versions_[i]) continue;
      fail({.op = "remat",
            .where = text("parameter of sizes ", leaf->sizes()),
            .what = text("was written in place since forward, version ", leaf->_version(), " vs ",
                         versions_[i]),
            .remedy = "change parameters after backward()"});
    }
  }

  // The results that come from this node.
  variable_list run_again(Recording& recording) {
    const variable_list given = inputs();
    check_leaves();
    rerun_scope scope(replay_.draws, replay_.modes);
    recording = Recording();
    const variable_list all = replay_.fn(given);
    variable_list outputs;
    for (const std::size_t i : replay_.computed) {
      if (i >= all.size()) fail_other_results("gave fewer results");
      if (!recording.computed(all[i])) fail_other_results("gave results of other origin");
      const auto& first = input_metadata(outputs.size());
      if (!first.is_same_shape(all[i]) || first.dtype() != all[i].dtype())
        fail_other_results("gave results of other sizes or dtypes");
      outputs.push_back(all[i]);
    }
    return outputs;
  }

  // Gradients of what the current backward asks for; others are undefined.
  variable_list run_between(const edge_list& roots, const variable_list& seeds,
                            const edge_list& ports, bool passes) {
    variable_list result(ports.size());
    std::vector<std::size_t> asked;
    edge_list ends;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (!task_should_compute_output(i)) continue;
      asked.push_back(i);
      ends.push_back(ports[i]);
    }
    if (asked.empty() || roots.empty()) return result;
    variable_list found = autograd::Engine::get_default_engine().execute(
        roots, seeds, /*keep_graph=*/passes, /*create_graph=*/passes, /*accumulate_grad=*/false,
        ends);
    for (std::size_t i = 0; i < asked.size(); ++i) result[asked[i]] = std::move(found[i]);
    return result;
  }

  // The port of each edge of this node. Those may have changed since forward: where this node is itself
  // in a second graph they end in ports of another one.
  edge_list end_in_ports(const std::vector<Edge*>& leaving, bool passes) {
    edge_list ports;
    std::map<EdgeEnd, std::size_t> index;
    for (std::size_t i = 0; i < outside_.size(); ++i) {
      index.emplace(end_of(outside_[i]), i);
      ports.emplace_back(c10::make_intrusive<Port>(next_edge(i), passes), 0);
    }
    std::set<EdgeEnd> others;
    for (Edge* edge : leaving) {
      const auto found = index.find(end_of(*edge));
      if (found != index.end()) {
        *edge = ports[found->second];
      } else if (others.insert(end_of(*edge)).second &&
                 (leaf_of(*edge) == nullptr || others.size() > own_leaves_)) {
        fail_other_results("used another tensor from outside");
      }
    }
    return ports;
  }

  Replay replay_;
  edge_list outside_;                   // where gradients leave fn
  std::vector<std::int64_t> versions_;  // of the leaves among them
  std::size_t own_leaves_ = 0;
};

}  // namespace

struct detail::RematCall::FirstRun {
  explicit FirstRun(std::vector<at::Tensor> given) : inputs(std::move(given)) {
    for (const at::Tensor& input : inputs) {
      saved.emplace_back(input, /*is_output=*/false);
      versions.push_back(input.defined() ? input._version() : 0);
    }
    recording = Recording();
  }

  void check_inputs() const {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || inputs[i]._version() == versions[i]) continue;
      fail({.op = "remat",
            .where = text("input ", i),
            .what = "fn wrote it in place, and could not run again on what it was",
            .remedy = "write a clone"});
    }
  }

  c10::intrusive_ptr<RematNode> node_for(Function again, std::vector<std::size_t> computed,
                                         const variable_list& results) {
    return c10::make_intrusive<RematNode>(Replay{.fn = std::move(again),
                                                 .inputs = std::move(saved),
                                                 .computed = std::move(computed),
                                                 .draws = std::move(draws),
                                                 .modes = std::move(modes)},
                                          distinct(recording.leaving(results)));
  }

  std::vector<at::Tensor> inputs;
  std::vector<autograd::SavedVariable> saved;
  std::vector<std::int64_t> versions;
  Draws draws = Draws::of(inputs);
  Modes modes;
  NoAutocastCache no_cache;
  Recording recording;
};

detail::RematCall::RematCall(std::vector<at::Tensor> inputs) {
  if (c10::GradMode::is_enabled()) first_ = std::make_unique<FirstRun>(std::move(inputs));
}

detail::RematCall::~RematCall() = default;

void detail::RematCall::finish(Function again, const std::vector<at::Tensor*>& outputs) {
  if (first_ == nullptr) return;
  first_->check_inputs();
  std::vector<std::size_t> computed;
  std::map<at::TensorImpl*, std::size_t> slots;  // a tensor that is returned twice has one
  std::vector<std::pair<at::Tensor*, std::size_t>> places;
  variable_list results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!first_->recording.computed(*outputs[i])) continue;
    const auto [slot, is_new] = slots.emplace(outputs[i]->unsafeGetTensorImpl(), results.size());
    places.emplace_back(outputs[i], slot->second);
    if (!is_new) continue;
    computed.push_back(i);
    results.push_back(*outputs[i]);
  }
  if (results.empty()) return;
  const auto node = first_->node_for(std::move(again), std::move(computed), results);
  for (at::Tensor& result : results) {
    result = at::Tensor(result.tensor_data());
    autograd::set_history(result, node);
  }
  for (const auto& [output, slot] : places) *output = results[slot];
  node->look_at_leaves();
}

}  // namespace meshtorch
