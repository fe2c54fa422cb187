// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/route.h>

#include <algorithm>

namespace meshtorch {

std::vector<std::size_t> GroupRoute::ranks_of(int process) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank].process == process) ranks.push_back(rank);
  }
  return ranks;
}

DevicePlacement::DevicePlacement(const Mesh& mesh, std::int64_t devices_per_process) {
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    const std::int64_t device = mesh.devices()[static_cast<std::size_t>(position)];
    const int process = static_cast<int>(device / devices_per_process);
    auto& mine = positions_[process];
    process_.push_back(process);
    index_.push_back(mine.size());
    mine.push_back(position);
  }
}

const std::vector<std::int64_t>& DevicePlacement::positions_of(int process) const {
  static const std::vector<std::int64_t> none;
  const auto found = positions_.find(process);
  return found == positions_.end() ? none : found->second;
}

std::vector<GroupRoute> DevicePlacement::groups(const Mesh& mesh, AxisList axes,
                                                int process) const {
  std::vector<GroupRoute> routes;
  for (const auto& group : mesh.groups(axes)) {
    GroupRoute route;
    for (const std::int64_t position : group) {
      const int owner = process_of(position);
      route.members.push_back({.process = owner, .index = index_of(position)});
      if (std::find(route.processes.begin(), route.processes.end(), owner) == route.processes.end())
        route.processes.push_back(owner);
    }
    const auto& all = route.processes;
    if (std::find(all.begin(), all.end(), process) != all.end()) routes.push_back(std::move(route));
  }
  return routes;
}

}  // namespace meshtorch
