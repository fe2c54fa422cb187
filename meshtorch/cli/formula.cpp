// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/formula.h>

#include <meshtorch/train/zero.h>

namespace meshtorch {
namespace {

constexpr std::int64_t kFloat = 4;

Traffic once(std::int64_t bytes) { return {bytes > 0 ? 1 : 0, bytes}; }

}  // namespace

ZeroTraffic zero_traffic(const Mesh& mesh, const std::vector<Match>& leaves,
                         const std::string& axis) {
  const std::int64_t d = mesh.axis_size(axis);
  std::int64_t cut = 0, whole = 0;
  ZeroTraffic traffic;
  for (const Match& match : leaves) {
    if (match.note.starts_with("tied to ")) continue;
    const bool stays = zero_spec({mesh, match.spec}, match.leaf.shape, axis) == match.spec;
    (stays ? whole : cut) += match.bytes_per_device;
    traffic.whole_leaves += stays;
  }
  if (d == 1) return traffic;
  traffic.reduce_scatter = traffic.all_gather = once(cut * (d - 1) / d);
  traffic.all_reduce = once(2 * whole * (d - 1) / d);
  return traffic;
}

TensorParallelTraffic tensor_parallel_traffic(const Mesh& mesh, const GptOptions& model,
                                              std::int64_t rows, std::int64_t length,
                                              const std::string& axis) {
  const std::int64_t t = mesh.axis_size(axis);
  if (t == 1) return {};
  const auto all_reduces = [&](std::int64_t count, std::int64_t elements) {
    return Traffic{count, count * (2 * elements * kFloat * (t - 1) / t)};
  };
  return {.activations = all_reduces(4 * model.layers + 2, rows * length * model.width),
          .loss = all_reduces(3, rows * length)};
}

}  // namespace meshtorch
