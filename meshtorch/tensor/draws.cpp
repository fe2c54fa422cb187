// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/draws.h>

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>

namespace meshtorch {

Draws::Draws(std::vector<at::Generator> generators) : generators_(std::move(generators)) {
  for (at::Generator& generator : generators_) {
    const std::lock_guard lock(generator.mutex());
    states_.push_back(generator.get_state());
  }
  if (Runtime* runtime = Runtime::find()) sharded_ = runtime->random();
}

Draws Draws::of(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Generator> generators{at::globalContext().defaultGenerator(at::kCPU)};
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || input.device().is_cpu() || input.device().is_meta()) continue;
    const at::Generator& generator = at::globalContext().defaultGenerator(input.device());
    if (std::ranges::find(generators, generator) == generators.end())
      generators.push_back(generator);
  }
  return Draws(std::move(generators));
}

void Draws::restore() {
  for (std::size_t i = 0; i < generators_.size(); ++i) {
    const std::lock_guard lock(generators_[i].mutex());
    generators_[i].set_state(states_[i]);
  }
  if (Runtime* runtime = sharded_ ? Runtime::find() : nullptr) runtime->random() = *sharded_;
}

}  // namespace meshtorch
