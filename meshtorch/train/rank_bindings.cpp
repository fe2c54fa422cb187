// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_bindings.h>

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace meshtorch {
namespace {

// All but the version counter and what autograd knows.
void put(const at::Tensor& handle, const at::Tensor& value) {
  handle.unsafeGetTensorImpl()->shallow_copy_from(value.getIntrusivePtr());
}

at::Tensor content_of(const at::Tensor& handle) {
  return at::Tensor(handle.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

std::uint32_t version_of(const at::Tensor& handle) {
  return handle.is_inference() ? 0 : static_cast<std::uint32_t>(handle._version());
}

}  // namespace

// A fresh one is that of a tensor that nothing was done with.
struct RankBindings::Life {
  void swap_with(const at::Tensor& tensor) {
    swap_versions(*tensor.unsafeGetTensorImpl());
    auto& meta = *torch::autograd::impl::materialize_autograd_meta(tensor);
    std::swap(gradient, meta.grad_);
    std::swap(function, meta.grad_fn_);
    std::swap(accumulator, meta.grad_accumulator_);
    std::swap(forward, meta.fw_grad_);
    std::swap(hooks, meta.hooks_);
    std::swap(hooks_list, meta.cpp_hooks_list_);
    std::swap(after, meta.post_acc_grad_hooks_);
    std::swap(requires_grad, meta.requires_grad_);
    std::swap(retains_grad, meta.retains_grad_);
    std::swap(is_view, meta.is_view_);
    std::swap(output, meta.output_nr_);
  }

  // What one rank writes another's graph does not see.
  void swap_versions(c10::TensorImpl& tensor) {
    if (tensor.is_inference()) return;
    const c10::VariableVersion theirs = tensor.version_counter();
    tensor.set_version_counter(version);
    version = theirs;
  }

  c10::VariableVersion version{0};
  at::Tensor gradient;
  c10::intrusive_ptr<torch::autograd::Node> function;
  c10::weak_intrusive_ptr<torch::autograd::Node> accumulator{
      c10::intrusive_ptr<torch::autograd::Node>()};
  std::shared_ptr<torch::autograd::ForwardGrad> forward;
  std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>> hooks;
  std::shared_ptr<torch::autograd::hooks_list> hooks_list;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> after;
  bool requires_grad = false, retains_grad = false, is_view = false;
  std::uint32_t output = 0;
};

RankBindings::~RankBindings() = default;

RankBindings::RankBindings(std::vector<at::Tensor> handles,
                           std::vector<std::vector<at::Tensor>> values)
    : handles_(std::move(handles)), values_(std::move(values)), lives_(values_.size()) {
  for (auto& rank : lives_) rank.resize(handles_.size());
  settle();
}

void RankBindings::settle() {
  versions_.clear();
  for (const at::Tensor& handle : handles_) versions_.push_back(version_of(handle));
}

void RankBindings::see_writes() {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    if (version_of(handles_[i]) == versions_[i]) continue;
    for (auto& rank : lives_) rank[i].version.bump();
  }
  settle();
}

void RankBindings::enter(std::size_t rank) {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    put(handles_[i], values_[rank][i]);
    lives_[rank][i].swap_with(handles_[i]);
  }
}

void RankBindings::leave(std::size_t rank) {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    put(values_[rank][i], handles_[i]);  // an op in place may have laid it out anew
    lives_[rank][i].swap_with(handles_[i]);
  }
}

RankBindings::Loan::Loan(RankBindings& bindings) : bindings_(bindings) {
  bindings.see_writes();
  for (const at::Tensor& handle : bindings.handles_) before_.push_back(content_of(handle));
}

RankBindings::Loan::~Loan() {
  for (std::size_t i = 0; i < before_.size(); ++i) put(bindings_.handles_[i], before_[i]);
}

}  // namespace meshtorch
