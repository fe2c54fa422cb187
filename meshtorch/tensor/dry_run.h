// SPDX-License-Identifier: Apache-2.0
//
// A dry run inside a program: what a piece of it would cost on a mesh, without a trace of it afterwards.
//
//   mt::dry_run_scope dry(mesh);
//   auto x = mt::device_put(torch::empty({512, 64}, torch::kMeta), {dry.mesh(), P("dp")});
//   ... ops as ever ...
//   dry.ledger()                                     // their collectives
//
// Everything in it is on meta shards (meta.h). The devices are simulated, all of them by this process, and
// numbered behind the real ones, so that nothing that is kept for the real mesh is taken for theirs. What
// was recorded (ledger, fallbacks) and drawn (the counters of both random generators) is as before when it
// ends. Sharded tensors of the real mesh must not be used in it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <meshtorch/tensor/draws.h>

namespace meshtorch {

class dry_run_scope {
 public:
  // Simulates `mesh`, which may have more devices than there are. Throws Error where there is no runtime.
  explicit dry_run_scope(const Mesh& mesh);
  ~dry_run_scope();
  dry_run_scope(const dry_run_scope&) = delete;
  dry_run_scope& operator=(const dry_run_scope&) = delete;

  const Mesh& mesh() const { return mesh_; }
  Ledger& ledger() { return runtime_.ledger_; }

 private:
  const undrawn_scope undrawn_;
  Runtime& runtime_;
  // What the runtime had.
  std::unique_ptr<Communicator> communicator_;
  Ledger ledger_;
  RuntimeOptions options_;
  std::vector<FallbackReport> fallbacks_;
  Mesh mesh_;
};

}  // namespace meshtorch
