// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/dispatch.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>

#include <numeric>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/decision.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {

const c10::IValue& KernelCall::argument(std::string_view name) const {
  return arguments[info.argument(name)];
}

int KernelCall::operand(std::string_view name) const {
  return argument_operands[static_cast<std::size_t>(info.argument(name))].at(0);
}

torch::jit::Stack KernelCall::stack(std::size_t d) const {
  torch::jit::Stack local;
  local.reserve(info.arguments.size());
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const auto& mine = argument_operands[i];
    if (info.arguments[i].kind == ArgumentKind::attribute || arguments[i].isNone()) {
      local.push_back(arguments[i]);
    } else if (info.arguments[i].kind == ArgumentKind::tensor) {
      const auto& shards = locals[static_cast<std::size_t>(mine[0])];
      local.emplace_back(shards.empty() ? at::Tensor() : shards[d]);
    } else if (arguments[i].isTensorList()) {
      c10::List<at::Tensor> list;
      for (const int operand : mine) list.push_back(locals[static_cast<std::size_t>(operand)][d]);
      local.emplace_back(std::move(list));
    } else {
      c10::List<std::optional<at::Tensor>> list;
      for (const int operand : mine) {
        const auto& shards = locals[static_cast<std::size_t>(operand)];
        list.push_back(shards.empty() ? std::optional<at::Tensor>() : shards[d]);
      }
      local.emplace_back(std::move(list));
    }
  }
  for (const auto& [argument, value] : sizes[d]) local[static_cast<std::size_t>(argument)] = value;
  return local;
}

torch::jit::Stack KernelCall::run(torch::jit::Stack local) const {
  op.callBoxed(&local);
  return local;
}

AxisList ordered(AxisSet axes) {
  AxisList list;
  for (const int axis : axes) list.push_back(axis);
  return list;
}

Shards KernelCall::all_reduce(AxisSet axes, const Shards& shards, Reduction reduction) const {
  AxisSet real;
  for (const int axis : axes) {
    if (mesh.axis_size(axis) > 1) real.insert(axis);
  }
  if (real.empty()) return shards;
  const std::int64_t n = mesh.shards(real);
  const auto bytes = static_cast<std::int64_t>(shards.front().nbytes());
  record_collective(mesh, StepKind::all_reduce, ordered(real), 2 * (n - 1) * bytes / n, 1,
                    {.op = info.name, .origin = Origin::algorithm, .where = ""});
  return Runtime::current().communicator().all_reduce(mesh, ordered(real), shards, reduction);
}

namespace {

// Dims of a replicated tensor, shared by all wrappers of that rank.
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

// How results sit on a stack: which are tensors, which lists of them, which neither.
struct Results {
  std::vector<Shards> tensors;         // flattened; [output][device]
  std::vector<int> lists;              // per return: list length, -1 one tensor, -2 something else
  std::vector<c10::IValue> others;     // per return, of the first device
  std::vector<std::pair<at::Tensor, std::shared_ptr<Allocation>>> wrapped;  // so far, first device

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
};

class ShardedOp final : public c10::OperatorKernel {
 public:
  explicit ShardedOp(Dispatch& dispatch) : dispatch_(dispatch) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (!info_) {
      info_ = std::make_unique<OpInfo>(analyse(op));
      override_ = dispatch_.find_override(info_->name);
    }
    at::AutoDispatchBelowADInplaceOrView below;
    if (single_device(op, *stack)) return;
    run(op, *stack);
  }

