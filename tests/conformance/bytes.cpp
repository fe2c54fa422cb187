// SPDX-License-Identifier: Apache-2.0
#include "bytes.h"

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch::conformance {
namespace {

// Gathering every operand whole, by the formula of a ring.
std::int64_t bytes_of_gathering(const Scene& scene, const Placing& placing) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < placing.size(); ++i) {
    const at::Tensor& x = scene.reference.values[i];
    if (!x.defined() || placing[i].plain || placing[i].layout.sharded().empty()) continue;
    std::int64_t least = x.numel();
    for (std::int64_t position = 0; position < scene.mesh.size(); ++position)
      least = std::min(
          least, numel(shard_shape(scene.mesh, x.sizes().vec(), placing[i].layout, position)));
    bytes += (x.numel() - least) * static_cast<std::int64_t>(x.element_size());
  }
  return bytes;
}

// Reducing every unreduced operand whole.
std::int64_t bytes_of_reducing(const Scene& scene, const Placing& placing) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < placing.size(); ++i) {
    const at::Tensor& x = scene.reference.values[i];
    if (!x.defined() || placing[i].layout.unreduced.empty()) continue;
    const std::int64_t n = scene.mesh.shards(placing[i].layout.unreduced);
    bytes += (2 * (n - 1) * x.numel() + n - 1) / n * static_cast<std::int64_t>(x.element_size());
  }
  return bytes;
}

bool all_replicated(const Placing& placing) {
  return std::all_of(placing.begin(), placing.end(), [](const Place& place) {
    return place.plain || place.layout.is_replicated();
  });
}

bool has_own_kernel(const Scene& scene) {
  const Dispatch& dispatch = Runtime::current().dispatch();
  const std::string name = scene.instance.of().base();
  return dispatch.find_kernel(name) != nullptr || dispatch.find_override(name) != nullptr;
}

// Where reducing an operand at once may be cheaper than its larger results, it is no fault.
bool all_known(const Consistent& expected) {
  return std::all_of(expected.outputs.begin(), expected.outputs.end(),
                     [](const auto& output) { return output.has_value(); });
}

}  // namespace

std::vector<std::string> check_ledger(const Scene& scene, const Placing& placing,
                                      const Consistent* expected) {
  std::vector<std::string> problems;
  const Ledger& ledger = Runtime::current().ledger();
  const std::int64_t implied =
      ledger.bytes([](const LedgerEntry& entry) { return entry.origin == Origin::implied; });
  const std::int64_t all = ledger.bytes([](const LedgerEntry&) { return true; });
  auto report = [&](auto... parts) { problems.push_back(text("moves ", parts...)); };
  if (all_replicated(placing) && all > 0) report(all, " bytes though all operands are replicated");
  if (expected != nullptr && implied > 0) {
    report(implied, " bytes that no one asked for from a placing of its own rule (", expected->why,
           ")");
  }
  if (expected != nullptr && all_known(*expected) && all > implied && !has_own_kernel(scene)) {
    report(all - implied, " bytes to reduce operands from a placing of its own rule (",
           expected->why, ")");
  }
  const std::int64_t gathering = bytes_of_gathering(scene, placing);
  if (implied > gathering)
    report(implied, " implied bytes, gathering all operands takes ", gathering);
  const std::int64_t most = gathering + bytes_of_reducing(scene, placing);
  if (all > most && !has_own_kernel(scene))
    report(all, " bytes, gathering and reducing all operands takes ", most);
  return problems;
}

}  // namespace meshtorch::conformance
