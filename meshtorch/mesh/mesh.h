// SPDX-License-Identifier: Apache-2.0
//
// A mesh: named axes over devices. Devices are numbered row-major, so the last axis is the one
// whose neighbours are adjacent: on (dp=4, tp=2) device 5 has coordinates dp=2, tp=1.
//
// A Mesh is a cheap immutable handle. Programs get theirs from Runtime::make_mesh, which checks
// that the devices exist; a mesh built directly is a plan for devices that need not (a dry run, a
// test).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <meshtorch/mesh/axis.h>

namespace meshtorch {

struct MeshAxis {
  std::string name;
  std::int64_t size;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

class Mesh {
 public:
  // An empty mesh handle: defined() is false and nothing else may be called.
  Mesh() = default;

  // Axes major to minor over devices 0 .. product-1. Throws Error: no axes, more than kMaxAxes, an
  // empty, repeated or ill-formed name (names are [A-Za-z_][A-Za-z0-9_]*), a size below one.
  Mesh(std::initializer_list<MeshAxis> axes);
  explicit Mesh(std::vector<MeshAxis> axes);
  // As above over the given global devices (row-major order; as many as the product, none twice).
  Mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> devices);

  // Parses "dp=4,tp=2"; also what to_string prints, "(dp=4, tp=2)".
  static Mesh parse(std::string_view text);

  bool defined() const { return state_ != nullptr; }
  const std::vector<MeshAxis>& axes() const;
  int rank() const;                                  // number of axes
  std::int64_t size() const;                         // number of devices
  std::int64_t axis_size(int axis) const;
  std::int64_t axis_size(std::string_view name) const;  // throws Error on an unknown name
  int axis(std::string_view name) const;             // index; throws Error that lists the names
  int find_axis(std::string_view name) const;        // index, or -1
  std::int64_t stride(int axis) const;               // positions between neighbours along the axis
  std::int64_t shards(AxisList axes) const;          // product of the sizes
  std::int64_t shards(AxisSet axes) const;

  // Positions are 0 .. size()-1 in row-major order; devices()[position] is the global device.
  const std::vector<std::int64_t>& devices() const;
  std::int64_t coordinate(std::int64_t position, int axis) const;
  std::vector<std::int64_t> coordinates(std::int64_t position) const;
  std::int64_t position(const std::vector<std::int64_t>& coordinates) const;

  // The rank of a position among those that differ from it only along `axes`: row-major in the
  // order in which `axes` lists them.
  std::int64_t group_rank(std::int64_t position, AxisList axes) const;
  // The positions of that group, by rank.
  std::vector<std::int64_t> group(std::int64_t position, AxisList axes) const;
  // Every group of `axes`: a partition of all positions, ordered by each group's first position.
  const std::vector<std::vector<std::int64_t>>& groups(AxisList axes) const;

  // The mesh of the named axes, in the order given, at coordinate `at` (by axis name) of the
  // others; coordinate 0 of those that `at` leaves out. Throws Error: an unknown or repeated axis,
  // one that is kept and in `at` or in `at` twice, a coordinate that the mesh does not have.
  Mesh sub_mesh(const std::vector<std::string>& axes,
                const std::vector<std::pair<std::string, std::int64_t>>& at = {}) const;

  std::string to_string() const;  // "(dp=4, tp=2)"

  // Equal axes and equal devices.
  friend bool operator==(const Mesh& a, const Mesh& b);
  // A number that equal meshes of this process share and no others: a short key for caches.
  std::uint64_t id() const;
  // The same handle; implies ==, costs one comparison.
  bool same(const Mesh& other) const { return state_ == other.state_; }

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

std::ostream& operator<<(std::ostream& out, const Mesh& mesh);

}  // namespace meshtorch
