// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded_op.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {

void ShardedOp::run_gather(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                           torch::jit::Stack& stack) {
  const bool moves = needs_moving(frame, decision);
  if (moves) report(frame, decision);
  const auto& positions = dispatch_.runtime().communicator().addressable(frame.mesh);
  const bool strided = info_->name.rfind("aten::as_strided", 0) == 0;
  if (strided) check_offset(frame);
  std::vector<Shards> locals = move(frame, decision);
  if (strided) restride(frame, locals[0]);
  const OpRule no_rule;
  const std::vector<Shape> no_shapes;
  KernelCall call{op,
                  *info_,
                  frame.mesh,
                  no_rule,
                  decision.placement,
                  positions,
                  frame.tensors,
                  no_shapes,
                  locals,
                  frame.arguments,
                  decision.sizes,
                  frame.argument_operands};
  Results results;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    if (info_->random && d > 0) {
      repeat_first(frame, locals, results, d);
      continue;
    }
    if (frame.meta && d > 0 && same_locals(locals, d, 0)) {
      results.repeat(0, d);
      continue;
    }
    torch::jit::Stack local = call.stack(d);
    this->call(op, local, frame.meta);
    results.add(d, positions.size(), local);
  }
  if (!decision.rule_error.empty()) throw Error(decision.rule_error);
  for_written(frame, [&](std::size_t operand) {
    bring_back(frame, operand, locals[operand], decision.placement.operands[operand]);
    written(*frame.views[operand]);
  });
  put_results(frame, nullptr, results, locals, stack);
}

void ShardedOp::check_offset(const Frame& frame) const {
  const int position = info_->argument("storage_offset");
  if (position < 0 || frame.arguments[position].isNone() || frame.views[0] == nullptr) return;
  const ShardedView& view = *frame.views[0];
  bool first = view.allocation()->copied_by.empty();  // the first element of the base
  for (const at::Tensor& local : view.locals())
    first = first && (local.numel() == 0 || local.storage_offset() == 0);
  if (first) return;
  fail({.op = info_->name,
        .where = "storage_offset",
        .what = "counts in the memory of a base, of which " + describe(frame.tensors[0]) +
                " is a view, and a sharded tensor has none",
        .remedy = "leave it out to start at the view, or use narrow or select"});
}

void ShardedOp::restride(const Frame& frame, Shards& gathered) {
  const at::Tensor& self = frame.tensors[0];
  if (frame.views[0] == nullptr || gathered[0].is_same(frame.views[0]->locals()[0])) return;
  if (!self.is_non_overlapping_and_dense()) {
    fail({.op = info_->name,
          .where = "self",
          .what = "reads the memory beside a view, which " + describe(self) + " has not",
          .remedy = "use narrow, select or view, or reshard it to P() first"});
  }
  for (at::Tensor& local : gathered) {
    local = at::empty_strided(self.sizes(), self.strides(), local.options()).copy_(local);
  }
}

bool ShardedOp::needs_moving(const Frame& frame, const Decision& decision) {
  for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
    if (frame.views[i] && frame.views[i]->layout() != decision.placement.operands[i]) return true;
  }
  return false;
}

void ShardedOp::report(const Frame& frame, const Decision& decision) {
  // A scalar's value is read by whoever needs it: that is no op to write a rule for.
  if (info_->name == "aten::_local_scalar_dense" || info_->name == "aten::equal" ||
      !decision.rule_error.empty())
    return;
  // A rule there is, but not for this call: a random op draws once, a boolean index selects by values.
  if (dispatch_.runtime().rules().find(info_->base) != nullptr) return;
  if (dispatch_.runtime().mode() == Mode::strict) {
    fail({.op = info_->name,
          .where = frame.layouts(),
          .what = "strict mode: the op has no rule, its operands would be gathered",
          .remedy =
              "reshard them to P() explicitly, add a rule with Runtime::register_rule, or run "
              "in mode automatic"});
  }
  dispatch_.runtime().report_fallback(info_->name, frame.layouts());
}

void ShardedOp::repeat_first(const Frame& frame, const std::vector<Shards>& locals,
                             Results& results, std::size_t d) {
  for (Shards& shards : results.tensors) {
    if (shards[0].defined()) shards[d] = shards[0].clone();
  }
  for_written(frame, [&](std::size_t operand) { locals[operand][d].copy_(locals[operand][0]); });
}

void ShardedOp::bring_back(const Frame& frame, std::size_t operand, const Shards& moved,
                           const Layout& from) {
  ShardedView& view = *frame.views[operand];
  if (moved[0].is_same(view.locals()[0])) return;
  const Shape shape = frame.tensors[operand].sizes().vec();
  const Shards back = redistribute(frame.mesh, shape, from, view.layout(), moved,
                                   {info_->name, Origin::implied, frame.operand_name(operand)});
  for (std::size_t d = 0; d < back.size(); ++d) view.locals()[d].copy_(back[d]);
}

}  // namespace meshtorch
