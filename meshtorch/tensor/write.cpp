// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/write.h>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

// Points the wrapper at new locals laid out as `like`, one made from each of its locals.
template <class Make>
void adopt(const at::Tensor& wrapper, const ShardedView& like, Make make) {
  Shards locals;
  for (std::size_t d = 0; d < like.locals().size(); ++d) {
    const at::Tensor& local = like.locals()[d];
    const bool repeats = like.meta() && d > 0 && local.is_same(like.locals()[d - 1]);
    locals.push_back(repeats ? locals.back() : make(local));
  }
  if (like.meta()) share_equal(locals);
  auto allocation = std::make_shared<Allocation>();
  allocation->unreduced = like.unreduced();
  allocation->content = Allocation::Content::zeros;
  allocation->backward_buffer = sharded_view(wrapper)->allocation()->backward_buffer;
  rebind(wrapper, shape_of(wrapper),
         c10::make_intrusive<ShardedView>(like.mesh(), like.shared_dims(), std::move(locals),
                                          allocation));
}

// Zeroes the whole storage that a local tensor is a view of.
void zero_storage(const at::Tensor& local) {
  const auto bytes = static_cast<std::int64_t>(local.storage().nbytes());
  at::empty({0}, local.options())
      .set_(local.storage(), 0, {bytes / static_cast<std::int64_t>(local.element_size())}, {1})
      .zero_();
}

// `result` on top of the stack instead of the op's arguments.
void replace_arguments(torch::jit::Stack& stack, std::size_t arguments, const at::Tensor& result) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(arguments), stack.end());
  stack.emplace_back(result);
}

double alpha_of(const Frame& frame) {
  const int position = frame.info.argument("alpha");
  return position < 0 ? 1.0 : frame.arguments[position].toScalar().toDouble();
}

}  // namespace

bool fresh(const ShardedView& view) {
  return view.allocation()->content != Allocation::Content::value && !view.allocation()->placed;
}

bool unaliased(const ShardedView& view) {
  return view.allocation().use_count() == 1 &&
         c10::raw::intrusive_ptr::use_count(const_cast<ShardedView*>(&view)) == 1;
}

void check_writable(const OpInfo& info, const std::string& operand, const at::Tensor& tensor) {
  at::assert_no_internal_overlap(tensor);
  const ShardedView& view = *sharded_view(tensor);
  Allocation& allocation = *view.allocation();
  auto refuse = [&](const std::string& what) {
    fail({.op = info.name,
          .where = operand,
          .what = what,
          .remedy = "reshard the base first so that the view is local, or clone() the view"});
  };
  if (view.source() != nullptr && !view.source()->stored().defined()) {
    fail({.op = info.name,
          .where = operand,
          .what = "writes through a view of a parameter that is stored in parts",
          .remedy = "write the parameter itself"});
  }
  const auto& bases = allocation.copy_of;
  if (std::any_of(bases.begin(), bases.end(), [](const auto& base) { return !base.expired(); })) {
    refuse("writes through a view that had to communicate (" + allocation.copied_by +
           "), so its base would not see it");
  }
  for (const auto& copy : allocation.copied_views) {
    if (auto alive = copy.lock()) {
      refuse("writes to the base of a view that had to communicate (" + alive->copied_by +
             ") and is still alive, so the view would not see it");
    }
  }
  allocation.copied_views.clear();
}

void check_cast(const at::Tensor& value, const at::Tensor& to) {
  TORCH_CHECK(c10::canCast(value.scalar_type(), to.scalar_type()), "result type ",
              value.scalar_type(), " can't be cast to the desired output type ", to.scalar_type());
}

void keep_type(const c10::OperatorHandle& functional, torch::jit::Stack& call,
               const at::Tensor& to) {
  const auto& arguments = functional.schema().arguments();
  for (std::size_t i = 0; i < call.size(); ++i) {
    if (arguments[i].name() == "dtype" && call[i].isNone())
      call[i] = static_cast<std::int64_t>(to.scalar_type());
  }
}

void written(ShardedView& view) {
  ++view.allocation()->version;
  view.allocation()->content = Allocation::Content::value;
  if (view.source() != nullptr) view.source()->written(view.locals());
}

