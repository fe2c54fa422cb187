// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/leaf_checks.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {
namespace {

// "tp=2", "(fsdp=2, tp=4)".
std::string axes_text(const Mesh& mesh, AxisList axes) {
  std::vector<std::string> parts;
  for (int i = 0; i < axes.size(); ++i) {
    parts.push_back(text(mesh.axes()[axes[i]].name, "=", mesh.axis_size(axes[i])));
  }
  return parts.size() == 1 ? parts[0] : "(" + join(parts) + ")";
}

bool divides(const Mesh& mesh, std::int64_t size, AxisList axes) {
  return size % mesh.shards(axes) == 0;
}

int empty_shards(const Mesh& mesh, std::int64_t size, AxisList axes) {
  int empty = 0;
  for (const std::int64_t position : mesh.group(0, axes)) {
    empty += shard_interval(mesh, size, axes, position).size() == 0;
  }
  return empty;
}

}  // namespace

void add_note(std::string& note, const std::string& more) {
  if (more.empty()) return;
  note += (note.empty() ? "" : "; ") + more;
}

void refuse_cut_heads(const Mesh& mesh, const Leaf& leaf, const Heads& said, const Layout& layout,
                      const std::string& op, const std::string& where) {
  const Heads& heads = said.count != 0 ? said : leaf.heads;
  const auto dim = static_cast<std::size_t>(heads.dim);
  if (heads.count == 0 || dim >= leaf.shape.size()) return;
  const std::string at = text(where, " dim ", dim);
  if (heads.count < 0 || !(leaf.shape[dim] % heads.count == 0)) {
    fail({op, at, text(leaf.shape[dim], " is not ", heads.count, " heads of one size"),
          "say how many heads the dim is"});
  }
  const AxisList axes = layout.dims[dim];
  if (axes.empty() || divides(mesh, heads.count, axes)) return;
  const std::int64_t shards = mesh.shards(axes);
  const std::string what = text(heads.count, " heads over ", axes_text(mesh, axes));
  if (heads.count < shards) {
    fail({op, at, text(what, ", fewer than the ", shards, " devices"),
          text("take a smaller axis, or replicate groups: split it into two axes and shard these ",
               "heads over one of at most ", heads.count)});
  }
  fail({op, at, text(what, " would cut heads"), "take an axis whose size divides the heads"});
}

void refuse_uneven(const Mesh& mesh, const Leaf& leaf, const Layout& layout, const std::string& op,
                   const std::string& where) {
  for (std::size_t d = 0; d < leaf.shape.size(); ++d) {
    const std::int64_t shards = mesh.shards(layout.dims[d]);
    if (leaf.shape[d] % shards == 0) continue;
    fail({op, text(where, " dim ", d),
          text(leaf.shape[d], " does not divide over ", axes_text(mesh, layout.dims[d])),
          text("pad it to ", (leaf.shape[d] / shards + 1) * shards,
               ", shard another dim, or leave out even()")});
  }
}

std::string uneven_note(const Mesh& mesh, const Leaf& leaf, const Layout& layout) {
  std::string note;
  for (std::size_t d = 0; d < leaf.shape.size(); ++d) {
    const AxisList axes = layout.dims[d];
    if (axes.empty() || divides(mesh, leaf.shape[d], axes)) continue;
    const int empty = empty_shards(mesh, leaf.shape[d], axes);
    add_note(note, text("uneven: dim ", d, " of ", leaf.shape[d], " over ", axes_text(mesh, axes),
                        empty > 0 ? text(", ", empty, " empty") : ""));
  }
  return note;
}

}  // namespace meshtorch
