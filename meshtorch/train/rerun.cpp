// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rerun.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <mutex>

namespace meshtorch {
namespace {

constexpr std::array kAutocastDevices{at::kCPU, at::kCUDA};

void set_autocast(const AutocastDtypes& dtypes) {
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    at::autocast::set_autocast_dtype(kAutocastDevices[i], dtypes[i]);
  }
}

// The scope to open where `open` is, so that the path is the one of forward, and "remat".
std::string scope_below(const std::string& open, const std::string& forward) {
  const std::string path = forward.empty() ? "remat" : forward + "/remat";
  return !open.empty() && path.starts_with(open + "/") ? path.substr(open.size() + 1) : path;
}

}  // namespace

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

Modes::Modes() : keys(c10::impl::tls_local_dispatch_key_set()), path(named_scope::path()) {
  std::ranges::transform(kAutocastDevices, autocast.begin(), at::autocast::get_autocast_dtype);
  if (const Runtime* runtime = Runtime::find()) mode = runtime->mode();
}

NoAutocastCache::NoAutocastCache() : outer_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

NoAutocastCache::~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(outer_); }

rerun_scope::rerun_scope(Draws& draws, const Modes& modes)
    : outer_draws_(draws.now()),
      keys_(modes.keys),
      scope_(scope_below(outer_modes_.path, modes.path)) {
  if (modes.mode) mode_.emplace(*modes.mode);
  set_autocast(modes.autocast);
  draws.restore();
}

rerun_scope::~rerun_scope() {
  outer_draws_.restore();
  set_autocast(outer_modes_.autocast);
}

}  // namespace meshtorch
