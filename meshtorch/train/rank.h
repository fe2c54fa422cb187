// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a local_map: a mesh cut along its manual axes. Each rank has the devices of one coordinate
// of those; where they are several, they are a mesh of the axes left automatic. Internal to local_map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/mesh/mesh.h>
#include <meshtorch/train/rank_turns.h>

namespace meshtorch {

struct RankPlace {
  std::int64_t number = 0;           // among all ranks
  std::int64_t position = 0;         // on the whole mesh, of its first device
  std::string name;                  // "dp=0, tp=1"
  std::vector<std::size_t> devices;  // which of the process's devices on the whole mesh are its own
  Mesh mesh;                         // of its own devices; not defined where it has one
};

// The ranks whose devices this process holds, row-major in the mesh's order of axes.
struct RankGrid {
  // Manual axes by name; none: all. Throws Error: an unknown axis, one named twice, a rank whose devices
  // are several processes', a mesh that has none of this process's.
  RankGrid(const Mesh& mesh, const std::vector<std::string>& manual_axes);

  std::size_t devices() const;  // of this process
  std::string manual_names() const;
  // The automatic axes by their index on a rank's mesh.
  int automatic_index(int axis) const;
  std::int64_t count() const;  // of all ranks
  // The first device of a rank that may be another process's; and the rank's name.
  std::int64_t position_of(std::int64_t number) const;
  std::string name_of(std::int64_t number) const;

  Mesh mesh;
  AxisSet manual;
  AxisList manual_order;       // ascending
  std::vector<int> automatic;  // ascending
  std::vector<RankPlace> ranks;
};

// What one rank asks of the others, and what it gets.
struct RankMeeting : RankTurns::Meeting {
  Collective kind = Collective::all_reduce;
  Reduction reduction = Reduction::sum;
  AxisList axes;
  std::int64_t dim = 0, concat_dim = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;  // of a permute: (source, destination)
  std::string op, scope;
  Shards shards;          // what it gives, then what it gets
  bool recorded = false;  // it records a graph, then: some rank does
};

// In the thread that called local_map: runs the collective that all ranks ask for.
void serve_meeting(const RankGrid& grid, const std::vector<RankTurns::Meeting*>& meetings);

// The rank that this thread is.
class Rank {
 public:
  Rank(const RankGrid& grid, std::size_t index, RankTurns& turns, at::Tensor anchor)
      : grid(grid), index(index), turns(turns), anchor(std::move(anchor)) {
    outer_ = current_;
    current_ = this;
  }
  ~Rank() { current_ = outer_; }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Throws Error, in the name of `op`, outside of local_map.
  static Rank& current(const std::string& op);
  const RankPlace& place() const { return grid.ranks[index]; }
  // Throws Error: an unknown axis, one named twice, an automatic one.
  AxisList manual_axes(const std::string& op, const std::vector<std::string>& names) const;

  const RankGrid& grid;
  const std::size_t index;
  RankTurns& turns;
  // A leaf that requires a gradient and gets none: what a collective of a constant hangs on, so that it
  // has its part in the collective's backward.
  const at::Tensor anchor;

 private:
  Rank* outer_;
  inline static thread_local Rank* current_ = nullptr;
};

}  // namespace meshtorch
