// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/communicator.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/distributed/distributed.h>
#include <meshtorch/comm/environment.h>
#include <meshtorch/comm/mpi/mpi.h>

namespace meshtorch {

Request Request::all_reduce(const Mesh& mesh, AxisList axes, Reduction reduction) {
  return {.kind = Collective::all_reduce, .mesh = mesh, .axes = axes, .reduction = reduction};
}

Request Request::all_gather(const Mesh& mesh, AxisList axes, std::int64_t dim) {
  return {.kind = Collective::all_gather, .mesh = mesh, .axes = axes, .dim = dim};
}

Request Request::reduce_scatter(const Mesh& mesh, AxisList axes, std::int64_t dim) {
  return {.kind = Collective::reduce_scatter, .mesh = mesh, .axes = axes, .dim = dim};
}

Request Request::all_to_all(const Mesh& mesh, AxisList axes, std::int64_t split_dim,
                            std::int64_t concat_dim) {
  return {.kind = Collective::all_to_all,
          .mesh = mesh,
          .axes = axes,
          .dim = split_dim,
          .concat_dim = concat_dim};
}

Request Request::broadcast(const Mesh& mesh, AxisList axes, std::int64_t root) {
  return {.kind = Collective::broadcast, .mesh = mesh, .axes = axes, .root = root};
}

Request Request::permute(const Mesh& mesh, Shape shape, AxisList axes, Layout from, Layout to) {
  return {.kind = Collective::permute,
          .mesh = mesh,
          .axes = axes,
          .shape = std::move(shape),
          .from = std::move(from),
          .to = std::move(to)};
}

std::string axis_names(const Mesh& mesh, AxisList axes) {
  std::vector<std::string> names;
  for (int i = 0; i < axes.size(); ++i) names.push_back(mesh.axes()[axes[i]].name);
  return join(names, "+");
}

std::string Request::to_string() const {
  std::string result(name(kind));
  if (!axes.empty()) result += " over " + axis_names(mesh, axes);
  result += " of " + mesh.to_string();
  if (kind == Collective::permute) {
    result += " from " + meshtorch::to_string(mesh, from) + " to " + meshtorch::to_string(mesh, to);
  }
  if (!op.empty()) result += ", " + op;
  if (!scope.empty()) result += " in " + scope;
  return result;
}

std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) {
  if (read_environment().processes == 1) return make_local_communicator(options.devices);
  return make_distributed_communicator(join_mpi(),
                                       {.devices = options.devices, .timeout = options.timeout});
}

}  // namespace meshtorch
