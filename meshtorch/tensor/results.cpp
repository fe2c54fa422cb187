// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded_op.h>

namespace meshtorch {

const std::shared_ptr<const DimAxes>& replicated_dims(std::size_t rank) {
  static const auto all = [] {
    std::vector<std::shared_ptr<const DimAxes>> dims;
    for (std::size_t r = 0; r <= 16; ++r) dims.push_back(std::make_shared<const DimAxes>(r));
    return dims;
  }();
  static thread_local std::shared_ptr<const DimAxes> higher;
  if (rank < all.size()) return all[rank];
  return higher = std::make_shared<const DimAxes>(rank);
}

void ShardedOp::supply_skipped(const Frame& frame, const Decision& decision,
                               const std::vector<std::int64_t>& positions, Results& results) {
  for (std::size_t o = 0; o < results.tensors.size(); ++o) {
    const auto found = std::find_if(results.tensors[o].begin(), results.tensors[o].end(),
                                    [](const at::Tensor& tensor) { return tensor.defined(); });
    if (found == results.tensors[o].end()) continue;
    const at::Tensor model = *found;
    const auto options =
        decision.stand_in ? model.options().device(frame.device()) : model.options();
    const Layout& layout = output_layout(decision, o);
    const Shape shape = output_shape(decision, o, model);
    for (std::size_t d = 0; d < positions.size(); ++d) {
      if (!decision.skip[d] || results.tensors[o][d].defined()) continue;
      results.tensors[o][d] =
          at::zeros(shard_shape(frame.mesh, shape, layout, positions[d]), options);
    }
  }
}

std::size_t ShardedOp::rule_output(const Decision& decision, std::size_t output) {
  return std::min(output, decision.placement.outputs.size() - 1);
}

const Layout& ShardedOp::output_layout(const Decision& decision, std::size_t output) {
  return decision.placement.outputs[rule_output(decision, output)];
}

Shape ShardedOp::output_shape(const Decision& decision, std::size_t output,
                              const at::Tensor& local) {
  const Shape extents = output_extents(decision.rule, rule_output(decision, output));
  const Layout& layout = output_layout(decision, output);
  if (extents.size() != static_cast<std::size_t>(local.dim())) {
    fail({.op = decision.rule.name,
          .where = text("output ", output),
          .what = text("the rule ", decision.rule.text, " gives ", extents.size(), " dims, the op ",
                       local.dim()),
          .remedy = "correct the rule"});
  }
  Shape shape = local.sizes().vec();
  for (std::size_t dim = 0; dim < extents.size(); ++dim) {
    if (!layout.dims[dim].empty()) shape[dim] = extents[dim];
  }
  return shape;
}

void ShardedOp::put_results(const Frame& frame, const Decision* decision, Results& results,
                            const std::vector<Shards>& locals, torch::jit::Stack& stack) {
  torch::jit::Stack out;
  std::size_t next = 0;
  for (std::size_t r = 0; r < results.lists.size(); ++r) {
    if (results.lists[r] == -2) {
      out.push_back(std::move(results.others[r]));
    } else if (results.lists[r] == -1) {
      out.emplace_back(put_one(frame, decision, r, next, results, locals));
      ++next;
    } else {
      c10::List<at::Tensor> list;
      for (int k = 0; k < results.lists[r]; ++k, ++next) {
        list.push_back(put_one(frame, decision, r, next, results, locals));
      }
      out.emplace_back(std::move(list));
    }
  }
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(info_->arguments.size()), stack.end());
  for (auto& value : out) stack.push_back(std::move(value));
}

