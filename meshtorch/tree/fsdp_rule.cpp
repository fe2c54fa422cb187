// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/fsdp_rule.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>
#include <meshtorch/layout/divisible_dim.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/mesh/scan.h>

namespace meshtorch {
namespace {

int axis_of(const Mesh& mesh, const std::string& name, const Leaf& leaf) {
  const int axis = mesh.find_axis(name);
  if (axis >= 0) return axis;
  std::vector<std::string> names;
  for (const MeshAxis& each : mesh.axes()) names.push_back(each.name);
  fail({.op = FsdpRule::kKind,
        .where = leaf.path,
        .what = text("axis \"", name, "\" is not an axis of mesh ", mesh),
        .remedy = "use one of: " + join(names)});
}

}  // namespace

FsdpRule::FsdpRule(std::string axis, FsdpOptions options)
    : axis_(std::move(axis)), options_(options) {
  if (!is_name(axis_)) {
    fail({.op = kKind,
          .what = text("\"", axis_, "\" is an ill-formed axis name"),
          .remedy = "name one axis of the mesh"});
  }
  if (options_.min_size < 0) {
    fail({.op = kKind,
          .where = "min_size",
          .what = text(options_.min_size, " elements"),
          .remedy = "take 0 to shard whatever divides"});
  }
}

FsdpRule::Addition FsdpRule::add(const Mesh& mesh, const Leaf& leaf, const Layout& given) const {
  const int axis = axis_of(mesh, axis_, leaf);
  const auto left = [&](const std::string& why) { return Addition{given, false, why}; };
  if (leaf.buffer) return left("");
  if ((given.sharded() | given.unreduced).contains(axis)) return left("uses " + axis_ + " already");
  const std::int64_t size = numel(leaf.shape);
  if (size < options_.min_size) {
    return left(text("not over ", axis_, ": ", with_commas(size), " elements of ",
                     with_commas(options_.min_size)));
  }
  const int dim = divisible_dim(mesh, leaf.shape, given, axis);
  if (dim < 0) return left(text("not over ", axis_, ": no dim divides"));
  Addition addition{given, true, ""};
  addition.layout.dims[static_cast<std::size_t>(dim)].push_back(axis);
  return addition;
}

}  // namespace meshtorch
