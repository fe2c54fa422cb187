// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/mesh.h>

#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <ostream>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/mesh/scan.h>

namespace meshtorch {

using Groups = std::vector<std::vector<std::int64_t>>;

struct Mesh::State {
  std::vector<MeshAxis> axes;
  std::vector<std::int64_t> devices;
  std::vector<std::int64_t> strides;  // one per axis

  // Filled on demand, by AxisList::packed(). Nodes of a map stay where they are.
  mutable std::mutex mutex;
  mutable std::map<std::uint64_t, Groups> groups;
  mutable std::atomic<std::uint64_t> id{0};  // 0: not asked for yet
};

namespace {

std::string axes_text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : axes) parts.push_back(text(axis.name, "=", axis.size));
  return "(" + join(parts) + ")";
}

std::string names_text(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return join(names);
}

void check_axis(const MeshAxis& axis, std::set<std::string>& seen) {
  const std::string where = "axis \"" + axis.name + "\"";
  if (!is_name(axis.name)) {
    fail({.op = "Mesh", .where = where, .what = "ill-formed name",
          .remedy = "names are [A-Za-z_][A-Za-z0-9_]*"});
  }
  if (!seen.insert(axis.name).second) {
    fail({.op = "Mesh", .where = where, .what = "named twice",
          .remedy = "give each axis its own name"});
  }
  if (axis.size < 1) {
    fail({.op = "Mesh", .where = where, .what = text("size ", axis.size, ", must be at least 1"),
          .remedy = "an axis of size 1 is a no-op"});
  }
}

void check_axes(const std::vector<MeshAxis>& axes) {
  if (axes.empty()) {
    fail({.op = "Mesh", .what = "no axes", .remedy = "give at least one, as in {{\"dp\", 1}}"});
  }
  if (axes.size() > kMaxAxes) {
    fail({.op = "Mesh", .what = text("got ", axes.size(), " axes, at most ", kMaxAxes),
          .remedy = "merge some into one"});
  }
  std::set<std::string> seen;
  for (const MeshAxis& axis : axes) check_axis(axis, seen);
}

std::int64_t product(const std::vector<MeshAxis>& axes) {
  std::int64_t size = 1;
  for (const MeshAxis& axis : axes) size *= axis.size;
  return size;
}

void check_devices(const std::vector<MeshAxis>& axes, const std::vector<std::int64_t>& devices) {
  const std::int64_t size = product(axes);
  if (static_cast<std::int64_t>(devices.size()) != size) {
    fail({.op = "Mesh", .where = "devices",
          .what = text("got ", devices.size(), ", expected ", size, " for ", axes_text(axes)),
          .remedy = "list one device per position"});
  }
  std::set<std::int64_t> seen;
  for (const std::int64_t device : devices) {
    if (device < 0) {
      fail({.op = "Mesh", .where = "devices", .what = text("got device ", device),
            .remedy = "devices are numbered from 0"});
    }
    if (!seen.insert(device).second) {
      fail({.op = "Mesh", .where = "devices", .what = text("device ", device, " is listed twice"),
            .remedy = "a device has one position"});
    }
  }
}

// One entry of sub_mesh's `at`.
void check_fixed(const std::string& name, std::int64_t coordinate, std::int64_t size, bool is_kept,
                 bool is_fixed) {
  const std::string where = "axis \"" + name + "\"";
  if (is_kept) {
    fail({.op = "sub_mesh", .where = where, .what = "both kept and fixed",
          .remedy = "drop it from one of the two lists"});
  }
  if (is_fixed) {
    fail({.op = "sub_mesh", .where = where, .what = "fixed twice",
          .remedy = "give it one coordinate"});
  }
  if (coordinate < 0 || coordinate >= size) {
    fail({.op = "sub_mesh", .where = where,
          .what = text("coordinate ", coordinate, ", expected 0 to ", size - 1),
          .remedy = "choose one that the mesh has"});
  }
}

std::vector<std::int64_t> strides_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::int64_t> strides(axes.size());
  std::int64_t stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= axes[i].size;
  }
  return strides;
}

// Only meshes that were asked for their number are kept.
std::uint64_t number_of(const std::vector<MeshAxis>& axes,
                        const std::vector<std::int64_t>& devices) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::vector<std::int64_t>>, std::uint64_t> numbers;
  const std::lock_guard lock(mutex);
  return numbers.try_emplace({axes_text(axes), devices}, numbers.size() + 1).first->second;
}

std::vector<std::int64_t> first_devices(const std::vector<MeshAxis>& axes) {
  check_axes(axes);
  std::vector<std::int64_t> devices(static_cast<std::size_t>(product(axes)));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

}  // namespace

Mesh::Mesh(std::initializer_list<MeshAxis> axes) : Mesh(std::vector<MeshAxis>(axes)) {}

Mesh::Mesh(std::vector<MeshAxis> axes) : Mesh(axes, first_devices(axes)) {}

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> devices) {
  check_axes(axes);
  check_devices(axes, devices);
  auto state = std::make_shared<State>();
  state->strides = strides_of(axes);
  state->axes = std::move(axes);
  state->devices = std::move(devices);
  state_ = std::move(state);
}

