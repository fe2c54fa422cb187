// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/sharded_op.h>

#include <ATen/ATen.h>

#include <c10/core/AutogradState.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/op_observer.h>
#include <meshtorch/tensor/op_scope.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/strides.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {
namespace {

bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || a.const_data_ptr() != b.const_data_ptr() || a.dtype() != b.dtype() ||
      a.sizes() != b.sizes())
    return false;
  for (std::int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

// An operand that is what is written, under strides that differ where a dim has one element: libtorch
// would take it for one that overlaps in part.
void read_as_written(std::vector<Shards>& locals, std::size_t written) {
  for (Shards& shards : locals) {
    for (std::size_t d = 0; d < shards.size(); ++d) {
      if (same_elements(shards[d], locals[written][d])) shards[d] = locals[written][d];
    }
  }
}

}  // namespace

void ShardedOp::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                           torch::jit::Stack* stack) {
  if (!info_) {
    info_ = std::make_unique<OpInfo>(analyse(op));
    const OpEntry* entry = dispatch_.runtime().rules().find(info_->base);
    info_->joint = entry != nullptr && entry->text.find("joint") != std::string::npos;
    override_ = dispatch_.find_override(info_->name);
  }
  // In-place ops on views of storage-less tensors differentiate right only where views are replayed;
  // through as_strided they would be silently wrong. Autograd asks for it after the view has run, in the
  // state of the thread that runs it.
  auto& state = c10::AutogradState::get_tls_state();
  if (!state.get_view_replay_enabled()) state.set_view_replay_enabled(true);
  // A view of an ordinary tensor is one, in inference mode too: libtorch counts its versions.
  std::optional<c10::InferenceMode> ordinary;
  if (c10::InferenceMode::is_enabled() && views_ordinary(*stack)) ordinary.emplace(false);
  at::AutoDispatchBelowADInplaceOrView below;
  const op_scope scope;
  if (single_device(op, *stack)) return;
  run(op, *stack);
}

bool ShardedOp::views_ordinary(const torch::jit::Stack& stack) const {
  if (!info_->gives_views()) return false;
  const std::size_t first = stack.size() - info_->arguments.size();
  const c10::IValue& base =
      stack[first + static_cast<std::size_t>(info_->returns[0].viewed_argument)];
  return base.isTensor() && base.toTensor().defined() && !base.toTensor().is_inference();
}

void ShardedOp::run(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  Frame frame(*info_, stack.data() + stack.size() - info_->arguments.size());
  frame.find_mesh();
  if (!frame.mesh.defined()) {
    fail({.op = info_->name,
          .where = "",
          .what = "was dispatched to the sharded kernel without a sharded operand",
          .remedy = "report this"});
  }
  frame.find_meta();
  if (frame.meta) check_meta(frame);
  if (info_->kind == OpKind::out) return run_out(frame, stack);
  if (info_->writes) {
    if (run_on_plain_views(op, dispatch_.runtime(), frame, stack)) return;
    convert_plain_destinations(dispatch_.runtime(), frame);
  }
  if (override_ != nullptr) return (*override_)(frame, stack);
  OpObserver* const observer = OpObserver::current();
  switch (info_->kind) {
    case OpKind::alias:
    case OpKind::copy:
      if (observer != nullptr) observer->reads(frame, nullptr);
      info_->kind == OpKind::alias ? run_alias(frame, stack) : run_copy(frame, stack);
      if (observer != nullptr) observer->ran(results_on(stack));
      return;
    case OpKind::fill:
      return run_fill(op, frame, stack);
    case OpKind::metadata:
      return run_metadata(op, frame, stack);
    default:
      break;
  }
  if (info_->writes) {
    check_written(frame);
    adopt_accumulation(frame);
  }
  frame.find_sums();
  std::shared_ptr<const Decision> kept = decisions_.find(dispatch_.runtime(), frame);
  if (settle_buffer(frame, *kept) || adopt_fresh(frame, *kept))
    kept = decisions_.find(dispatch_.runtime(), frame);
  const Decision& decision = *kept;
  const bool ruled = decision.run != Decision::Run::gather;
  if (observer != nullptr) observer->reads(frame, ruled ? &decision.rule : nullptr);
  switch (decision.run) {
    case Decision::Run::local:
      if (views_a_source(frame, decision)) {
        run_view_of_source(op, frame, decision, stack);
      } else {
        run_local(op, frame, decision, stack);
      }
      break;
    case Decision::Run::aside:
      run_aside(frame, stack);
      break;
    case Decision::Run::gather:
      run_gather(op, frame, decision, stack);
      break;
  }
  if (observer != nullptr) observer->ran(results_on(stack));
}

at::ArrayRef<c10::IValue> ShardedOp::results_on(const torch::jit::Stack& stack) const {
  return at::ArrayRef<c10::IValue>(stack).slice(stack.size() - info_->returns.size());
}

