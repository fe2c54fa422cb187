// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_run.h>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include <optional>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/private_scope.h>
#include <meshtorch/tensor/device_scope.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/op_info.h>
#include <meshtorch/tensor/op_observer.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/trace.h>
#include <meshtorch/train/rank_streams.h>
#include <meshtorch/train/rerun.h>

namespace meshtorch {
namespace {

std::int64_t first_device(const RankGrid& grid, std::size_t rank) {
  return grid.mesh.devices()[static_cast<std::size_t>(grid.ranks[rank].position)];
}

struct Environment {  // of the thread that makes it
  at::ThreadLocalState state;
  Modes modes;
  Use use = use_scope::current();
};

// In a rank's thread, for as long as it works.
class rank_scope {
 public:
  rank_scope(const Environment& environment, std::int64_t device)
      : state_(environment.state), use_(environment.use), device_(device) {
    if (!environment.modes.path.empty()) scope_.emplace(environment.modes.path);
    if (environment.modes.mode) mode_.emplace(*environment.modes.mode);
    at::autocast::set_autocast_dtype(at::kCPU, environment.modes.autocast[0]);
    at::autocast::set_autocast_dtype(at::kCUDA, environment.modes.autocast[1]);
  }
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

}  // namespace

void run_ranks(const std::string& op, const RankGrid& grid, const std::vector<std::uint64_t>& seeds,
               RankBindings& bindings,
               const std::function<void(std::size_t rank, RankTurns& turns)>& body) {
  const Environment environment;
  RankStreams streams(seeds);
  const RankBindings::Loan loan(bindings);
  Trace::Time begin;
  RankTurns::Options options{
      .op = op, .names = {}, .serve = [&](const auto& meetings) { serve_meeting(grid, meetings); }};
  for (const RankPlace& place : grid.ranks) options.names.push_back(place.name);
  options.before_turn = [&](std::size_t rank) {
    streams.enter(rank);
    bindings.enter(rank);
    if (Trace::active() != nullptr) begin = Trace::Clock::now();
  };
  options.after_turn = [&](std::size_t rank) {
    bindings.leave(rank);
    streams.leave(rank);
    if (Trace* trace = Trace::active())
      trace->op(op, first_device(grid, rank), begin, Trace::Clock::now());
  };
  RankTurns turns(std::move(options));
  turns.run([&](std::size_t rank) {
    const rank_scope scope(environment, first_device(grid, rank));
    body(rank, turns);
  });
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
