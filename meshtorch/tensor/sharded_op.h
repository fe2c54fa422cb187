// SPDX-License-Identifier: Apache-2.0
//
// The boxed kernel of one op: what runs when libtorch dispatches the op on a sharded tensor.
//
//   single_device.cpp  every operand on a mesh of one device: unwrap, run, wrap
//   sharded_op.cpp     the way of a call: decide, move operands, run on each device's locals
//   buffer.cpp         views of buffers whose layout is nobody's choice
//   results.cpp        wrapping what came out: shapes, layouts, who shares memory with whom
//   gather.cpp         ops without a rule
//   source.cpp         values that are made where they are used
//   meta.cpp           operands without values
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <meshtorch/tensor/decision.h>
#include <meshtorch/tensor/dispatch.h>

namespace meshtorch {

// How results sit on a stack: which are tensors, which lists of them, which neither.
struct Results {
  std::vector<Shards> tensors;      // flattened; [output][device]
  std::vector<int> lists;           // per return: list length, -1 one tensor, -2 something else
  std::vector<c10::IValue> others;  // per return, of the first device
  std::vector<std::pair<at::Tensor, std::shared_ptr<Allocation>>> wrapped;  // so far, first device
  std::vector<std::shared_ptr<LocalSource>> sources;  // per output, where `tensors` are models

  void add(std::size_t device, std::size_t devices, torch::jit::Stack& stack) {
    std::size_t next = 0;
    auto put = [&](const at::Tensor& tensor) {
      if (tensors.size() <= next) tensors.resize(next + 1);
      tensors[next].resize(devices);
      tensors[next++][device] = tensor;
    };
    const bool first = lists.empty();
    if (first) others.resize(stack.size());
    for (std::size_t r = 0; r < stack.size(); ++r) {
      int length = -2;
      if (stack[r].isTensor()) {
        length = -1;
        put(stack[r].toTensor());
      } else if (stack[r].isTensorList()) {
        const auto list = stack[r].toTensorVector();
        length = static_cast<int>(list.size());
        for (const at::Tensor& tensor : list) put(tensor);
      } else if (first) {
        others[r] = stack[r];
      }
      if (first) lists.push_back(length);
    }
  }

  // What `device` gets is what an earlier one got.
  void repeat(std::size_t earlier, std::size_t device) {
    for (Shards& shards : tensors) shards[device] = shards[earlier];
  }
};

// Dims of a replicated tensor, shared by all wrappers of that rank.
const std::shared_ptr<const DimAxes>& replicated_dims(std::size_t rank);

class ShardedOp final : public c10::OperatorKernel {
 public:
  explicit ShardedOp(Dispatch& dispatch) : dispatch_(dispatch) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

 private:
  // single_device.cpp

  // The fast path: every sharded operand is on a mesh of one device, where each layout is the same.
  bool single_device(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void run_single(const c10::OperatorHandle& op, torch::jit::Stack& stack, c10::IValue* arguments,
                  const Mesh& mesh, bool meta);
  at::Tensor wrap_single(const Mesh& mesh, const at::Tensor& local, const c10::IValue& base);

  bool views_ordinary(const torch::jit::Stack& stack) const;
  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  at::ArrayRef<c10::IValue> results_on(const torch::jit::Stack& stack) const;
  void run_alias(Frame& frame, torch::jit::Stack& stack);
  void check_written(const Frame& frame);
  template <class Each>
  void for_written(const Frame& frame, Each each) {
    for (std::size_t i = 0; i < info_->arguments.size(); ++i) {
      if (!info_->arguments[i].written) continue;
      for (const int operand : frame.argument_operands[i]) {
        if (frame.views[static_cast<std::size_t>(operand)]) each(static_cast<std::size_t>(operand));
      }
    }
  }
  // Every operand as the decision wants it.
  std::vector<Shards> move(const Frame& frame, const Decision& decision);
  // What was sliced for the op, where the whole is dense.
  void make_dense(const Frame& frame, std::vector<Shards>& locals);
  void run_local(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                 torch::jit::Stack& stack);

  // source.cpp

  // A view of values that are not there, which needs none of them.
  bool views_a_source(const Frame& frame, const Decision& decision) const;
  void run_view_of_source(const c10::OperatorHandle& op, const Frame& frame,
                          const Decision& decision, torch::jit::Stack& stack);

  // buffer.cpp

  // Where a view would have to communicate: a fresh buffer that nothing else sees, and the one that the
  // backward of an in-place op on a view writes into, take a layout in which it is local. Whether one did.
  bool settle_buffer(Frame& frame, const Decision& decision);
  // Zeros that nobody laid out, written by an op with sharded operands, lie as the op's result would:
  // gradients of gather and index are sums into such. Whether they were laid out anew.
  bool adopt_fresh(Frame& frame, const Decision& decision);
  // A buffer that is made now.
  void mark_backward_buffer(const at::Tensor& made) const;

  // sharded_op.cpp

  // view() of a local may need a copy where the global strides allowed a view.
  void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack& local, bool meta) const;
  // An op that drops or adds dims of global size one: the local result has its shape by the rule.
  void view_as_result(const Frame& frame, const Decision& decision, std::int64_t position,
                      torch::jit::Stack& local);

