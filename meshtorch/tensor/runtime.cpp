// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/runtime.h>

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <meshtorch/base/error.h>
#include <meshtorch/comm/environment.h>
#include <meshtorch/ops/notation.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/op_info.h>

namespace meshtorch {
namespace {

// libtorch's dispatcher is one per process, so is the registration with it, and so is this.
Runtime* live = nullptr;

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

// A dry run needs no other process: each simulates the devices of all.
std::unique_ptr<Communicator> communicator_for(const RuntimeOptions& options) {
  if (options.meta) return make_local_communicator(options.devices * read_environment().processes);
  CommunicatorOptions communicator{.devices = options.devices, .timeout = options.timeout};
  if (const char* seconds = std::getenv("MESHTORCH_TIMEOUT")) {
    char* end = nullptr;
    communicator.timeout = std::strtod(seconds, &end);
    if (end == seconds || *end != '\0') communicator.timeout = -1;
  }
  if (!(communicator.timeout > 0)) {
    fail({.op = "Runtime",
          .where = "timeout",
          .what = "is not a number of seconds above zero",
          .remedy = "set RuntimeOptions::timeout, or MESHTORCH_TIMEOUT, to one"});
  }
  return make_communicator(communicator);
}

void set_threads(int threads) {
  if (threads < 0) {
    fail({.op = "Runtime",
          .where = "threads",
          .what = text("got ", threads, ", expected at least 1, or 0 for an equal share"),
          .remedy = "give the number of threads of an op"});
  }
  if (threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) {
    const int here = read_environment().local_processes;
    if (here > 1) threads = std::max(1, cores_of_process() / here);
  }
  if (threads > 0) at::set_num_threads(threads);
}

}  // namespace

Runtime::Runtime(RuntimeOptions options) : Runtime(options, communicator_for(options)) {}

Runtime::Runtime(RuntimeOptions options, std::unique_ptr<Communicator> communicator)
    : options_(options),
      communicator_(std::move(communicator)),
      rules_(OpRegistry::built_in()) {
  if (live != nullptr) {
    fail({.op = "Runtime",
          .where = "",
          .what = "one is alive already",
          .remedy = "make one, at the program's edge"});
  }
  if (options.memory) memory_ = std::make_unique<MemoryAccount>(communicator_->devices());
  if (options.tune_malloc) keep_freed_memory();
  set_threads(options.threads);
  dispatch_ = std::make_unique<Dispatch>(*this);
  install_kernels(*this);
  live = this;
  manual_seed(options.seed);
  if (processes() > 1) {
    communicator_->record(
        text("Runtime: mode ", options.mode == Mode::strict ? "strict" : "automatic", ", threads ",
             at::get_num_threads()),
        0);
  }
}

Runtime::~Runtime() {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(false);
  dispatch_.reset();
  live = nullptr;
}

Runtime* Runtime::find() noexcept { return live; }

Runtime& Runtime::current() {
  if (live == nullptr) {
    fail({.op = "Runtime",
          .where = "",
          .what = "there is none",
          .remedy = "make one first: meshtorch::Runtime runtime({.devices = 8})"});
  }
  return *live;
}

Mesh Runtime::make_mesh(std::vector<MeshAxis> axes) const {
  Mesh mesh(std::move(axes));
  const std::int64_t size = mesh.size();
  if (size > communicator_->devices()) {
    fail({.op = "make_mesh",
          .where = "",
          .what = text("mesh ", mesh, " needs ", size, " devices, this runtime has ",
                       communicator_->devices()),
          .remedy = text("make the runtime with at least ", size, " devices, or a smaller mesh")});
  }
  if (size < processes()) {
    fail({.op = "make_mesh",
          .where = "",
          .what = text("mesh ", mesh, " has ", size, " devices, there are ", processes(),
                       " processes, and each holds a part of every mesh"),
          .remedy = text("start at most ", size, " processes, or make a larger mesh")});
  }
  const std::int64_t each = communicator_->devices() / processes();
  std::vector<std::int64_t> devices;
  std::int64_t next = 0;
  for (std::int64_t position = 0, process = -1; position < size; ++position) {
    const std::int64_t owner = position * processes() / size;
    if (std::exchange(process, owner) != owner) next = owner * each;
    devices.push_back(next++);
  }
  return Mesh(mesh.axes(), devices);
}

std::ostream& Runtime::out(std::ostream& out) const {
  static std::ostream nowhere(nullptr);
  return process() == 0 ? out : nowhere;
}

std::ostream& Runtime::out() const { return out(std::cout); }

void Runtime::manual_seed(std::uint64_t seed) {
  random_ = {.seed = seed, .draws = 0};
  communicator_->record("manual_seed", seed);
  at::manual_seed(seed);
}

void Runtime::register_rule(const std::string& op, RuleText notation) {
  const std::string text(notation.view());
  if (const char* problem = RuleText::check(text)) {
    fail({.op = "register_rule",
          .where = op,
          .what = meshtorch::text("the rule ", text, ": ", problem),
          .remedy = "write it in the notation of rule/op_rule.h"});
  }
  add_rule(op, text, [text](const OpCall& call) { return rule_for(call, text); });
}

void Runtime::register_rule(const std::string& op, RuleFunction rule) {
  add_rule(op, "by a function", std::move(rule));
}

void Runtime::add_rule(const std::string& op, const std::string& text, RuleFunction rule) {
  const std::size_t dot = op.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchema(
      {op.substr(0, dot), dot == std::string::npos ? "" : op.substr(dot + 1)});
  if (!handle) {
    fail({.op = "register_rule",
          .where = op,
          .what = "is not an op of libtorch, nor of a library that is loaded",
          .remedy =
              "name it as in its schema, with the overload after a dot, and define it before"});
  }
  const std::string base = analyse(*handle).base;
  if (base != op) {
    fail({.op = "register_rule",
          .where = op,
          .what = "runs by the rule of its functional form " + base,
          .remedy = "register the rule for " + base});
  }
  if (handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    fail({.op = "register_rule",
          .where = op,
          .what = "is made of other ops, whose rules it runs by",
          .remedy = "register rules for those where they have none"});
  }
  rules_.add({.name = op, .family = "program", .text = text, .rule = std::move(rule)});
}

void Runtime::report_fallback(const std::string& op, const std::string& layouts) {
  for (FallbackReport& report : fallbacks_) {
    if (report.op == op) {
      ++report.count;
      return;
    }
  }
  fallbacks_.push_back({op, layouts, 1});
  if (!options_.warn_fallback) return;
  std::cerr << format({.op = op,
                       .where = layouts,
                       .what = "the op has no rule, its operands are gathered",
                       .remedy = "reshard them to P() yourself, add a rule with "
                                 "Runtime::register_rule, or forbid it "
                                 "with Mode::strict"})
            << "\n";
}

}  // namespace meshtorch
