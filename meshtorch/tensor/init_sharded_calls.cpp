// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/init_sharded_calls.h>

#include <ATen/ATen.h>

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/init_sharded_ops.h>
#include <meshtorch/tensor/init_sharded_stream.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {
namespace {

template <class Each>
void for_each_tensor(const c10::IValue& value, Each each) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) each(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, each);
  }
}

[[noreturn]] void fail_for_values(const c10::OperatorHandle& op) {
  fail({.op = "init_sharded",
        .where = full_name(op),
        .what = "needs values, and in the maker's first run there are only shapes",
        .remedy = "make what it reads with a device of its own: torch::device(torch::kCPU)"});
}

}  // namespace

InitCalls::Scope::Scope(InitCalls& calls, Pass pass)
    : mode_(c10::DispatchKeySet(c10::DispatchKey::TESTING_ONLY_GenericMode)) {
  if (current_ != nullptr) {
    fail({.op = "init_sharded",
          .where = "make",
          .what = "calls init_sharded",
          .remedy = "make the whole tree in one"});
  }
  calls.pass_ = pass;
  calls.next_ = 0;
  current_ = &calls;
}

void InitCalls::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  pass_ == Pass::first ? run_first(op, stack) : run_second(op, stack);
}

// The first pass

void InitCalls::run_first(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  calls_.push_back({.name = full_name(op)});
  const bool factory = is_factory(op, stack);
  if (factory) *find_argument(op, stack, "device") = at::Device(at::kMeta);
  Operands operands;
  const auto* arguments = arguments_of(op, stack);
  for (std::size_t i = 0; i < op.schema().arguments().size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& x) { operands.push_back(x); });
  judge(op, operands);
  if (std::ranges::any_of(operands, [](const at::Tensor& x) { return x.is_meta(); })) {
    run_on_meta(op, stack);
  } else {
    op.callBoxed(&stack);
  }
  for (std::size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i)
    for_each_tensor(stack[i], [&](const at::Tensor& x) { note_result(op, operands, x, factory); });
}

// Beside meta tensors there are only such: others lose their values, in the first pass.
void InitCalls::give_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
  c10::IValue* arguments = arguments_of(op, stack);
  for (std::size_t i = 0; i < op.schema().arguments().size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor tensor = arguments[i].toTensor();
    if (tensor.is_meta() || sharded_view(tensor) != nullptr) continue;
    if (alias == nullptr || !alias->isWrite()) {
      arguments[i] = without_values(tensor);
    } else if (makers_.contains(tensor.storage().unsafeGetStorageImpl())) {
      convert(tensor, without_values(tensor));
    } else {  // it is not the maker's
      fail_for_values(op);
    }
  }
}

void InitCalls::run_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
  if (reads_values(op)) fail_for_values(op);
  give_meta(op, stack);
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    fail_for_values(op);
  }
}

std::optional<std::size_t> InitCalls::owner(const at::Tensor& tensor) const {
  if (sharded_view(tensor) != nullptr || !tensor.has_storage()) return std::nullopt;
  const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
  return found == storages_.end() ? std::nullopt : std::optional(found->second);
}

bool InitCalls::is_whole(const at::Tensor& tensor, std::size_t birth) const {
  return !views_.contains(tensor.unsafeGetTensorImpl()) && tensor.storage_offset() == 0 &&
         tensor.sizes() == at::IntArrayRef(calls_[birth].birth->shape) && tensor.is_contiguous();
}

void InitCalls::forbid(std::size_t birth, const std::string& op) {
  if (calls_[birth].birth->whole.empty()) calls_[birth].birth->whole = op;
}

void InitCalls::judge(const c10::OperatorHandle& op, const Operands& operands) {
  if (full_name(op) == "aten::copy_") return judge_copy(operands);
  for (const at::Tensor& x : operands) {
    const auto birth = owner(x);
    if (!birth) continue;
    if (const auto view = views_.find(x.unsafeGetTensorImpl()); view != views_.end()) {
      judge_view(op, view->second, operands);
      continue;
    }
    const bool in_pieces = !draws_normals(op) || normals_in_pieces(x.scalar_type());
    const bool exact = is_exact(op) && operands.size() == 1 && in_pieces;
    const bool fine = is_whole(x, *birth) && (exact || copies_or_measures(op) || gives_view(op));
    if (!fine) forbid(*birth, full_name(op));
  }
}

void InitCalls::judge_view(const c10::OperatorHandle& op, const View& view,
                           const Operands& operands) {
  if (view.row && fills(op) && operands.size() == 1) {
    calls_[view.call].fills_row = true;
  } else if (!gives_view(op)) {
    forbid(view.birth, full_name(op));
  }
}

