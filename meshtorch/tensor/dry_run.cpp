// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/dry_run.h>

#include <algorithm>
#include <utility>

namespace meshtorch {
namespace {

Mesh behind(std::int64_t devices, const Mesh& mesh) {
  std::vector<std::int64_t> mine = mesh.devices();
  for (std::int64_t& device : mine) device += devices;
  return Mesh(mesh.axes(), std::move(mine));
}

std::int64_t largest_device(const Mesh& mesh) { return *std::ranges::max_element(mesh.devices()); }

}  // namespace

dry_run_scope::dry_run_scope(const Mesh& mesh)
    : runtime_(Runtime::current()),
      options_(runtime_.options_),
      mesh_(behind(runtime_.communicator().devices(), mesh)) {
  communicator_ =
      std::exchange(runtime_.communicator_, make_local_communicator(largest_device(mesh_) + 1));
  ledger_ = std::exchange(runtime_.ledger_, Ledger());
  fallbacks_ = std::exchange(runtime_.fallbacks_, {});
  runtime_.options_.meta = true;
  runtime_.options_.mode = Mode::automatic;
  runtime_.options_.warn_fallback = false;
}

dry_run_scope::~dry_run_scope() {
  runtime_.communicator_ = std::move(communicator_);
  runtime_.ledger_ = std::move(ledger_);
  runtime_.fallbacks_ = std::move(fallbacks_);
  runtime_.options_ = options_;
}

}  // namespace meshtorch