namespace {

// Views of a plain tensor, or the tensor they view: changing what one handle is would part them.
bool shares_storage(const at::Tensor& plain) {
  return plain.has_storage() && plain.storage().use_count() > 1;
}

void refuse_plain(const Runtime& runtime, const Frame& frame, std::size_t operand) {
  if (runtime.mode() != Mode::strict) return;
  fail({.op = frame.info.name,
        .where = frame.operand_name(operand),
        .what = "strict mode: a plain tensor is written with a sharded operand (" +
                frame.layouts() + ")",
        .remedy = "device_put or replicate it first"});
}

// A sharded tensor of its own, replicated.
at::Tensor on_every_device(Runtime& runtime, const Frame& frame, const at::Tensor& plain) {
  Shards locals;
  for (std::size_t d = 0; d < runtime.communicator().addressable(frame.mesh).size(); ++d) {
    locals.push_back(frame.meta ? without_values(plain) : plain.detach().clone());
  }
  if (frame.meta) share_equal(locals);
  return wrap(frame.mesh, shape_of(plain), Layout::replicated(plain.dim()), std::move(locals));
}

at::Tensor gathered(const Frame& frame, std::size_t operand) {
  if (frame.views[operand] == nullptr) return frame.tensors[operand];
  const Shape shape = shape_of(frame.tensors[operand]);
  return redistribute(*frame.views[operand], shape,
                      Layout::replicated(static_cast<std::int64_t>(shape.size())),
                      {frame.info.name, Origin::implied, frame.operand_name(operand)}, true)
      .front();
}

}  // namespace

bool run_on_plain_views(const c10::OperatorHandle& op, Runtime& runtime, Frame& frame,
                        torch::jit::Stack& stack) {
  bool found = false;
  for (std::size_t i = 0; i < frame.info.arguments.size(); ++i) {
    if (!frame.info.arguments[i].written) continue;
    for (const int operand : frame.argument_operands[i]) {
      const auto index = static_cast<std::size_t>(operand);
      if (frame.views[index] != nullptr) return false;
      if (!frame.tensors[index].defined() || !shares_storage(frame.tensors[index])) continue;
      refuse_plain(runtime, frame, index);
      found = true;
    }
  }
  if (!found) return false;
  if (frame.meta)
    fail_without_values(frame.info.name, frame.layouts(),
                        "writes a part of a plain tensor, which has values");
  torch::jit::Stack call;
  for (std::size_t i = 0; i < frame.info.arguments.size(); ++i) {
    const auto& mine = frame.argument_operands[i];
    const c10::IValue& given = frame.arguments[i];
    if (given.isTensor()) {
      call.emplace_back(gathered(frame, static_cast<std::size_t>(mine[0])));
    } else if (given.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const int operand : mine)
        list.push_back(gathered(frame, static_cast<std::size_t>(operand)));
      call.emplace_back(std::move(list));
    } else if (!mine.empty() && !given.isNone()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const int operand : mine) {
        const auto index = static_cast<std::size_t>(operand);
        list.push_back(frame.tensors[index].defined() ? std::optional(gathered(frame, index))
                                                      : std::nullopt);
      }
      call.emplace_back(std::move(list));
    } else {
      call.push_back(given);
    }
  }
  op.callBoxed(&call);
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame.info.arguments.size()), stack.end());
  for (auto& result : call) stack.push_back(std::move(result));
  return true;
}

void convert_plain_destinations(Runtime& runtime, Frame& frame) {
  for (std::size_t i = 0; i < frame.info.arguments.size(); ++i) {
    if (!frame.info.arguments[i].written) continue;
    for (const int operand : frame.argument_operands[i]) {
      const auto index = static_cast<std::size_t>(operand);
      const at::Tensor& plain = frame.tensors[index];
      if (frame.views[index] != nullptr || !plain.defined()) continue;
      refuse_plain(runtime, frame, index);
      convert(plain, on_every_device(runtime, frame, plain));
      frame.views[index] = sharded_view(plain);
    }
  }
}

void adopt_accumulation(Frame& frame) {
  if (frame.info.name != "aten::add_.Tensor" || alpha_of(frame) != 1.0) return;
  ShardedView* destination = frame.views[0];
  const ShardedView* addend = frame.views[1];
  if (addend == nullptr || destination->allocation()->placed ||
      frame.tensors[0].sizes() != frame.tensors[1].sizes()) {
    return;
  }
  if (destination->allocation()->content == Allocation::Content::zeros && unaliased(*destination)) {
    if (destination->layout() != addend->layout()) {
      const auto dtype = frame.tensors[0].scalar_type();
      adopt(frame.tensors[0], *addend, [&](const at::Tensor& local) {
        return at::zeros_like(local, local.options().dtype(dtype));
      });
      frame.views[0] = sharded_view(frame.tensors[0]);
    }
    return;
  }
  const AxisSet axes =
      addend->unreduced() - destination->unreduced() - destination->layout().sharded();
  if (axes.empty()) return;
  const auto& positions = Runtime::current().communicator().addressable(frame.mesh);
  for (std::size_t d = 0; d < positions.size() && !destination->meta(); ++d) {
    if (frame.mesh.group_rank(positions[d], ordered(axes)) != 0)
      zero_storage(destination->locals()[d]);
  }
  destination->allocation()->unreduced = destination->unreduced() | axes;
}

