// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rerun.h>

#include <ATen/autocast_mode.h>

#include <algorithm>

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