at::Tensor ShardedOp::put_one(const Frame& frame, const Decision* decision, std::size_t result,
                              std::size_t output, Results& results,
                              const std::vector<Shards>& locals) {
  const ReturnInfo returned =
      result < info_->returns.size() ? info_->returns[result] : ReturnInfo{};
  if (returned.written_argument >= 0) {
    const auto& mine = frame.argument_operands[static_cast<std::size_t>(returned.written_argument)];
    return frame.tensors[static_cast<std::size_t>(mine[0])];
  }
  Shards& shards = results.tensors[output];
  if (!shards[0].defined()) return {};
  if (decision != nullptr) {
    for (const int host : decision->rule.host_outputs) {
      if (static_cast<std::size_t>(host) == output) return shards[0];
    }
  }
  const std::size_t rank = static_cast<std::size_t>(shards[0].dim());
  const Shape shape =
      decision ? output_shape(*decision, output, shards[0]) : shards[0].sizes().vec();
  auto dims =
      decision ? decision->output_dims[rule_output(*decision, output)] : replicated_dims(rank);
  const AxisSet unreduced = decision ? output_layout(*decision, output).unreduced : AxisSet{};
  auto allocation = allocation_for(frame, returned, shards, locals);
  if (!allocation) allocation = sibling(results, shards[0]);
  if (!allocation) {
    allocation = std::make_shared<Allocation>();
    allocation->unreduced = unreduced;
    if (info_->kind == OpKind::factory) allocation->content = factory_content();
    mark_copied_view(frame, returned, allocation);
  }
  if (results.tensors.size() > 1) results.wrapped.emplace_back(shards[0], allocation);
  auto source = results.sources.empty() ? nullptr : results.sources[output];
  at::Tensor wrapped = wrap(shape, c10::make_intrusive<ShardedView>(
                                       frame.mesh, std::move(dims), std::move(shards),
                                       std::move(allocation), std::move(source)));
  if (info_->kind == OpKind::factory) mark_backward_buffer(wrapped);
  return wrapped;
}

Allocation::Content ShardedOp::factory_content() const {
  if (info_->name.find("empty") != std::string::npos) return Allocation::Content::uninitialized;
  if (info_->name.find("zeros") != std::string::npos) return Allocation::Content::zeros;
  return Allocation::Content::value;
}

std::shared_ptr<Allocation> ShardedOp::sibling(Results& results, const at::Tensor& local) {
  for (const auto& [earlier, allocation] : results.wrapped) {
    if (local.is_alias_of(earlier)) return allocation;
  }
  return nullptr;
}

std::shared_ptr<Allocation> ShardedOp::allocation_for(const Frame& frame,
                                                      const ReturnInfo& returned,
                                                      const Shards& shards,
                                                      const std::vector<Shards>& locals) {
  if (returned.viewed_argument < 0) return unsaid_alias(frame, shards, locals);
  const auto& mine = frame.argument_operands[static_cast<std::size_t>(returned.viewed_argument)];
  if (mine.empty()) return nullptr;
  const auto operand = static_cast<std::size_t>(mine[0]);
  ShardedView* base = frame.views[operand];
  if (base == nullptr) return nullptr;
  for (std::size_t d = 0; d < shards.size(); ++d) {
    // What a source made is dropped after the op: a view of it is a copy.
    const bool moved = !locals[operand][d].is_same(base->models()[d]);
    const bool copied = !shards[d].is_alias_of(locals[operand][d]) && shards[d].numel() > 0;
    if (moved || copied) return nullptr;
  }
  return base->allocation();
}

std::shared_ptr<Allocation> ShardedOp::unsaid_alias(const Frame& frame, const Shards& shards,
                                                    const std::vector<Shards>& locals) {
  for (std::size_t i = 0; i < frame.views.size(); ++i) {
    if (frame.views[i] == nullptr || locals[i].empty() || !shards[0].is_alias_of(locals[i][0]))
      continue;
    if (locals[i][0].is_same(frame.views[i]->models()[0])) return frame.views[i]->allocation();
  }
  return nullptr;
}

void ShardedOp::mark_copied_view(const Frame& frame, const ReturnInfo& returned,
                                 const std::shared_ptr<Allocation>& allocation) {
  if (returned.viewed_argument < 0) return;
  const auto& mine = frame.argument_operands[static_cast<std::size_t>(returned.viewed_argument)];
  if (mine.empty() || frame.views[static_cast<std::size_t>(mine[0])] == nullptr) return;
  const auto& base = frame.views[static_cast<std::size_t>(mine[0])]->allocation();
  // A copy of a copy is one of the first base too, however short the one between them lives.
  allocation->copy_of = base->copy_of;
  allocation->copy_of.insert(allocation->copy_of.begin(), base);
  allocation->copied_by = info_->name;
  for (const auto& weak : allocation->copy_of) {
    const auto alive = weak.lock();
    if (!alive) continue;
    std::erase_if(alive->copied_views, [](const auto& copy) { return copy.expired(); });
    alive->copied_views.push_back(allocation);
  }
}

}  // namespace meshtorch
