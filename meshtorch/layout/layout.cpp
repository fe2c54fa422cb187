// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/layout.h>

#include <algorithm>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// Where a complaint is: "mlp.up.weight dim 0", "dim 0".
struct Place {
  const std::string& op;
  const std::string& where;

  std::string at(const std::string& part) const {
    return where.empty() ? part : where + " " + part;
  }
};

int find(const Mesh& mesh, const std::string& name, const Place& place, const std::string& part) {
  const int axis = mesh.find_axis(name);
  if (axis >= 0) return axis;
  std::vector<std::string> names;
  for (const MeshAxis& each : mesh.axes()) names.push_back(each.name);
  fail({.op = place.op, .where = place.at(part),
        .what = text("axis \"", name, "\" is not an axis of mesh ", mesh),
        .remedy = "use one of: " + join(names)});
}

void check(const Mesh& mesh, const PartitionSpec& spec, std::int64_t rank, const Place& place) {
  if (!mesh.defined()) {
    fail({.op = place.op, .where = place.where, .what = text(spec, " has no mesh"),
          .remedy = "make one with Runtime::make_mesh"});
  }
  if (static_cast<std::int64_t>(spec.dims().size()) > rank) {
    fail({.op = place.op, .where = place.where,
          .what = text(spec, " names ", spec.dims().size(), " dims, the tensor has ", rank),
          .remedy = "drop dims from the spec"});
  }
}

}  // namespace

AxisSet Layout::sharded() const {
  AxisSet axes;
  for (const AxisList& list : dims) axes = axes | list.set();
  return axes;
}

int Layout::dim_of(int axis) const {
  const auto found = std::ranges::find_if(dims, [&](AxisList list) { return list.contains(axis); });
  return found == dims.end() ? -1 : static_cast<int>(found - dims.begin());
}

bool Layout::is_replicated() const {
  return unreduced.empty() && std::ranges::all_of(dims, &AxisList::empty);
}

Layout resolve(const Mesh& mesh, const PartitionSpec& spec, std::int64_t rank,
               const std::string& op, const std::string& where) {
  const Place place{op, where};
  check(mesh, spec, rank, place);
  Layout layout = Layout::replicated(rank);
  for (std::size_t d = 0; d < spec.dims().size(); ++d) {
    for (const std::string& name : spec.dims()[d]) {
      layout.dims[d].push_back(find(mesh, name, place, text("dim ", d)));
    }
  }
  for (const std::string& name : spec.unreduced_axes()) {
    layout.unreduced.insert(find(mesh, name, place, "unreduced"));
  }
  return layout;
}

PartitionSpec spec_of(const Mesh& mesh, const Layout& layout) {
  std::vector<DimSpec> dims;
  for (const AxisList& list : layout.dims) {
    DimSpec& dim = dims.emplace_back();
    for (int i = 0; i < list.size(); ++i) dim.push_back(mesh.axes()[list[i]].name);
  }
  std::vector<std::string> unreduced;
  for (const int axis : layout.unreduced) unreduced.push_back(mesh.axes()[axis].name);
  return PartitionSpec::from(std::move(dims), std::move(unreduced));
}

std::string to_string(const Mesh& mesh, const Layout& layout) {
  return spec_of(mesh, layout).to_string();
}

}  // namespace meshtorch
