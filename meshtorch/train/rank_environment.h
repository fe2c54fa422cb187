// SPDX-License-Identifier: Apache-2.0
//
// What a rank's thread has of the thread that called local_map: grad mode and all else of libtorch's that
// is a thread's own, autocast, the scope, the Mode, the use of memory; and, of its own, the device it
// works for. Internal to local_map.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/ThreadLocalState.h>

#include <meshtorch/comm/private_scope.h>
#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/train/rank.h>
#include <meshtorch/train/rerun.h>

namespace meshtorch {

struct RankEnvironment {  // of the thread that makes it
  at::ThreadLocalState state;
  Modes modes;
  Use use = use_scope::current();
};

// In a rank's thread, for as long as it works.
class rank_scope {
 public:
  rank_scope(const RankEnvironment& environment, const RankGrid& grid, std::size_t rank);
  rank_scope(const rank_scope&) = delete;
  rank_scope& operator=(const rank_scope&) = delete;

 private:
  at::ThreadLocalStateGuard state_;
  NoAutocastCache no_cache_;  // what it holds would outlive the rank
  std::optional<named_scope> scope_;
  std::optional<mode_scope> mode_;
  use_scope use_;
  device_scope device_;
  private_scope private_;
};

// While fn runs: an op on a sharded tensor that is not on the rank's own mesh is an Error, as it comes
// from outside of local_map.
class stranger_watch {
 public:
  explicit stranger_watch(const RankPlace& place);
  ~stranger_watch();
  stranger_watch(const stranger_watch&) = delete;
  stranger_watch& operator=(const stranger_watch&) = delete;

 private:
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace meshtorch
