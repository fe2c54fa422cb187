// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/plan/record.h>

#include <torch/torch.h>

#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/ledger.h>
#include <meshtorch/plan/stand_ins.h>
#include <meshtorch/tensor/dry_run.h>
#include <meshtorch/tensor/op_observer.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

using ViewPointer = c10::intrusive_ptr<ShardedView>;

// Tensors are told apart by what they stand on: autograd may put another wrapper around a result.
class FeatureRecorder final : public OpObserver {
 public:
  int tensor(const at::Tensor& tensor) {
    ShardedView* view = sharded_view(tensor);
    return view == nullptr ? -1 : number(view, shape_of(tensor));
  }

  void reads(const Frame& frame, const OpRule* rule) override {
    Call call{.rule = rule ? std::optional(*rule) : std::nullopt,
              .alike = frame.info.kind == OpKind::alias || frame.info.kind == OpKind::copy,
              .operands = {}};
    for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
      call.operands.push_back(
          frame.views[i] == nullptr ? -1 : number(frame.views[i], shape_of(frame.tensors[i])));
    }
    calls_.push_back(std::move(call));
  }

  void ran(at::ArrayRef<c10::IValue> results) override {
    const Call call = std::move(calls_.back());
    calls_.pop_back();
    std::vector<int> outputs;
    for (const c10::IValue& result : results) add(result, outputs);
    if (call.alike) add_alike(call.operands, outputs);
    if (!call.rule) return;
    if (call.rule->outputs.size() == 1 && outputs.size() > 1) {  // a list shares it
      for (const int output : outputs) graph_.add_op(*call.rule, call.operands, {output});
    } else {
      graph_.add_op(*call.rule, call.operands, outputs);
    }
  }

  FeatureGraph take() { return std::move(graph_); }

 private:
  struct Call {
    std::optional<OpRule> rule;
    bool alike;
    std::vector<int> operands;
  };

  int number(ShardedView* view, const Shape& shape) {
    const auto [found, fresh] = numbers_.try_emplace(view, 0);
    if (fresh) {
      found->second = graph_.add_tensor(shape);
      held_.push_back(ViewPointer::reclaim_copy(view));
    }
    return found->second;
  }

  void add_alike(const std::vector<int>& operands, const std::vector<int>& outputs) {
    if (outputs.empty() || outputs[0] < 0) return;
    for (const int operand : operands) {
      if (operand >= 0) graph_.same(operand, outputs[0]);
    }
  }

  void add(const c10::IValue& result, std::vector<int>& outputs) {
    if (result.isTensor()) {
      outputs.push_back(tensor(result.toTensor()));
    } else if (result.isTensorList()) {
      for (const at::Tensor& each : result.toTensorVector()) outputs.push_back(tensor(each));
    }
  }

  FeatureGraph graph_;
  std::map<const ShardedView*, int> numbers_;
  std::vector<ViewPointer> held_;  // so that an address stays one tensor's
  std::vector<Call> calls_;        // begun
};

void check_result(const at::Tensor& result) {
  if (result.defined() && is_sharded(result)) return;
  fail({.op = "MegatronRule",
        .where = "forward",
        .what = result.defined() ? "gave a tensor that depends on no parameter"
                                 : "gave an undefined tensor",
        .remedy = "return the loss, or what the model computes"});
}

bool is_moved(const LedgerEntry& entry) {
  return entry.origin == Origin::implied && entry.kind != Collective::all_reduce &&
         entry.kind != Collective::reduce_scatter;
}

StepCost cost_of(const std::vector<LedgerEntry>& entries, std::size_t forward) {
  StepCost cost;
  std::int64_t largest = 0;
  for (const LedgerEntry& entry : entries) largest = std::max(largest, entry.bytes);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    cost.bytes += entries[i].bytes;
    if (is_moved(entries[i]))
      cost.moved.push_back(text(name(entries[i].kind), " of ", entries[i].op));
    const bool small = entries[i].bytes * 16 < largest;
    ++(small ? cost.small : i < forward ? cost.forward : cost.backward);
  }
  return cost;
}

}  // namespace

FeatureRecord record_features(const std::vector<at::Tensor>& tensors, const Forward& forward) {
  dry_run_scope dry(Mesh({{"cut", 2}}));
  const mode_scope mode(Mode::automatic);
  const StandIns stand_ins(tensors, dry.mesh(), std::vector<PartitionSpec>(tensors.size()));
  FeatureRecorder recorder;
  FeatureRecord record;
  for (const at::Tensor& tensor : tensors) record.tensors.push_back(recorder.tensor(tensor));
  {
    const observing watch(recorder);
    check_result(forward());
  }
  record.graph = recorder.take();
  return record;
}

StepCost measure_step(const std::vector<at::Tensor>& tensors,
                      const std::vector<PartitionSpec>& specs, const Mesh& mesh,
                      const Forward& forward) {
  dry_run_scope dry(mesh);
  const mode_scope mode(Mode::automatic);
  const StandIns stand_ins(tensors, dry.mesh(), specs);
  at::Tensor result = forward();
  check_result(result);
  result = reshard(result, P());
  const std::size_t forward_entries = dry.ledger().entries().size();
  if (result.requires_grad()) {
    std::vector<at::Tensor> trained;
    for (const at::Tensor& tensor : tensors) {
      if (tensor.requires_grad()) trained.push_back(tensor);
    }
    const auto gradients =
        torch::autograd::grad({result.sum()}, trained, {}, false, false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      // What an optimizer reads lies as the parameter does.
      if (gradients[i].defined() && is_sharded(gradients[i]))
        reshard(gradients[i], sharding_of(trained[i]).spec);
    }
  }
  return cost_of(dry.ledger().entries(), forward_entries);
}

}  // namespace meshtorch
