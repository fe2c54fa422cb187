// SPDX-License-Identifier: Apache-2.0
//
// Running something a second time as it ran the first time: with the same random numbers (tensor/draws.h), under
// the same modes. Internal to remat.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <meshtorch/tensor/draws.h>
#include <meshtorch/tensor/scope.h>

namespace meshtorch {

// Autocast has a dtype per kind of device.
using AutocastDtypes = std::array<at::ScalarType, 2>;

// What this thread runs under now.
struct Modes {
  Modes();

  c10::impl::LocalDispatchKeySet keys;  // whether autocast is on
  AutocastDtypes autocast;
  std::optional<Mode> mode;
  std::string path;
};

// A cast that is cached in one run would be a tensor from outside in the other.
class NoAutocastCache {
 public:
  NoAutocastCache();
  ~NoAutocastCache();
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  bool outer_;
};

// Everything until destroyed draws and runs as it did there, with gradients and below the scope "remat".
class rerun_scope {
 public:
  rerun_scope(Draws& draws, const Modes& modes);
  ~rerun_scope();
  rerun_scope(const rerun_scope&) = delete;
  rerun_scope& operator=(const rerun_scope&) = delete;

 private:
  Draws outer_draws_;
  Modes outer_modes_;
  c10::AutoGradMode grad_{true};
  c10::impl::ForceDispatchKeyGuard keys_;
  NoAutocastCache no_cache_;
  named_scope scope_;
  std::optional<mode_scope> mode_;
};

}  // namespace meshtorch