void assign(const Frame& frame, std::size_t operand, const at::Tensor& value) {
  ShardedView& destination = *frame.views[operand];
  const Layout layout = destination.layout();
  const Shape shape = shape_of(frame.tensors[operand]);
  ShardedView* source = sharded_view(value);
  const Cause cause{
      .op = frame.info.name, .origin = Origin::implied, .where = frame.operand_name(operand)};
  const Shards locals = source ? redistribute(*source, shape, layout, cause)
                               : place(value, frame.mesh, layout, destination.meta());
  if (destination.meta()) return;  // nothing to write
  for (std::size_t d = 0; d < locals.size(); ++d) destination.locals()[d].copy_(locals[d]);
}

void run_copy(Frame& frame, torch::jit::Stack& stack) {
  const at::Tensor self = frame.tensors[0];
  at::Tensor source = frame.tensors[1];
  check_writable(frame.info, "self", self);
  const ShardedView* from = frame.views[1];
  const bool same = self.sizes() == source.sizes();
  if (from != nullptr && same && fresh(*frame.views[0]) && unaliased(*frame.views[0])) {
    // In the memory order of the buffer, so that what can be viewed of it stays so.
    adopt(self, *from, [&](const at::Tensor& local) {
      return at::empty_strided(local.sizes(), dense_strides_like(shape_of(local), self.strides()),
                               local.options().dtype(self.scalar_type()))
          .copy_(local);
    });
  } else {
    if (!same) source = source.expand(self.sizes());
    assign(frame, 0, source);
  }
  written(*sharded_view(self));
  replace_arguments(stack, frame.info.arguments.size(), self);
}

void run_fill(const c10::OperatorHandle& op, Frame& frame, torch::jit::Stack& stack) {
  const at::Tensor self = frame.tensors[0];
  ShardedView& view = *frame.views[0];
  check_writable(frame.info, "self", self);
  const bool zero = frame.info.arguments.size() == 1;
  c10::IValue value = zero ? c10::IValue() : frame.arguments[1];
  if (frame.tensors.size() > 1 && frame.views[1] != nullptr) {
    value = redistribute(*frame.views[1], shape_of(frame.tensors[1]),
                         Layout::replicated(frame.tensors[1].dim()),
                         {frame.info.name, Origin::implied, "value"})
                .front();
  }
  const AxisList unreduced = ordered(view.unreduced());
  const auto& positions = Runtime::current().communicator().addressable(frame.mesh);
  for (std::size_t d = 0; d < positions.size() && !view.meta(); ++d) {
    if (!unreduced.empty() && frame.mesh.group_rank(positions[d], unreduced) != 0) {
      view.locals()[d].zero_();
      continue;
    }
    torch::jit::Stack local{view.locals()[d]};
    if (!zero) local.push_back(value);
    op.callBoxed(&local);
  }
  written(view);
  if (zero && unaliased(view)) view.allocation()->content = Allocation::Content::zeros;
  replace_arguments(stack, frame.info.arguments.size(), self);
}

namespace {

[[noreturn]] void refuse_resize(const Frame& frame, std::size_t operand) {
  fail({.op = frame.info.name,
        .where = frame.operand_name(operand),
        .what = "a sharded tensor " + describe(frame.tensors[operand]) +
                " cannot change its size in place",
        .remedy = "make a new tensor"});
}

// t_, unsqueeze_ and the like: the handle becomes a view of what it was.
void change_shape(Frame& frame) {
  const at::Tensor& self = frame.tensors[0];
  if (!frame.info.functional) refuse_resize(frame, 0);
  torch::jit::Stack call(frame.arguments, frame.arguments + frame.info.arguments.size());
  frame.info.functional->callBoxed(&call);
  const at::Tensor result = call.back().toTensor();
  ShardedView* view = sharded_view(result);
  if (view->allocation() != frame.views[0]->allocation()) {
    fail({.op = frame.info.name,
          .where = "self",
          .what =
              "changes the shape in place, but " + describe(self) + " needs communication for it",
          .remedy = "use the out-of-place op"});
  }
  rebind(self, shape_of(result), c10::intrusive_ptr<ShardedView>::reclaim_copy(view));
}

// The handle becomes a view of all of the source.
void set_source(Frame& frame) {
  const at::Tensor &self = frame.tensors[0], &source = frame.tensors[1];
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "Could not set tensor of type ",
              source.scalar_type(), " to a tensor of type ", self.scalar_type());
  if (frame.views[1] == nullptr) {
    fail({.op = frame.info.name,
          .where = "source",
          .what = "is plain, and " + describe(self) + " is not",
          .remedy = "device_put it first"});
  }
  rebind(self, shape_of(source), c10::intrusive_ptr<ShardedView>::reclaim_copy(frame.views[1]));
}