Mesh Mesh::parse(std::string_view text) {
  Scanner scan(text, "Mesh::parse", "write it as \"dp=4,tp=2\"");
  const bool parentheses = scan.accept("(");
  std::vector<MeshAxis> axes;
  do {
    std::string name = scan.name();
    scan.expect("=");
    axes.push_back({std::move(name), scan.integer()});
  } while (scan.accept(","));
  if (parentheses) scan.expect(")");
  scan.expect_end();
  return Mesh(std::move(axes));
}

const std::vector<MeshAxis>& Mesh::axes() const { return state_->axes; }
int Mesh::rank() const { return static_cast<int>(state_->axes.size()); }
std::int64_t Mesh::size() const { return static_cast<std::int64_t>(state_->devices.size()); }
std::int64_t Mesh::axis_size(int axis) const { return state_->axes[axis].size; }
std::int64_t Mesh::axis_size(std::string_view name) const { return axis_size(axis(name)); }
std::int64_t Mesh::stride(int axis) const { return state_->strides[axis]; }
const std::vector<std::int64_t>& Mesh::devices() const { return state_->devices; }

int Mesh::axis(std::string_view name) const {
  const int found = find_axis(name);
  if (found >= 0) return found;
  fail({.op = "Mesh", .what = text("\"", name, "\" is not an axis of mesh ", to_string()),
        .remedy = "use one of: " + names_text(axes())});
}

int Mesh::find_axis(std::string_view name) const {
  for (int i = 0; i < rank(); ++i) {
    if (state_->axes[i].name == name) return i;
  }
  return -1;
}

std::uint64_t Mesh::id() const {
  std::uint64_t id = state_->id.load(std::memory_order_relaxed);
  if (id == 0) {
    id = number_of(state_->axes, state_->devices);
    state_->id.store(id, std::memory_order_relaxed);
  }
  return id;
}

std::int64_t Mesh::shards(AxisList axes) const { return shards(axes.set()); }

std::int64_t Mesh::shards(AxisSet axes) const {
  std::int64_t product = 1;
  for (const int axis : axes) product *= axis_size(axis);
  return product;
}

std::int64_t Mesh::coordinate(std::int64_t position, int axis) const {
  return position / stride(axis) % axis_size(axis);
}

std::vector<std::int64_t> Mesh::coordinates(std::int64_t position) const {
  std::vector<std::int64_t> all;
  for (int axis = 0; axis < rank(); ++axis) all.push_back(coordinate(position, axis));
  return all;
}

std::int64_t Mesh::position(const std::vector<std::int64_t>& coordinates) const {
  return std::inner_product(coordinates.begin(), coordinates.end(), state_->strides.begin(),
                            std::int64_t{0});
}

std::int64_t Mesh::group_rank(std::int64_t position, AxisList axes) const {
  std::int64_t rank = 0;
  for (int i = 0; i < axes.size(); ++i) {
    rank = rank * axis_size(axes[i]) + coordinate(position, axes[i]);
  }
  return rank;
}

std::vector<std::int64_t> Mesh::group(std::int64_t position, AxisList axes) const {
  std::int64_t first = position;
  for (const int axis : axes.set()) first -= coordinate(position, axis) * stride(axis);
  std::vector<std::int64_t> members{first};
  for (int i = 0; i < axes.size(); ++i) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t member : members) {
      for (std::int64_t c = 0; c < axis_size(axes[i]); ++c) {
        finer.push_back(member + c * stride(axes[i]));
      }
    }
    members = std::move(finer);
  }
  return members;
}

const Groups& Mesh::groups(AxisList axes) const {
  const std::lock_guard lock(state_->mutex);
  const auto [entry, is_new] = state_->groups.try_emplace(axes.packed());
  if (!is_new) return entry->second;
  for (std::int64_t position = 0; position < size(); ++position) {
    if (group_rank(position, axes) == 0) entry->second.push_back(group(position, axes));
  }
  return entry->second;
}

Mesh Mesh::sub_mesh(const std::vector<std::string>& axes,
                    const std::vector<std::pair<std::string, std::int64_t>>& at) const {
  std::vector<MeshAxis> kept;
  for (const std::string& name : axes) kept.push_back({name, axis_size(name)});
  check_axes(kept);
  AxisList list;
  for (const std::string& name : axes) list.push_back(axis(name));

  std::int64_t first = 0;
  AxisSet fixed;
  for (const auto& [name, coordinate] : at) {
    const int axis = this->axis(name);
    check_fixed(name, coordinate, axis_size(axis), list.contains(axis), fixed.contains(axis));
    fixed.insert(axis);
    first += coordinate * stride(axis);
  }
  std::vector<std::int64_t> devices;
  for (const std::int64_t member : group(first, list)) devices.push_back(this->devices()[member]);
  return Mesh(std::move(kept), std::move(devices));
}

std::string Mesh::to_string() const { return defined() ? axes_text(axes()) : "(no mesh)"; }

bool operator==(const Mesh& a, const Mesh& b) {
  if (a.same(b)) return true;
  if (!a.defined() || !b.defined()) return false;
  return a.axes() == b.axes() && a.devices() == b.devices();
}

std::ostream& operator<<(std::ostream& out, const Mesh& mesh) { return out << mesh.to_string(); }

}  // namespace meshtorch