 private:
  // The fast path: every sharded operand is on a mesh of one device, where each layout is the same.
  bool single_device(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    if (info_->random || override_ != nullptr) return false;
    const std::size_t count = info_->arguments.size();
    c10::IValue* arguments = stack.data() + stack.size() - count;
    const ShardedView* any = nullptr;
    for (std::size_t i = 0; i < count; ++i) {
      const ArgumentInfo& argument = info_->arguments[i];
      if (argument.kind == ArgumentKind::tensor_list) {
        if (arguments[i].isNone() || !arguments[i].isTensorList()) return false;
        for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
          const ShardedView* view = sharded_view(tensor);
          if (view == nullptr || view->mesh().size() != 1) return false;
          any = view;
        }
      } else if (argument.kind == ArgumentKind::tensor && arguments[i].isTensor()) {
        const ShardedView* view = sharded_view(arguments[i].toTensor());
        if (view == nullptr) {
          if (argument.written) return false;
          continue;
        }
        if (view->mesh().size() != 1) return false;
        any = view;
      }
    }
    if (any == nullptr || info_->kind == OpKind::metadata || info_->kind == OpKind::out) return false;
    run_single(op, stack, arguments, any->mesh());
    return true;
  }

  void run_single(const c10::OperatorHandle& op, torch::jit::Stack& stack, c10::IValue* arguments,
                  const Mesh& mesh) {
    const std::size_t count = info_->arguments.size();
    c10::SmallVector<c10::IValue, 4> kept;  // wrappers that a return refers to, by return
    for (const ReturnInfo& result : info_->returns) {
      const int source = std::max(result.written_argument, result.viewed_argument);
      kept.push_back(source < 0 ? c10::IValue() : arguments[source]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const ArgumentInfo& argument = info_->arguments[i];
      if (argument.kind == ArgumentKind::tensor && arguments[i].isTensor()) {
        ShardedView* view = sharded_view(arguments[i].toTensor());
        if (view == nullptr) continue;
        if (argument.written) written(*view);
        arguments[i] = view->locals().front();
      } else if (argument.kind == ArgumentKind::tensor_list) {
        c10::List<at::Tensor> locals;
        for (const at::Tensor& tensor : arguments[i].toTensorVector()) {
          ShardedView* view = sharded_view(tensor);
          if (argument.written) written(*view);
          locals.push_back(view->locals().front());
        }
        arguments[i] = std::move(locals);
      }
    }
    op.callBoxed(&stack);
    c10::IValue* results = stack.data() + stack.size() - info_->returns.size();
    for (std::size_t r = 0; r < info_->returns.size(); ++r) {
      if (info_->returns[r].written_argument >= 0) {
        results[r] = std::move(kept[r]);
      } else if (results[r].isTensor()) {
        results[r] = wrap_single(mesh, results[r].toTensor(), kept[r]);
      } else if (results[r].isTensorList()) {
        c10::List<at::Tensor> wrapped;
        for (const at::Tensor& local : results[r].toTensorVector()) {
          wrapped.push_back(wrap_single(mesh, local, kept[r]));
        }
        results[r] = std::move(wrapped);
      }
    }
  }

  at::Tensor wrap_single(const Mesh& mesh, const at::Tensor& local, const c10::IValue& base) {
    if (!local.defined()) return local;
    const ShardedView* view = base.isTensor() ? sharded_view(base.toTensor()) : nullptr;
    auto allocation = view ? view->allocation() : std::make_shared<Allocation>();
    return wrap(local.sizes().vec(),
                c10::make_intrusive<ShardedView>(mesh, replicated_dims(static_cast<std::size_t>(local.dim())),
                                                 Shards{local}, std::move(allocation)));
  }

  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    Frame frame(*info_, stack.data() + stack.size() - info_->arguments.size());
    frame.find_mesh();
    if (!frame.mesh.defined()) {
      fail({.op = info_->name, .where = "", .what = "was dispatched to the sharded kernel without a sharded operand",
            .remedy = "report this"});
    }
    if (info_->kind == OpKind::out) return run_out(frame, stack);
    if (info_->writes) {
      if (run_on_plain_views(op, dispatch_.runtime(), frame, stack)) return;
      convert_plain_destinations(dispatch_.runtime(), frame);
    }
    if (override_ != nullptr) return (*override_)(frame, stack);
    switch (info_->kind) {
      case OpKind::alias: return run_alias(frame, stack);
      case OpKind::copy: return run_copy(frame, stack);
      case OpKind::fill: return run_fill(op, frame, stack);
      case OpKind::metadata: return run_metadata(op, frame, stack);
      default: break;
    }
    if (info_->writes) {
      check_written(frame);
      adopt_accumulation(frame);
    }
    const Decision& decision = decisions_.find(dispatch_.runtime(), frame);
    switch (decision.run) {
      case Decision::Run::local: return run_local(op, frame, decision, stack);
      case Decision::Run::aside: return run_aside(frame, stack);
      case Decision::Run::gather: return run_gather(op, frame, decision, stack);
    }
  }

  void run_alias(Frame& frame, torch::jit::Stack& stack) {
    const at::Tensor& self = frame.tensors[0];
    at::Tensor result = wrap(self.sizes().vec(), c10::intrusive_ptr<ShardedView>::reclaim_copy(frame.views[0]));
    stack.pop_back();
    stack.emplace_back(std::move(result));
  }

  void check_written(const Frame& frame) {
    for_written(frame, [&](std::size_t operand) {
      check_writable(*info_, frame.operand_name(operand), *frame.views[operand]);
    });
  }

  template <class Each>
  void for_written(const Frame& frame, Each each) {
    for (std::size_t i = 0; i < info_->arguments.size(); ++i) {
      if (!info_->arguments[i].written) continue;
      for (const int operand : frame.argument_operands[i]) {
        if (frame.views[static_cast<std::size_t>(operand)]) each(static_cast<std::size_t>(operand));
      }
    }
  }

  bool is_written(const Frame& frame, std::size_t operand) {
    bool found = false;
    for_written(frame, [&](std::size_t written_operand) { found |= written_operand == operand; });
    return found;
  }

  // Every operand as the decision wants it.
  std::vector<Shards> move(const Frame& frame, const Decision& decision, bool own_written) {
    std::vector<Shards> locals(frame.tensors.size());
    for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
      if (!frame.tensors[i].defined()) continue;
      const Layout& wanted = decision.placement.operands[i];
      ShardedView* view = frame.views[i];
      if (view == nullptr) {
        locals[i] = place(frame.tensors[i], frame.mesh, wanted);
      } else if (view->dims() == wanted.dims &&
                 (view->unreduced() == wanted.unreduced || info_->kind == OpKind::factory)) {
        locals[i] = view->locals();
      } else {
        const Cause cause{.op = info_->name, .origin = Origin::implied, .where = frame.operand_name(i)};
        locals[i] = redistribute(*view, frame.tensors[i].sizes().vec(), wanted, cause,
                                 own_written && is_written(frame, i));
      }
    }
    return locals;
  }

  void run_local(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                 torch::jit::Stack& stack) {
    const auto& positions = dispatch_.runtime().communicator().addressable(frame.mesh);
    const std::vector<Shards> locals = move(frame, decision, false);
    settle_backward_buffer(frame, decision, locals);
    std::vector<Shape> shapes;
    for (const at::Tensor& tensor : frame.tensors) {
      shapes.push_back(tensor.defined() ? tensor.sizes().vec() : Shape{});
    }
    KernelCall call{op, *info_, frame.mesh, decision.rule, decision.placement, positions, frame.tensors,
                    shapes, locals, frame.arguments, decision.sizes, frame.argument_operands};
    Results results;
    if (decision.kernel != nullptr) {
      results.tensors = (*decision.kernel)(call);
      results.lists.assign(info_->returns.size(), -1);
    } else {
      const bool views = !info_->returns.empty() && info_->returns[0].viewed_argument >= 0;
      for (std::size_t d = 0; d < positions.size(); ++d) {
        if (decision.skip[d] && !views) continue;
        torch::jit::Stack local = call.stack(d);
        if (decision.rule.local_view) {
          view_as_result(frame, decision, positions[d], local);
        } else {
          run_on_device(op, local);
        }
        results.add(d, positions.size(), local);
      }
      supply_skipped(frame, decision, positions, results);
    }
    for_written(frame, [&](std::size_t operand) { written(*frame.views[operand]); });
    put_results(frame, &decision, results, locals, stack);
  }

  // The backward of an in-place op on a view copies the gradient into a buffer of its own and writes
  // through the same view of that. Nothing else sees the buffer: it takes the layout that the view needs.
  void settle_backward_buffer(Frame& frame, const Decision& decision, const std::vector<Shards>& locals) {
    if (info_->returns.empty() || info_->returns[0].viewed_argument < 0) return;
    const auto& mine = frame.argument_operands[static_cast<std::size_t>(info_->returns[0].viewed_argument)];
    if (mine.empty()) return;
    const auto operand = static_cast<std::size_t>(mine[0]);
    ShardedView* view = frame.views[operand];
    if (view == nullptr || locals[operand][0].is_same(view->locals()[0]) || !unaliased(*view)) return;
    const auto node = torch::autograd::get_current_node();
    if (node == nullptr || node->name().find("CopySlices") == std::string::npos) return;
    const Layout& layout = decision.placement.operands[operand];
    auto allocation = std::make_shared<Allocation>();
    allocation->unreduced = layout.unreduced;
    rebind(frame.tensors[operand], frame.tensors[operand].sizes().vec(),
           c10::make_intrusive<ShardedView>(frame.mesh, std::make_shared<const DimAxes>(layout.dims), locals[operand],
                                            std::move(allocation)));
    frame.views[operand] = sharded_view(frame.tensors[operand]);
  }

  // view() of a local may need a copy where the global strides allowed a view.
  void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack& local) {
    if (info_->name == "aten::view" || info_->name == "aten::_unsafe_view") {
      at::Tensor result = at::reshape(local[0].toTensor(), local[1].toIntVector());
      local.clear();
      local.emplace_back(std::move(result));
      return;
    }
    if (info_->name == "aten::new_empty_strided") {
      local[2] = dense_strides_like(local[1].toIntVector(), local[2].toIntVector());
    }
    op.callBoxed(&local);
  }

  // Dense local strides in the order of the global ones.
  static Shape dense_strides_like(const Shape& sizes, const Shape& global) {
    std::vector<std::size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return global[a] < global[b]; });
    Shape strides(sizes.size());
    std::int64_t next = 1;
    for (const std::size_t dim : order) {
      strides[dim] = next;
      next *= std::max<std::int64_t>(sizes[dim], 1);
    }
    return strides;
  }

  // An op that drops or adds dims of global size one: the local result has its shape by the rule.
  void view_as_result(const Frame& frame, const Decision& decision, std::int64_t position,
                      torch::jit::Stack& local) {
    Shape global;
    for (const DimFactors& dim : decision.rule.outputs[0]) {
      std::int64_t extent = 1;
      for (const int factor : dim) extent *= decision.rule.factors[static_cast<std::size_t>(factor)].size;
      global.push_back(extent);
    }
    const Shape shape = shard_shape(frame.mesh, global, decision.placement.outputs[0], position);
    at::Tensor result = at::reshape(local[0].toTensor(), shape);
    local.clear();
    local.emplace_back(std::move(result));
  }

  // Devices whose shard is empty ran nothing: their results are zeros, the identity of every sum.
  void supply_skipped(const Frame& frame, const Decision& decision,
                      const std::vector<std::int64_t>& positions, Results& results) {
    for (std::size_t o = 0; o < results.tensors.size(); ++o) {
      const at::Tensor model = results.tensors[o][0];
      if (!model.defined()) continue;
      const Layout& layout = output_layout(decision, o);
      const Shape shape = output_shape(decision, o, model);
      for (std::size_t d = 0; d < positions.size(); ++d) {
        if (!decision.skip[d] || results.tensors[o][d].defined()) continue;
        results.tensors[o][d] = at::zeros(shard_shape(frame.mesh, shape, layout, positions[d]), model.options());
      }
    }
  }

  // A list of results (split) may share one entry of the rule.
  static std::size_t rule_output(const Decision& decision, std::size_t output) {
    return std::min(output, decision.placement.outputs.size() - 1);
  }
  static const Layout& output_layout(const Decision& decision, std::size_t output) {
    return decision.placement.outputs[rule_output(decision, output)];
  }

  static Shape output_shape(const Decision& decision, std::size_t output, const at::Tensor& local) {
    const OperandFactors& dims = decision.rule.outputs[rule_output(decision, output)];
    const Layout& layout = output_layout(decision, output);
    if (dims.size() != static_cast<std::size_t>(local.dim())) {
      fail({.op = decision.rule.name, .where = text("output ", output),
            .what = text("the rule ", decision.rule.text, " gives ", dims.size(), " dims, the op ", local.dim()),
            .remedy = "correct the rule"});
    }
    Shape shape = local.sizes().vec();
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      if (layout.dims[dim].empty()) continue;
      shape[dim] = 1;
      for (const int factor : dims[dim]) shape[dim] *= decision.rule.factors[static_cast<std::size_t>(factor)].size;
    }
    return shape;
  }

  // Wraps results; `decision` null: everything is replicated.
  void put_results(const Frame& frame, const Decision* decision, Results& results,
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

  at::Tensor put_one(const Frame& frame, const Decision* decision, std::size_t result, std::size_t output,
                     Results& results, const std::vector<Shards>& locals) {
    const ReturnInfo returned = result < info_->returns.size() ? info_->returns[result] : ReturnInfo{};
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
    const Shape shape = decision ? output_shape(*decision, output, shards[0]) : shards[0].sizes().vec();
    auto dims = decision ? decision->output_dims[rule_output(*decision, output)] : replicated_dims(rank);
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
    return wrap(shape, c10::make_intrusive<ShardedView>(frame.mesh, std::move(dims), std::move(shards),
                                                        std::move(allocation)));
  }

  Allocation::Content factory_content() const {
    if (info_->name.find("empty") != std::string::npos) return Allocation::Content::uninitialized;
    if (info_->name.find("zeros") != std::string::npos) return Allocation::Content::zeros;
    return Allocation::Content::value;
  }

  // An earlier result of this call in the same memory: pieces of a split see each other's writes.
  static std::shared_ptr<Allocation> sibling(Results& results, const at::Tensor& local) {
    for (const auto& [earlier, allocation] : results.wrapped) {
      if (local.is_alias_of(earlier)) return allocation;
    }
    return nullptr;
  }

  // A true view shares its base's allocation; null where the result is something of its own.
  std::shared_ptr<Allocation> allocation_for(const Frame& frame, const ReturnInfo& returned,
                                             const Shards& shards, const std::vector<Shards>& locals) {
    if (returned.viewed_argument < 0) return unsaid_alias(frame, shards, locals);
    const auto& mine = frame.argument_operands[static_cast<std::size_t>(returned.viewed_argument)];
    if (mine.empty()) return nullptr;
    const auto operand = static_cast<std::size_t>(mine[0]);
    ShardedView* base = frame.views[operand];
    if (base == nullptr) return nullptr;
    for (std::size_t d = 0; d < shards.size(); ++d) {
      const bool moved = !locals[operand][d].is_same(base->locals()[d]);
      const bool copied = !shards[d].is_alias_of(locals[operand][d]) && shards[d].numel() > 0;
      if (moved || copied) return nullptr;
    }
    return base->allocation();
  }

  // Some ops return views without saying so (unsafe_split, _unsafe_view).
  static std::shared_ptr<Allocation> unsaid_alias(const Frame& frame, const Shards& shards,
                                                  const std::vector<Shards>& locals) {
    for (std::size_t i = 0; i < frame.views.size(); ++i) {
      if (frame.views[i] == nullptr || locals[i].empty() || !shards[0].is_alias_of(locals[i][0])) continue;
      if (locals[i][0].is_same(frame.views[i]->locals()[0])) return frame.views[i]->allocation();
    }
    return nullptr;
  }

  void mark_copied_view(const Frame& frame, const ReturnInfo& returned,
                        const std::shared_ptr<Allocation>& allocation) {
    if (returned.viewed_argument < 0) return;
    const auto& mine = frame.argument_operands[static_cast<std::size_t>(returned.viewed_argument)];
    if (mine.empty() || frame.views[static_cast<std::size_t>(mine[0])] == nullptr) return;
    const auto& base = frame.views[static_cast<std::size_t>(mine[0])]->allocation();
    allocation->copy_of = base;
    allocation->copied_by = info_->name;
    std::erase_if(base->copied_views, [](const auto& copy) { return copy.expired(); });
    base->copied_views.push_back(allocation);
  }

  // The functional op, then its result into the written operand as that is laid out.
  void run_aside(Frame& frame, torch::jit::Stack& stack) {
    torch::jit::Stack call(frame.arguments, frame.arguments + info_->arguments.size());
    info_->functional->callBoxed(&call);
    std::size_t next = 0;
    std::vector<at::Tensor> originals;
    for_written(frame, [&](std::size_t operand) {
      assign(frame, operand, call[next++].toTensor());
      written(*frame.views[operand]);
      originals.push_back(frame.tensors[operand]);
    });
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(info_->arguments.size()), stack.end());
    for (std::size_t r = 0; r < info_->returns.size(); ++r) stack.emplace_back(originals.at(r));
  }

  // No rule: every operand whole on every device, the op on each, written operands brought back.
  void run_gather(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                  torch::jit::Stack& stack) {
    const bool moves = needs_moving(frame, decision);
    if (moves) report(frame, decision);
    const auto& positions = dispatch_.runtime().communicator().addressable(frame.mesh);
    std::vector<Shards> locals = move(frame, decision, true);
    if (info_->name.rfind("aten::as_strided", 0) == 0) restride(frame, locals[0]);
    const OpRule no_rule;
    const std::vector<Shape> no_shapes;
    KernelCall call{op, *info_, frame.mesh, no_rule, decision.placement, positions, frame.tensors,
                    no_shapes, locals, frame.arguments, decision.sizes, frame.argument_operands};
    Results results;
    for (std::size_t d = 0; d < positions.size(); ++d) {
      if (info_->random && d > 0) {
        repeat_first(frame, locals, results, d);
        continue;
      }
      torch::jit::Stack local = call.stack(d);
      op.callBoxed(&local);
      results.add(d, positions.size(), local);
    }
    if (!decision.rule_error.empty()) throw Error(decision.rule_error);
    for_written(frame, [&](std::size_t operand) {
      bring_back(frame, operand, locals[operand]);
      written(*frame.views[operand]);
    });
    put_results(frame, nullptr, results, locals, stack);
  }

  // as_strided counts in the memory of its operand: a gathered one is laid out as the wrapper says.
  void restride(const Frame& frame, Shards& gathered) {
    const at::Tensor& self = frame.tensors[0];
    if (frame.views[0] == nullptr || gathered[0].is_same(frame.views[0]->locals()[0])) return;
    if (!self.is_non_overlapping_and_dense()) {
      fail({.op = info_->name, .where = "self",
            .what = "reads the memory beside a view, which " + describe(self) + " has not",
            .remedy = "use narrow, select or view, or reshard it to P() first"});
    }
    for (at::Tensor& local : gathered) {
      local = at::empty_strided(self.sizes(), self.strides(), local.options()).copy_(local);
    }
  }

  bool needs_moving(const Frame& frame, const Decision& decision) {
    for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
      if (frame.views[i] && frame.views[i]->layout() != decision.placement.operands[i]) return true;
    }
    return false;
  }

  void report(const Frame& frame, const Decision& decision) {
    // A scalar's value is read by whoever needs it: that is no op to write a rule for.
    if (info_->name == "aten::_local_scalar_dense" || info_->name == "aten::equal" || !decision.rule_error.empty()) return;
    if (dispatch_.runtime().mode() == Mode::strict) {
      fail({.op = info_->name, .where = frame.layouts(),
            .what = "strict mode: the op has no rule, its operands would be gathered",
            .remedy = "reshard them to P() explicitly, add a rule with Runtime::rules().add, or run in mode automatic"});
    }
    dispatch_.runtime().report_fallback(info_->name, frame.layouts());
  }

  // A random op without a kernel draws once; the other devices get the same numbers.
  void repeat_first(const Frame& frame, const std::vector<Shards>& locals, Results& results, std::size_t d) {
    for (Shards& shards : results.tensors) {
      if (shards[0].defined()) shards[d] = shards[0].clone();
    }
    for_written(frame, [&](std::size_t operand) { locals[operand][d].copy_(locals[operand][0]); });
  }

  void bring_back(const Frame& frame, std::size_t operand, const Shards& whole) {
    ShardedView& view = *frame.views[operand];
    if (whole[0].is_same(view.locals()[0])) return;
    const Shape shape = frame.tensors[operand].sizes().vec();
    const Shards back = redistribute(frame.mesh, shape, Layout::replicated(static_cast<std::int64_t>(shape.size())),
                                     view.layout(), whole, {info_->name, Origin::implied, frame.operand_name(operand)});
    for (std::size_t d = 0; d < back.size(); ++d) view.locals()[d].copy_(back[d]);
  }

  Dispatch& dispatch_;
  std::unique_ptr<OpInfo> info_;
  const Dispatch::Override* override_ = nullptr;
  DecisionCache decisions_;
};