// Into a whole tensor from anything; out of one only into another of its shape, which then is
// sharded.
void InitCalls::judge_copy(const Operands& operands) {
  const at::Tensor &to = operands[0], &from = operands[1];
  const auto target = owner(to), source = owner(from);
  const bool whole_target = target && is_whole(to, *target);
  const bool whole_source = source && is_whole(from, *source);
  if (target && !whole_target) forbid(*target, "aten::copy_");
  if (!source) return;
  if (whole_target && whole_source && to.sizes() == from.sizes()) {
    copies_.emplace_back(*target, *source);
  } else {
    forbid(*source, "aten::copy_");
  }
}

void InitCalls::note_result(const c10::OperatorHandle& op, const Operands& operands,
                            const at::Tensor& result, bool factory) {
  if (sharded_view(result) != nullptr || !result.has_storage()) return;
  const std::size_t call = calls_.size() - 1;
  const auto* handle = result.unsafeGetTensorImpl();
  const auto* storage = result.storage().unsafeGetStorageImpl();
  const auto is_operand = [&](const at::Tensor& x) { return x.is_same(result); };
  if (std::ranges::any_of(operands, is_operand)) return;
  const bool reads = copies_or_measures(op);
  if (const auto known = storages_.find(storage); known != storages_.end()) {
    if (reads) return;
    calls_[call].views = known->second;
    const bool row = full_name(op) == "aten::select.int" && is_whole(operands[0], known->second);
    views_.insert_or_assign(handle,
                            View{.call = call,
                                 .birth = known->second,
                                 .row = row,
                                 .handle = decltype(View::handle)(result.getIntrusivePtr())});
    return;
  }
  kept_storages_.push_back(result.storage().getWeakStorageImpl());
  const bool in_pieces = !draws_normals(op) || normals_in_pieces(result.scalar_type());
  if (factory && result.is_contiguous() && in_pieces) {
    kept_handles_.emplace_back(result.getIntrusivePtr());
    calls_[call].birth = Birth{.shape = shape_of(result), .dtype = result.scalar_type()};
    storages_[storage] = handles_[handle] = call;
  } else if (const auto source = operands.empty() ? std::nullopt : owner(operands[0]);
             reads && source) {
    if (!in_pieces) forbid(*source, full_name(op));
    storages_[storage] = *source;
  } else {
    makers_[storage] = full_name(op);
  }
}

// Between the passes

std::map<std::size_t, Shape> InitCalls::births() {
  for (const auto& [handle, view] : views_) {  // one that the tree keeps must be real
    if (view.handle.use_count() > 0) forbid(view.birth, calls_[view.call].name);
  }
  std::map<std::size_t, Shape> births;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].birth && calls_[i].birth->whole.empty()) births[i] = calls_[i].birth->shape;
  }
  return births;
}

std::vector<std::size_t> InitCalls::births_of(const at::Tensor& leaf) const {
  std::vector<std::size_t> births;
  const auto add = [&](std::size_t birth) {
    const Birth& of = *calls_[birth].birth;
    if (of.whole.empty() && leaf.sizes() == at::IntArrayRef(of.shape)) births.push_back(birth);
  };
  if (const auto made = handles_.find(leaf.unsafeGetTensorImpl()); made != handles_.end())
    add(made->second);
  if (const auto birth = owner(leaf)) add(*birth);
  return births;
}

void InitCalls::shard(std::size_t birth, const Mesh& mesh, const Layout& layout) {
  calls_[birth].birth->mesh = mesh;
  calls_[birth].birth->layout = layout;
}

void InitCalls::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [to, from] : copies_) {
      if (calls_[to].birth->mesh || !calls_[from].birth->mesh) continue;
      calls_[from].birth->mesh.reset();
      changed = true;
    }
  }
}

std::string InitCalls::reason(const at::Tensor& leaf) const {
  if (const auto birth = owner(leaf)) return calls_[*birth].birth->whole;
  if (sharded_view(leaf) != nullptr || !leaf.has_storage()) return "";
  const auto maker = makers_.find(leaf.storage().unsafeGetStorageImpl());
  return maker == makers_.end() ? "" : maker->second;
}

void InitCalls::fail_for_order(const std::string& now) const {
  const bool over = next_ == calls_.size();
  fail({.op = "init_sharded",
        .where = "make",
        .what = text("called ", now, " in its second run where the first ",
                     over ? "was over" : "called " + calls_[next_].name),
        .remedy = "let it make the same tree every time"});
}

void InitCalls::check_ended() const {
  if (next_ != calls_.size()) fail_for_order("nothing");
}

}  // namespace meshtorch
