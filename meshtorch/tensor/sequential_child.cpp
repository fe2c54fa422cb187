// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/sequential_child.h>

#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tree/path.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;

std::shared_ptr<SequentialChild> wrapper_of(const std::shared_ptr<nn::Module>& module) {
  return std::dynamic_pointer_cast<SequentialChild>(module);
}

void add_children(nn::Module& module, const std::string& path,
                  std::vector<SequentialPlace>& places) {
  auto* sequential = dynamic_cast<nn::SequentialImpl*>(&module);
  auto child = sequential == nullptr ? nn::SequentialImpl::Iterator{} : sequential->begin();
  for (const auto& item : module.named_children()) {
    const std::string below = join_path(path, item.key());
    if (sequential != nullptr) places.push_back({below, &*child++});
    const auto wrapper = wrapper_of(item.value());  // the registry of a clone
    add_children(wrapper == nullptr ? *item.value() : *wrapper->inner().ptr(), below, places);
  }
}

}  // namespace

std::vector<SequentialPlace> sequential_children(nn::Module& module) {
  std::vector<SequentialPlace> places;
  add_children(module, "", places);
  return places;
}

void set_around(const SequentialPlace& place, AroundKind kind, Around around) {
  std::shared_ptr<SequentialChild> wrapper = wrapper_of(place.child->ptr());
  if (wrapper == nullptr) {
    if (!around) return;
    wrapper = std::make_shared<SequentialChild>(place.path, *place.child);
    *place.child = nn::AnyModule(wrapper);
  }
  if (around) {
    wrapper->arounds()[kind] = std::move(around);
    return;
  }
  wrapper->arounds().erase(kind);
  if (wrapper->arounds().empty()) *place.child = nn::AnyModule(wrapper->inner());
}

SequentialChild::SequentialChild(std::string path, nn::AnyModule inner)
    : path_(std::move(path)), inner_(std::move(inner)) {
  Module::train(inner_.ptr()->is_training());
}

at::Tensor SequentialChild::forward(at::Tensor x) {
  TensorForward call = [inner = inner_, path = path_](const at::Tensor& given) mutable {
    nn::AnyValue result = inner.any_forward(given);
    if (at::Tensor* tensor = result.try_get<at::Tensor>()) return std::move(*tensor);
    fail({.op = "constrain",
          .where = path,
          .what = "returns something else than a tensor",
          .remedy = "call reshard or remat in the module that uses it"});
  };
  for (const auto& [kind, around] : arounds_) {
    call = [around = around, inside = std::move(call)](const at::Tensor& given) {
      return around(inside, given);
    };
  }
  return call(x);
}

// The clone goes into a registry, as its parts under the names that they have in the child.
std::shared_ptr<nn::Module> SequentialChild::clone(const std::optional<at::Device>& device) const {
  auto copy = std::make_shared<SequentialChild>(path_, inner_.clone(device));
  copy->arounds_ = arounds_;
  const nn::Module& inside = *copy->inner_.ptr();
  for (const auto& item : inside.named_parameters(false))
    copy->register_parameter(item.key(), item.value(), item.value().requires_grad());
  for (const auto& item : inside.named_buffers(false))
    copy->register_buffer(item.key(), item.value());
  for (const auto& item : inside.named_children()) copy->register_module(item.key(), item.value());
  return copy;
}

void SequentialChild::train(bool on) {
  Module::train(on);
  inner_.ptr()->train(on);
}

void SequentialChild::pretty_print(std::ostream& stream) const {
  inner_.ptr()->pretty_print(stream);
}

}  // namespace meshtorch
