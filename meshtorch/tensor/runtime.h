// SPDX-License-Identifier: Apache-2.0
//
// The Runtime: made once, at the program's edge. It owns the devices, the communicator, the ledger,
// the op rules and the registration with libtorch's dispatcher; all of it ends with it. One at a time.
//
//   mt::Runtime runtime({.devices = 8});
//   auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
//
// Started as several processes (mpirun, meshtorch launch), the same program has the devices of all of
// them, and every process drives its own (docs/launch.md).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/comm/ledger.h>
#include <meshtorch/layout/plan.h>
#include <meshtorch/mesh/mesh.h>
#include <meshtorch/ops/registry.h>
#include <meshtorch/tensor/scope.h>

namespace meshtorch {

struct RuntimeOptions {
  // Virtual devices of this process; the same on every process.
  std::int64_t devices = 1;
  // Threads of an op. 0: as libtorch has them (OMP_NUM_THREADS, else all cores); where this machine
  // runs several processes, an equal share of its cores. Sums within an op depend on it: with the same
  // number of threads a program gives the same bits however its devices are spread over processes.
  int threads = 0;
  // Seconds that a collective may wait for another process before every process throws Error. The
  // environment variable MESHTORCH_TIMEOUT overrides it.
  double timeout = 600;
  // Several processes: compare what device_put and shard are given by its checksum, as every process
  // must give the same. It costs no message, and a pass over the values.
  bool check_inputs = true;
  // Of every random number drawn on a sharded tensor, and (via torch::manual_seed) on a plain one.
  std::uint64_t seed = 0;
  Mode mode = Mode::automatic;
  // Dry run: what is placed gets meta shards - shapes, layouts and the ledger of a run without its
  // values, without memory and arithmetic (docs/meta.md).
  bool meta = false;
  // Account for the memory of every device, by use (memory.h). Costs a table lookup per allocation.
  bool memory = false;
  // Keep freed memory for the next op instead of returning it to the system: with glibc's defaults
  // large tensors are mapped and unmapped at every op, a tenth of a training step. Ignored elsewhere.
  bool tune_malloc = true;
  // Tell on stderr, once per op, that an op has no rule and its operands are gathered.
  bool warn_fallback = true;
};

// What an op without a rule was called with, and how often.
struct FallbackReport {
  std::string op;
  std::string layouts;  // of the first call
  std::int64_t count = 0;
};

class Dispatch;
class MemoryAccount;

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  // With collectives of the program's own; options.devices and .timeout are the communicator's.
  Runtime(RuntimeOptions options, std::unique_ptr<Communicator> communicator);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The live runtime. Throws Error where there is none.
  static Runtime& current();
  // Null where there is none.
  static Runtime* find() noexcept;

  // A mesh over as many devices as it needs: the first ones of each process, as evenly as it goes.
  // Throws Error where it needs more than there are, or fewer than there are processes.
  Mesh make_mesh(std::vector<MeshAxis> axes) const;

  // This process's number and how many there are: 0 of 1 where the program was started alone.
  int process() const { return communicator_->process(); }
  int processes() const { return communicator_->processes(); }
  // Where a program of several processes prints: `out` on process 0, nowhere on the others.
  std::ostream& out(std::ostream& out) const;
  std::ostream& out() const;  // of std::cout

  const RuntimeOptions& options() const { return options_; }
  Communicator& communicator() { return *communicator_; }
  Ledger& ledger() { return ledger_; }
  // Null unless RuntimeOptions::memory.
  MemoryAccount* memory() { return memory_.get(); }
  OpRegistry& rules() { return rules_; }
  Dispatch& dispatch() { return *dispatch_; }

  // How an op of the program's own may be sharded (notation: rule/op_rule.h). `op` is its full name, with
  // the overload: "mylib::scale", "mylib::scale.out"; an in-place or out= form uses the rule of its
  // functional form where there is one. In-place ops without results and optional, list and
  // keyword-only tensors are operands like others: all tensors in schema order, lists flattened.
  //
  //   runtime.register_rule("mylib::swiglu", "...k,...k->...k");
  //   runtime.register_rule("mylib::pool", [](const OpCall& call) { return rule_for(call, ...); });
  //
  // Throws Error where libtorch does not know the op, where it is made of other ops and needs no rule,
  // and where it has a rule.
  void register_rule(const std::string& op, RuleText notation);
  void register_rule(const std::string& op, RuleFunction rule);

  // Ops that ran by gathering because they have no rule, in order of first use.
  const std::vector<FallbackReport>& fallbacks() const { return fallbacks_; }
  void report_fallback(const std::string& op, const std::string& layouts);

  // The key of the next random draw: (seed, number of draws so far). Every process draws in the same
  // program order, so every process gets the same.
  struct RandomState {
    std::uint64_t seed = 0;
    std::uint64_t draws = 0;
  };
  RandomState& random() { return random_; }
  // Redistribution plans by (sizes, layouts).
  std::map<std::vector<std::uint64_t>, Plan>& plans() { return plans_; }
  // Reseeds both, as torch::manual_seed does for plain tensors.
  void manual_seed(std::uint64_t seed);

  Mode mode() const;  // of this thread: the innermost mode_scope, else the option

 private:
  friend class dry_run_scope;  // dry_run.h: other devices, another ledger, for a while
  void add_rule(const std::string& op, const std::string& text, RuleFunction rule);

  RuntimeOptions options_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<MemoryAccount> memory_;
  Ledger ledger_;
  OpRegistry rules_;
  RandomState random_;
  std::map<std::vector<std::uint64_t>, Plan> plans_;
  std::vector<FallbackReport> fallbacks_;
  std::unique_ptr<Dispatch> dispatch_;
};

}  // namespace meshtorch
