// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/checkpoint/module.h>

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/checkpoint/safetensors.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

struct NamedTensor {
  std::string path;
  at::Tensor tensor;
};

// Every tensor of the module once, under its first path.
std::vector<NamedTensor> leaves(const torch::nn::Module& module) {
  std::vector<NamedTensor> found;
  std::set<const void*> seen;
  auto add = [&](const auto& dict) {
    for (const auto& item : dict) {
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
        found.push_back({item.key(), item.value()});
      }
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return found;
}

bool any_sharded(const std::vector<NamedTensor>& found) {
  return std::any_of(found.begin(), found.end(),
                     [](const NamedTensor& leaf) { return is_sharded(leaf.tensor); });
}

std::string shape_text(at::IntArrayRef shape) { return "[" + join(shape) + "]"; }

void check(const std::vector<NamedTensor>& found, const SafetensorsFile& file,
           const std::string& path) {
  auto refuse = [&](const std::string& leaf, const std::string& what, const std::string& remedy) {
    fail({.op = "load", .where = leaf, .what = what, .remedy = remedy});
  };
  std::set<std::string> wanted;
  for (const NamedTensor& leaf : found) {
    wanted.insert(leaf.path);
    if (!file.contains(leaf.path))
      refuse(leaf.path, "is not in " + path, "load a file saved from the same module");
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!wanted.count(entry.name))
      refuse(entry.name, "is in " + path + ", the module has no such leaf",
             "load it into the module it was saved from");
  }
  for (const NamedTensor& leaf : found) {
    for (const SafetensorsEntry& entry : file.entries()) {
      if (entry.name != leaf.path) continue;
      if (leaf.tensor.sizes() != at::IntArrayRef(entry.shape)) {
        refuse(leaf.path,
               "has shape " + shape_text(entry.shape) + " in " + path + ", expected " +
                   shape_text(leaf.tensor.sizes()),
               "make the module with the options it was saved with");
      }
      if (leaf.tensor.scalar_type() != entry.dtype) {
        refuse(
            leaf.path,
            text("has dtype ", entry.dtype, " in ", path, ", expected ", leaf.tensor.scalar_type()),
            "convert the module with to(dtype) first");
      }
    }
  }
}

}  // namespace

void save(const torch::nn::Module& module, const std::string& path) {
  torch::NoGradGuard no_grad;
  const auto found = leaves(module);
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& leaf : found) {
    entries.push_back({leaf.path, leaf.tensor.scalar_type(), leaf.tensor.sizes().vec()});
  }
  Communicator* communicator = any_sharded(found) ? &Runtime::current().communicator() : nullptr;
  std::optional<SafetensorsWriter> writer;
  if (communicator == nullptr || communicator->process() == 0)
    writer.emplace(path, entries, SafetensorsMetadata{{"format", "pt"}});
  for (const NamedTensor& leaf : found) {
    const at::Tensor whole = full(leaf.tensor.detach()).contiguous();
    if (writer) writer->write(leaf.path, whole);
  }
  if (writer) writer->close();
  if (communicator != nullptr)
    communicator->barrier();  // the file is there when any of them returns
}

void load(torch::nn::Module& module, const std::string& path) {
  torch::NoGradGuard no_grad;
  const auto found = leaves(module);
  const SafetensorsFile file(path);
  check(found, file, path);
  for (const NamedTensor& leaf : found) leaf.tensor.detach().copy_(file.read(leaf.path));
}

}  // namespace meshtorch
