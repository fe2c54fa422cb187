// SPDX-License-Identifier: Apache-2.0
//
// Random state as entries of a State.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <bit>
#include <mutex>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/state.h>

namespace meshtorch {
namespace {

constexpr char kRuntimePath[] = "random.runtime";
constexpr char kTorchPath[] = "random.torch";
constexpr char kRemedy[] = "give what random_state() gave";

[[noreturn]] void refuse_random(const StateEntry& entry, const std::string& what,
                                const std::string& remedy) {
  fail({.op = "set_random_state", .where = entry.path, .what = what, .remedy = remedy});
}

at::Tensor value_of(const StateEntry& entry) { return full(entry.tensor.detach()).contiguous(); }

at::Tensor state_of_torch() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

// libtorch looks into the bytes only when it sets them.
void check_bytes(const StateEntry& entry) {
  try {
    at::detail::createCPUGenerator().set_state(value_of(entry));
  } catch (const c10::Error& error) {
    refuse_random(entry, text("no generator takes it: ", error.what_without_backtrace()), kRemedy);
  }
}

void check_random(const StateEntry& entry, const State& now) {
  if (entry.path != kRuntimePath && entry.path != kTorchPath) {
    refuse_random(entry, "is no random state that there is",
                  text("use ", kRuntimePath, " and ", kTorchPath));
  }
  const StateEntry* mine = now.find(entry.path);
  if (mine == nullptr) refuse_random(entry, "has no runtime to go to", "make a Runtime first");
  const at::Tensor &given = entry.tensor, &expected = mine->tensor;
  if (!given.defined()) refuse_random(entry, "is undefined", kRemedy);
  if (given.sizes() != expected.sizes() || given.scalar_type() != expected.scalar_type()) {
    refuse_random(entry,
                  text("is ", given.scalar_type(), " ", given.sizes(), ", expected ",
                       expected.scalar_type(), " ", expected.sizes()),
                  kRemedy);
  }
  if (entry.path == kTorchPath) check_bytes(entry);
}

void set_random(const StateEntry& entry) {
  const at::Tensor value = value_of(entry);
  if (entry.path == kTorchPath) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(value);
    return;
  }
  const auto* words = value.const_data_ptr<std::int64_t>();
  Runtime::current().random() = {.seed = std::bit_cast<std::uint64_t>(words[0]),
                                 .draws = std::bit_cast<std::uint64_t>(words[1])};
}

}  // namespace

State random_state() {
  std::vector<StateEntry> entries;
  if (Runtime* runtime = Runtime::find()) {
    const Runtime::RandomState now = runtime->random();
    entries.push_back({.path = kRuntimePath,
                       .kind = Kind::random_state,
                       .tensor = at::tensor({std::bit_cast<std::int64_t>(now.seed),
                                             std::bit_cast<std::int64_t>(now.draws)},
                                            at::kLong)});
  }
  entries.push_back({.path = kTorchPath, .kind = Kind::random_state, .tensor = state_of_torch()});
  return State(std::move(entries));
}

void set_random_state(const State& state) {
  const State now = random_state();
  for (const StateEntry& entry : state) check_random(entry, now);
  for (const StateEntry& entry : state) set_random(entry);
}

}  // namespace meshtorch
