// SPDX-License-Identifier: Apache-2.0
//
// Random state as entries of a State.
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

[[noreturn]] void refuse_random(const StateEntry& entry, const std::string& what,
                                const std::string& remedy) {
  fail({.op = "set_random_state", .where = entry.path, .what = what, .remedy = remedy});
}

void check_random(const StateEntry& entry, const State& now) {
  if (entry.path != kRuntimePath && entry.path != kTorchPath) {
    refuse_random(entry, "is no random state that there is",
                  text("use ", kRuntimePath, " and ", kTorchPath));
  }
  const StateEntry* mine = now.find(entry.path);
  if (mine == nullptr) refuse_random(entry, "has no runtime to go to", "make a Runtime first");
  const at::Tensor &given = entry.tensor, &expected = mine->tensor;
  if (given.defined() && given.sizes() == expected.sizes() &&
      given.scalar_type() == expected.scalar_type())
    return;
  refuse_random(entry,
                given.defined() ? text("is ", given.scalar_type(), " ", given.sizes(),
                                       ", expected ", expected.scalar_type(), " ", expected.sizes())
                                : "is undefined",
                "give what random_state() gave");
}

void set_random(const StateEntry& entry) {
  const at::Tensor value = full(entry.tensor.detach()).contiguous();
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
  entries.push_back({.path = kTorchPath,
                     .kind = Kind::random_state,
                     .tensor = at::globalContext().defaultGenerator(at::kCPU).get_state()});
  return State(std::move(entries));
}

void set_random_state(const State& state) {
  const State now = random_state();
  for (const StateEntry& entry : state) check_random(entry, now);
  for (const StateEntry& entry : state) set_random(entry);
}

}  // namespace meshtorch
