// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/recording.h>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <set>
#include <unordered_set>

namespace meshtorch {

namespace autograd = torch::autograd;
using autograd::Edge;
using autograd::edge_list;

Recording::Recording()
    : begin_(at::sequence_number::peek()), thread_(at::RecordFunction::currentThreadId()) {}

bool Recording::has(const Edge& edge) const {
  // Accumulators have this number so that the engine runs them first, whenever they were made.
  constexpr std::uint64_t accumulator = std::numeric_limits<std::uint64_t>::max();
  if (!edge.is_valid() || edge.function->thread_id() != thread_) return false;
  const std::uint64_t number = edge.function->sequence_nr();
  return number >= begin_ && number != accumulator;
}

bool Recording::computed(const at::Tensor& output) const {
  if (!output.defined() || !output.requires_grad()) return false;
  const at::Tensor source = output.is_view() ? at::Tensor(output._base()) : output;
  return has(autograd::impl::gradient_edge(source));
}

std::vector<Edge*> Recording::leaving(const std::vector<at::Tensor>& outputs) const {
  std::vector<Edge*> found;
  std::vector<autograd::Node*> open;
  std::unordered_set<autograd::Node*> seen;
  const auto see = [&](autograd::Node* node) {
    if (seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs) see(output.grad_fn().get());
  while (!open.empty()) {
    autograd::Node* node = open.back();
    open.pop_back();
    for (Edge& edge : node->next_edges()) {
      if (has(edge)) {
        see(edge.function.get());
      } else if (edge.is_valid()) {
        found.push_back(&edge);
      }
    }
  }
  return found;
}

edge_list distinct(const std::vector<Edge*>& edges) {
  edge_list ends;
  std::set<EdgeEnd> seen;
  for (const Edge* edge : edges) {
    if (seen.insert(end_of(*edge)).second) ends.push_back(*edge);
  }
  return ends;
}

const at::Tensor* leaf_of(const Edge& edge) {
  const auto* node = dynamic_cast<const autograd::AccumulateGrad*>(edge.function.get());
  return node == nullptr ? nullptr : &node->variable;
}

}  // namespace meshtorch