void ShardedOp::run_alias(Frame& frame, torch::jit::Stack& stack) {
  const at::Tensor& self = frame.tensors[0];
  at::Tensor result =
      wrap(self.sizes().vec(), c10::intrusive_ptr<ShardedView>::reclaim_copy(frame.views[0]));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(self.sizes(), self.strides());
  stack.pop_back();
  stack.emplace_back(std::move(result));
}

void ShardedOp::check_written(const Frame& frame) {
  for_written(frame, [&](std::size_t operand) {
    check_writable(*info_, frame.operand_name(operand), frame.tensors[operand]);
  });
}

std::vector<Shards> ShardedOp::move(const Frame& frame, const Decision& decision) {
  std::vector<Shards> locals(frame.tensors.size());
  for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
    if (!frame.tensors[i].defined()) continue;
    const Layout& wanted = decision.placement.operands[i];
    ShardedView* view = frame.views[i];
    if (view == nullptr) {
      locals[i] = place(frame.tensors[i], frame.mesh, wanted, frame.meta);
    } else if (view->dims() == wanted.dims &&
               (view->unreduced() == wanted.unreduced || info_->kind == OpKind::factory)) {
      locals[i] = view->locals();
    } else {
      // A piece of what is written must not be read from there meanwhile.
      const Cause cause{
          .op = info_->name, .origin = Origin::implied, .where = frame.operand_name(i)};
      locals[i] = redistribute(*view, frame.tensors[i].sizes().vec(), wanted, cause, info_->writes);
    }
    if (frame.meta && !is_meta(locals[i])) locals[i] = without_values(locals[i]);
  }
  if (info_->writes && !frame.meta) {
    for_written(frame, [&](std::size_t written) { read_as_written(locals, written); });
  }
  return locals;
}

// A slice of a dense tensor is not dense, and some kernels of libtorch count on what their own forward
// would have given them.
void ShardedOp::make_dense(const Frame& frame, std::vector<Shards>& locals) {
  for (std::size_t i = 0; i < locals.size() && !info_->gives_views(); ++i) {
    if (locals[i].empty() || !frame.tensors[i].is_contiguous()) continue;
    const ShardedView* view = frame.views[i];
    if (view != nullptr && locals[i][0].is_same(view->locals()[0])) continue;
    for (at::Tensor& local : locals[i]) local = local.contiguous();
  }
}

void ShardedOp::run_local(const c10::OperatorHandle& op, Frame& frame, const Decision& decision,
                          torch::jit::Stack& stack) {
  const auto& positions = dispatch_.runtime().communicator().addressable(frame.mesh);
  std::vector<Shards> locals = move(frame, decision);
  make_dense(frame, locals);
  if (decision.stand_in) add_stand_ins(frame, decision, locals);
  std::vector<Shape> shapes;
  for (const at::Tensor& tensor : frame.tensors) {
    shapes.push_back(tensor.defined() ? tensor.sizes().vec() : Shape{});
  }
  KernelCall call{op,
                  *info_,
                  frame.mesh,
                  decision.rule,
                  decision.placement,
                  positions,
                  frame.tensors,
                  shapes,
                  locals,
                  frame.arguments,
                  decision.sizes,
                  frame.argument_operands};
  Results results;
  if (decision.kernel != nullptr) {
    results.tensors = (*decision.kernel)(call);
    if (frame.meta) {
      for (Shards& shards : results.tensors) share_equal(shards);
    }
    results.lists.assign(info_->returns.size(), -1);
  } else {
    const bool views = info_->gives_views();
    const std::size_t devices = positions.size() + (decision.stand_in ? 1 : 0);
    std::vector<std::size_t> tried;  // of meta locals: each distinct call once
    for (std::size_t d = 0; d < devices; ++d) {
      if (decision.skip[d] && !views) continue;
      if (frame.meta) {
        const std::size_t same = same_call(decision, locals, tried, d);
        if (same != d) {
          results.repeat(same, d);
          continue;
        }
        tried.push_back(d);
      }
      torch::jit::Stack local = call.stack(d);
      const device_scope on(
          d < positions.size() ? frame.mesh.devices()[static_cast<std::size_t>(positions[d])] : -1,
          &info_->name);
      if (decision.rule.local_view) {
        view_as_result(frame, decision, d < positions.size() ? positions[d] : 0, local);
      } else {
        run_on_device(op, local, frame.meta || d == positions.size());
      }
      results.add(d, devices, local);
    }
    supply_skipped(frame, decision, positions, results);
    if (decision.stand_in) remove_stand_ins(locals, results);
    for_written(frame, [&](std::size_t operand) {
      bring_back(frame, operand, locals[operand], decision.placement.operands[operand]);
    });
  }
  for_written(frame, [&](std::size_t operand) { written(*frame.views[operand]); });
  const torch::jit::Stack model = view_model(frame, decision);
  put_results(frame, &decision, results, locals, stack);
  if (!model.empty()) take_strides(op, model, stack);
}

