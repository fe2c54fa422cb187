// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/formula.h>

namespace meshtorch {

Traffic& Traffic::operator+=(const Traffic& other) {
  count += other.count;
  bytes += other.bytes;
  return *this;
}

TensorParallelTraffic& TensorParallelTraffic::operator+=(const TensorParallelTraffic& other) {
  all_reduce += other.all_reduce;
  reduce_scatter += other.reduce_scatter;
  all_gather += other.all_gather;
  loss += other.loss;
  return *this;
}

TensorParallelTraffic tensor_parallel_traffic(const Mesh& mesh, const GptOptions& model,
                                              const MicrobatchShape& shape, bool sequence_parallel,
                                              const std::string& axis) {
  const std::int64_t n = mesh.axis_size(axis);
  if (n == 1) return {};
  const auto collectives = [n](std::int64_t count, std::int64_t times, std::int64_t bytes) {
    return Traffic{count, count * (times * bytes * (n - 1) / n)};
  };
  const std::int64_t tokens = shape.rows * shape.length;
  const std::int64_t activation = tokens * model.width * shape.activation_size;
  const std::int64_t count = 4 * model.layers + 2;
  TensorParallelTraffic traffic{.loss = collectives(3, 2, tokens * shape.logit_size)};
  if (sequence_parallel) {
    traffic.reduce_scatter = traffic.all_gather = collectives(count, 1, activation);
  } else {
    traffic.all_reduce = collectives(count, 2, activation);
  }
  return traffic;
}

}  // namespace meshtorch
