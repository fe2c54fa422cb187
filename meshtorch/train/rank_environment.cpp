// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_environment.h>

#include <ATen/autocast_mode.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/op_info.h>
#include <meshtorch/tensor/op_observer.h>

namespace meshtorch {
namespace {

std::int64_t first_device(const RankGrid& grid, std::size_t rank) {
  return grid.mesh.devices()[static_cast<std::size_t>(grid.ranks[rank].position)];
}

}  // namespace

rank_scope::rank_scope(const RankEnvironment& environment, const RankGrid& grid, std::size_t rank)
    : state_(environment.state), use_(environment.use), device_(first_device(grid, rank)) {
  if (!environment.modes.path.empty()) scope_.emplace(environment.modes.path);
  if (environment.modes.mode) mode_.emplace(*environment.modes.mode);
  at::autocast::set_autocast_dtype(at::kCPU, environment.modes.autocast[0]);
  at::autocast::set_autocast_dtype(at::kCUDA, environment.modes.autocast[1]);
}

struct stranger_watch::Watch final : OpObserver {
  explicit Watch(const RankPlace& place) : place(place), observing(*this) {}

  void reads(const Frame& frame, const OpRule*) override {
    if (place.mesh.defined() && frame.mesh == place.mesh) return;
    fail({.op = frame.info.name,
          .where = "rank (" + place.name + ")",
          .what = text("an operand is on mesh ", frame.mesh, ", from outside of local_map"),
          .remedy = "pass it to local_map as an argument"});
  }
  void ran(at::ArrayRef<c10::IValue>) override {}

  const RankPlace& place;
  meshtorch::observing observing;
};

stranger_watch::stranger_watch(const RankPlace& place) : watch_(std::make_unique<Watch>(place)) {}

stranger_watch::~stranger_watch() = default;

}  // namespace meshtorch
