// SPDX-License-Identifier: Apache-2.0
//
// Where the members of a collective's groups are: which process holds them, and which of this process's
// inputs they are.
#pragma once

#include <map>
#include <vector>

#include <meshtorch/comm/communicator.h>

namespace meshtorch {

struct GroupRoute {
  struct Member {
    int process = 0;
    std::size_t index = 0;  // among the shards of its process
  };
  std::vector<Member> members;  // by rank
  std::vector<int> processes;   // that hold a member, by the first one's rank

  bool crosses() const { return processes.size() > 1; }
  // The ranks that a process holds.
  std::vector<std::size_t> ranks_of(int process) const;
};

// How the positions of a mesh lie on processes of so many devices each.
class DevicePlacement {
 public:
  DevicePlacement(const Mesh& mesh, std::int64_t devices_per_process);

  const std::vector<std::int64_t>& positions_of(int process) const;
  int process_of(std::int64_t position) const {
    return process_[static_cast<std::size_t>(position)];
  }
  std::size_t index_of(std::int64_t position) const {
    return index_[static_cast<std::size_t>(position)];
  }

  // The groups along `axes` of which `process` holds a member, in the mesh's order.
  std::vector<GroupRoute> groups(const Mesh& mesh, AxisList axes, int process) const;

 private:
  std::vector<int> process_;        // by position
  std::vector<std::size_t> index_;  // by position
  std::map<int, std::vector<std::int64_t>> positions_;
};

}  // namespace meshtorch
