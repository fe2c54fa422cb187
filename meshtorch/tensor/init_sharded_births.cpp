// SPDX-License-Identifier: Apache-2.0
//
// The second pass of init_sharded.
#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/init_sharded_calls.h>
#include <meshtorch/tensor/init_sharded_ops.h>
#include <meshtorch/tensor/kernel.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {
namespace {

// The devices' parts, without values. Summands beside the first of an unreduced one are zeros.
at::Tensor sharded_empty(const Mesh& mesh, const Shape& shape, const Layout& layout,
                         at::ScalarType dtype) {
  const use_scope use(Use::parameters);
  Shards locals;
  for (const std::int64_t position : Runtime::current().communicator().addressable(mesh)) {
    const device_scope device(mesh.devices()[static_cast<std::size_t>(position)]);
    const Shape part = shard_shape(mesh, shape, layout, position);
    locals.push_back(layout.unreduced.empty() ? at::empty(part, dtype) : at::zeros(part, dtype));
  }
  at::Tensor made = wrap(mesh, shape, layout, std::move(locals));
  sharded_view(made)->allocation()->placed = true;
  return made;
}

// What the factory does with its fresh memory.
void fill(const at::Tensor& made, const std::string& factory, const c10::OperatorHandle& op,
          torch::jit::Stack& stack) {
  const c10::IValue* given = find_argument(op, stack, "generator");
  const auto generator = given != nullptr && !given->isNone() ? std::optional(given->toGenerator())
                                                              : std::optional<at::Generator>();
  if (factory == "aten::zeros") made.zero_();
  if (factory == "aten::ones") made.fill_(1);
  if (factory == "aten::full") made.fill_(find_argument(op, stack, "fill_value")->toScalar());
  if (factory == "aten::rand") made.uniform_(0, 1, generator);
  if (factory == "aten::randn") made.normal_(0, 1, generator);
}

void replace_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                       const at::Tensor& result) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()),
              stack.end());
  stack.emplace_back(result);
}

}  // namespace

void InitCalls::run_second(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::string name = full_name(op);
  if (next_ == calls_.size() || calls_[next_].name != name) fail_for_order(name);
  const Call& call = calls_[next_++];
  if (call.birth && call.birth->mesh) return give_birth(*call.birth, op, stack);
  if (call.views && calls_[*call.views].birth->mesh) return look(call, op, stack);
  if (!rows_.empty() && fill_row(op, stack)) return;
  op.callBoxed(&stack);
}

void InitCalls::give_birth(const Birth& birth, const c10::OperatorHandle& op,
                           torch::jit::Stack& stack) {
  const c10::IValue* size = find_argument(op, stack, "size");
  if (size->isIntList() && size->toIntVector() != birth.shape) {
    fail({.op = "init_sharded",
          .where = "make",
          .what = text("made a tensor [", join(size->toIntVector()),
                       "] in its second run where the first made [", join(birth.shape), "]"),
          .remedy = "let it make the same tree every time"});
  }
  const at::Tensor made = sharded_empty(*birth.mesh, birth.shape, birth.layout, birth.dtype);
  fill(made, op.operator_name().name, op, stack);
  replace_arguments(op, stack, made);
}

void InitCalls::look(const Call& call, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  c10::IValue* arguments = arguments_of(op, stack);
  at::Tensor sharded;
  std::int64_t dim = 0, index = 0;
  for (std::size_t i = 0; i < op.schema().arguments().size(); ++i) {
    if (!arguments[i].isTensor() || sharded_view(arguments[i].toTensor()) == nullptr) continue;
    sharded = arguments[i].toTensor();
    arguments[i] =
        at::empty_strided(sharded.sizes(), sharded.strides(), sharded.options().device(at::kMeta));
  }
  if (call.fills_row) {
    dim = at::maybe_wrap_dim(arguments[1].toInt(), sharded.dim());
    index = arguments[2].toInt();
    if (index < 0) index += sharded.size(dim);
  }
  op.callBoxed(&stack);
  if (!call.fills_row) return;
  stand_ins_.push_back(stack.back().toTensor());
  rows_.insert_or_assign(stand_ins_.back().unsafeGetTensorImpl(), Row{sharded, dim, index});
}

bool InitCalls::fill_row(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  if (count == 0 || !stack[stack.size() - count].isTensor()) return false;
  const at::Tensor self = stack[stack.size() - count].toTensor();
  const auto found = rows_.find(self.unsafeGetTensorImpl());
  if (found == rows_.end()) return false;
  const auto& [sharded, dim, index] = found->second;
  const c10::IValue* value = find_argument(op, stack, "value");
  const at::Scalar number = value != nullptr ? value->toScalar() : at::Scalar(0);
  const ShardedView& view = *sharded_view(sharded);
  const auto& positions = Runtime::current().communicator().addressable(view.mesh());
  for (std::size_t d = 0; d < positions.size(); ++d) {
    const Interval held = shard_box(view.mesh(), shape_of(sharded), view.layout(),
                                    positions[d])[static_cast<std::size_t>(dim)];
    if (index < held.begin || index >= held.end) continue;
    const bool first = view.mesh().group_rank(positions[d], ordered(view.unreduced())) == 0;
    view.locals()[d].select(dim, index - held.begin).fill_(first ? number : at::Scalar(0));
  }
  replace_arguments(op, stack, self);
  return true;
}

}  // namespace meshtorch