std::vector<at::Tensor> flattened(const torch::jit::Stack& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& result : results) {
    if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) tensors.push_back(tensor);
    } else {
      tensors.push_back(result.toTensor());
    }
  }
  return tensors;
}

// Brings a result into an out= argument: into its elements where the sizes are the same, else the handle
// becomes the result. That would part it from what shares its memory.
void receive(Frame& frame, std::size_t operand, at::Tensor value) {
  const at::Tensor& out = frame.tensors[operand];
  ShardedView* view = frame.views[operand];
  check_cast(value, out);
  const bool same = out.sizes() == value.sizes();
  if (view == nullptr) {
    if (Runtime::current().mode() == Mode::strict) {
      fail({.op = frame.info.name,
            .where = frame.operand_name(operand),
            .what = "strict mode: a plain out= receives " + describe(value),
            .remedy = "use the op without out="});
    }
    if (!shares_storage(out)) {
      convert(out, value.to(out.scalar_type()));
    } else if (same) {
      out.copy_(value);
    } else {
      refuse_resize(frame, operand);
    }
  } else if (same) {
    assign(frame, operand, value);
    written(*view);
  } else {
    if (!unaliased(*view)) refuse_resize(frame, operand);
    value = value.to(out.scalar_type());
    if (sharded_view(value) == nullptr) value = on_every_device(Runtime::current(), frame, value);
    rebind(out, shape_of(value),
           c10::intrusive_ptr<ShardedView>::reclaim_copy(sharded_view(value)));
  }
}

}  // namespace

void run_metadata(const c10::OperatorHandle&, Frame& frame, torch::jit::Stack& stack) {
  const at::Tensor self = frame.tensors[0];
  const std::size_t arguments = frame.info.arguments.size();
  if (frame.info.name == "aten::set_.source_Tensor") {
    set_source(frame);
  } else if (frame.info.name.rfind("aten::resize_", 0) == 0) {
    const c10::IValue& size = frame.arguments[1];
    const Shape wanted = size.isTensor() ? shape_of(size.toTensor()) : size.toIntVector();
    if (self.sizes() != at::IntArrayRef(wanted)) refuse_resize(frame, 0);
  } else {
    change_shape(frame);
  }
  replace_arguments(stack, arguments, self);
}

void run_out(Frame& frame, torch::jit::Stack& stack) {
  const std::size_t count = frame.info.arguments.size();
  if (!frame.info.functional) {
    fail({.op = frame.info.name,
          .where = "out",
          .what = "has no functional form to run sharded",
          .remedy = "use the op without out="});
  }
  torch::jit::Stack call;
  std::vector<std::size_t> outputs;  // operands, in schema order
  for (std::size_t i = 0; i < count; ++i) {
    if (!frame.info.arguments[i].written) {
      call.push_back(frame.arguments[i]);
      continue;
    }
    for (const int operand : frame.argument_operands[i])
      outputs.push_back(static_cast<std::size_t>(operand));
  }
  for (const std::size_t out : outputs) {
    if (frame.views[out] != nullptr)
      check_writable(frame.info, frame.operand_name(out), frame.tensors[out]);
  }
  keep_type(*frame.info.functional, call, frame.tensors[outputs.at(0)]);
  // Above the autograd keys again: out= ops are not differentiated, and neither is this.
  frame.info.functional->callBoxed(&call);
  const std::vector<at::Tensor> values = flattened(call);
  TORCH_CHECK(values.size() == outputs.size(), frame.info.name, ": expected ", values.size(),
              " out tensors but got ", outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) receive(frame, outputs[i], values[i]);
  std::vector<at::Tensor> returned;
  for (const ReturnInfo& result : frame.info.returns) {
    const auto& mine = frame.argument_operands[static_cast<std::size_t>(result.written_argument)];
    returned.push_back(frame.tensors[static_cast<std::size_t>(mine.at(0))]);
  }
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (at::Tensor& tensor : returned) stack.emplace_back(std::move(tensor));
}

}  // namespace meshtorch