// Ops of other namespaces: one kernel each, made at first use.
class ForeignOps final : public c10::OperatorKernel {
 public:
  explicit ForeignOps(Dispatch& dispatch) : dispatch_(dispatch) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    auto& kernel = kernels_[toString(op.operator_name())];
    if (!kernel) kernel = std::make_unique<ShardedOp>(dispatch_);
    (*kernel)(op, keys, stack);
  }

 private:
  Dispatch& dispatch_;
  std::map<std::string, std::unique_ptr<ShardedOp>> kernels_;
};

// Ops whose composite form is the better one: a foreach op is a loop over its base op.
bool keeps_composite(const c10::OperatorName& name) { return name.name.rfind("aten::_foreach_", 0) == 0; }

}  // namespace

Dispatch::Dispatch(Runtime& runtime)
    : runtime_(runtime),
      library_(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse3, __FILE__, __LINE__),
      fallback_(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse3, __FILE__, __LINE__),
      autograd_(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse3, __FILE__, __LINE__) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || keeps_composite(name)) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    library_.impl(toString(name).c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ShardedOp>(*this)));
  }
  fallback_.fallback(torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ForeignOps>(*this)));
}

Dispatch::~Dispatch() = default;

void Dispatch::add_kernel(const std::string& op, Kernel kernel) {
  if (!kernels_.emplace(op, std::move(kernel)).second) {
    fail({.op = "add_kernel", .where = op, .what = "has a kernel already", .remedy = "add one kernel per op"});
  }
}

void Dispatch::add_override(const std::string& op, Override run) {
  if (!overrides_.emplace(op, std::move(run)).second) {
    fail({.op = "add_override", .where = op, .what = "has one already", .remedy = "add one per op"});
  }
}

const Dispatch::Override* Dispatch::find_override(const std::string& op) const {
  auto found = overrides_.find(op);
  return found == overrides_.end() ? nullptr : &found->second;
}

const Kernel* Dispatch::find_kernel(const std::string& op) const {
  auto found = kernels_.find(op);
  return found == kernels_.end() ? nullptr : &found->second;
}

}  // namespace meshtorch