// The call on a meta tensor of the global sizes and strides, for views whose locals do not tell theirs.
torch::jit::Stack ShardedOp::view_model(const Frame& frame, const Decision& decision) {
  if (dispatch_.runtime().processes() == 1 || !info_->gives_views()) return {};
  const auto& mine =
      frame.argument_operands[static_cast<std::size_t>(info_->returns[0].viewed_argument)];
  const ShardedView* base = frame.views[static_cast<std::size_t>(mine.at(0))];
  if (base == nullptr) return {};
  const at::Tensor& tensor = frame.tensors[static_cast<std::size_t>(mine[0])];
  bool untold = strides_are_untold(frame.mesh, shape_of(tensor), base->dims());
  for (std::size_t o = 0; o < decision.output_dims.size() && !untold; ++o)
    untold =
        strides_are_untold(frame.mesh, output_extents(decision.rule, o), *decision.output_dims[o]);
  if (!untold) return {};
  torch::jit::Stack model(frame.arguments, frame.arguments + info_->arguments.size());
  model[static_cast<std::size_t>(info_->returns[0].viewed_argument)] =
      at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
  return model;
}

void ShardedOp::take_strides(const c10::OperatorHandle& op, torch::jit::Stack model,
                             const torch::jit::Stack& stack) {
  at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(&model);
  const auto take = [](const at::Tensor& wrapper, const at::Tensor& like) {
    if (sharded_view(wrapper) != nullptr && wrapper.sizes() == like.sizes())
      wrapper.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  };
  for (std::size_t r = 0; r < model.size(); ++r) {
    const c10::IValue& mine = stack[stack.size() - model.size() + r];
    if (model[r].isTensor()) take(mine.toTensor(), model[r].toTensor());
    if (!model[r].isTensorList()) continue;
    const auto list = mine.toTensorVector(), likes = model[r].toTensorVector();
    for (std::size_t i = 0; i < list.size(); ++i) take(list[i], likes.at(i));
  }
}

void ShardedOp::add_stand_ins(const Frame& frame, const Decision& decision,
                              std::vector<Shards>& locals) {
  for (std::size_t i = 0; i < locals.size(); ++i) {
    if (locals[i].empty()) continue;
    locals[i].push_back(at::empty(
        shard_shape(frame.mesh, shape_of(frame.tensors[i]), decision.placement.operands[i], 0),
        locals[i][0].options().device(at::kMeta)));
  }
}

void ShardedOp::remove_stand_ins(std::vector<Shards>& locals, Results& results) {
  for (auto* lists : {&locals, &results.tensors}) {
    for (Shards& shards : *lists) {
      if (!shards.empty()) shards.pop_back();
    }
  }
}

void ShardedOp::run_on_device(const c10::OperatorHandle& op, torch::jit::Stack& local,
                              bool meta) const {
  if (info_->name == "aten::view" || info_->name == "aten::_unsafe_view") {
    at::Tensor result = at::reshape(local[0].toTensor(), local[1].toIntVector());
    local.clear();
    local.emplace_back(std::move(result));
    return;
  }
  if (info_->name == "aten::new_empty_strided") {
    local[2] = dense_strides_like(local[1].toIntVector(), local[2].toIntVector());
  }
  this->call(op, local, meta);
}

void ShardedOp::view_as_result(const Frame& frame, const Decision& decision, std::int64_t position,
                               torch::jit::Stack& local) {
  const Shape global = output_extents(decision.rule, 0);
  const Shape shape = shard_shape(frame.mesh, global, decision.placement.outputs[0], position);
  at::Tensor result = at::reshape(local[0].toTensor(), shape);
  if (info_->returns[0].viewed_argument < 0)
    result = result.clone();  // squeeze_copy owns its values
  local.clear();
  local.emplace_back(std::move(result));
}

void ShardedOp::run_aside(Frame& frame, torch::jit::Stack& stack) {
  torch::jit::Stack call(frame.arguments, frame.arguments + info_->arguments.size());
  for_written(frame, [&](std::size_t operand) {
    keep_type(*info_->functional, call, frame.tensors[operand]);
  });
  info_->functional->callBoxed(&call);
  std::size_t next = 0;
  std::vector<at::Tensor> originals;
  for_written(frame, [&](std::size_t operand) {
    const at::Tensor value = call[next++].toTensor();
    check_cast(value, frame.tensors[operand]);
    TORCH_CHECK(!(value.is_floating_point() && frame.tensors[operand].is_complex()), "In-place ",
                info_->name.substr(6), " is not supported for complex tensors.");  // abs_
    assign(frame, operand, value);
    written(*frame.views[operand]);
    originals.push_back(frame.tensors[operand]);
  });
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(info_->arguments.size()), stack.end());
  for (std::size_t r = 0; r < info_->returns.size(); ++r) stack.emplace_back(originals.at(r));
}

}  // namespace meshtorch