  // meta.cpp

  // Throws Error where the op cannot do without values: it reads them on the host, or would write a
  // tensor that has values with one that has none.
  void check_meta(const Frame& frame) const;
  // The plain operands of a call on meta locals as meta tensors, its device as theirs.
  void strip_values(c10::IValue* arguments) const;
  // The earliest device (of `tried`, ascending) whose call is that of device d: meta shards of one shape
  // are one tensor. d itself where there is none.
  static std::size_t same_call(const Decision& decision, const std::vector<Shards>& locals,
                               const std::vector<std::size_t>& tried, std::size_t d);
  static bool same_locals(const std::vector<Shards>& locals, std::size_t d, std::size_t other);
  // A call of libtorch. Throws Error where there is no shape function for meta locals.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& local, bool meta) const;

  // results.cpp

  // Devices whose shard is empty ran nothing: their results are zeros, the identity of every sum.
  // strides.h.
  torch::jit::Stack view_model(const Frame& frame, const Decision& decision);
  static void take_strides(const c10::OperatorHandle& op, torch::jit::Stack model,
                           const torch::jit::Stack& stack);
  // decision.h: Decision::stand_in.
  static void add_stand_ins(const Frame& frame, const Decision& decision,
                            std::vector<Shards>& locals);
  static void remove_stand_ins(std::vector<Shards>& locals, Results& results);
  void supply_skipped(const Frame& frame, const Decision& decision,
                      const std::vector<std::int64_t>& positions, Results& results);
  // A list of results (split) may share one entry of the rule.
  static std::size_t rule_output(const Decision& decision, std::size_t output);
  static const Layout& output_layout(const Decision& decision, std::size_t output);
  static Shape output_shape(const Decision& decision, std::size_t output, const at::Tensor& local);
  // Wraps results; `decision` null: everything is replicated.
  void put_results(const Frame& frame, const Decision* decision, Results& results,
                   const std::vector<Shards>& locals, torch::jit::Stack& stack);
  at::Tensor put_one(const Frame& frame, const Decision* decision, std::size_t result,
                     std::size_t output, Results& results, const std::vector<Shards>& locals);
  Allocation::Content factory_content() const;
  // An earlier result of this call in the same memory: pieces of a split see each other's writes.
  static std::shared_ptr<Allocation> sibling(Results& results, const at::Tensor& local);
  // A true view shares its base's allocation; null where the result is something of its own.
  std::shared_ptr<Allocation> allocation_for(const Frame& frame, const ReturnInfo& returned,
                                             const Shards& shards,
                                             const std::vector<Shards>& locals);
  // Some ops return views without saying so (unsafe_split, _unsafe_view).
  static std::shared_ptr<Allocation> unsaid_alias(const Frame& frame, const Shards& shards,
                                                  const std::vector<Shards>& locals);
  void mark_copied_view(const Frame& frame, const ReturnInfo& returned,
                        const std::shared_ptr<Allocation>& allocation);

  // The functional op, then its result into the written operand as that is laid out.
  void run_aside(Frame& frame, torch::jit::Stack& stack);

  // gather.cpp

  // No rule: every operand whole on every device, the op on each, written operands brought back.
  void run_gather(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                  torch::jit::Stack& stack);
  // Throws Error where as_strided is given an offset into a view.
  void check_offset(const Frame& frame) const;
  // as_strided counts in the memory of its operand: a gathered one is laid out as the wrapper says.
  void restride(const Frame& frame, Shards& gathered);
  bool needs_moving(const Frame& frame, const Decision& decision);
  void report(const Frame& frame, const Decision& decision);
  // A random op without a kernel draws once; the other devices get the same numbers.
  void repeat_first(const Frame& frame, const std::vector<Shards>& locals, Results& results,
                    std::size_t d);
  // A written operand that was moved, from the layout that the op wrote it in.
  void bring_back(const Frame& frame, std::size_t operand, const Shards& moved, const Layout& from);

  Dispatch& dispatch_;
  std::unique_ptr<OpInfo> info_;
  const Dispatch::Override* override_ = nullptr;
  DecisionCache decisions_;
};

}  // namespace meshtorch
