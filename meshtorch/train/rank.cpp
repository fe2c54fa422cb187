// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/redistribute.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/train/rank_agreement.h>

namespace meshtorch {
namespace {

AxisSet manual_set(const Mesh& mesh, const std::vector<std::string>& names) {
  AxisSet manual;
  for (const std::string& name : names) {
    const int axis = mesh.find_axis(name);
    if (axis >= 0 && !manual.contains(axis)) {
      manual.insert(axis);
      continue;
    }
    fail({.op = "local_map",
          .where = text("manual axis \"", name, "\""),
          .what = axis < 0 ? text("is not an axis of mesh ", mesh) : "is named twice",
          .remedy = "name axes of the mesh, each once"});
  }
  if (!names.empty()) return manual;
  for (int axis = 0; axis < mesh.rank(); ++axis) manual.insert(axis);
  return manual;
}

std::string coordinates_text(const Mesh& mesh, AxisSet axes, std::int64_t position) {
  std::vector<std::string> parts;
  for (const int axis : axes)
    parts.push_back(text(mesh.axes()[static_cast<std::size_t>(axis)].name, "=",
                         mesh.coordinate(position, axis)));
  return join(parts);
}

// The devices of a rank as a mesh of the automatic axes.
Mesh own_mesh(const RankGrid& grid, std::int64_t position) {
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::int64_t>> at;
  for (int axis = 0; axis < grid.mesh.rank(); ++axis) {
    const std::string& name = grid.mesh.axes()[static_cast<std::size_t>(axis)].name;
    if (grid.manual.contains(axis)) {
      at.emplace_back(name, grid.mesh.coordinate(position, axis));
    } else {
      names.push_back(name);
    }
  }
  return grid.mesh.sub_mesh(names, at);
}

// The scope of a rank where the caller's are open.
std::optional<named_scope> open_scope(const std::string& path) {
  const std::string& open = named_scope::path();
  if (path == open) return std::nullopt;
  const bool below = !open.empty() && path.starts_with(open + "/");
  return std::optional<named_scope>(std::in_place, below ? path.substr(open.size() + 1) : path);
}

// What the device that sends most sends (layout/plan.h); `bytes` of what it gives.
std::int64_t bytes_of(const RankMeeting& asked, std::int64_t bytes, std::int64_t n) {
  switch (asked.kind) {
    case Collective::all_reduce:
      return (2 * (n - 1) * bytes + n - 1) / n;
    case Collective::all_gather:
      return (n - 1) * bytes;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return (n - 1) * (bytes / n);
    default:
      return std::ranges::all_of(asked.pairs, [](auto pair) { return pair.first == pair.second; })
                 ? 0
                 : bytes;
  }
}

Request request_for(const Mesh& mesh, const RankMeeting& asked) {
  return {.kind = asked.kind,
          .mesh = mesh,
          .axes = asked.axes,
          .dim = asked.dim,
          .concat_dim = asked.concat_dim,
          .reduction = asked.reduction,
          .even = true};
}

// For each position, by the group's rank: who sends to it, or -1.
std::vector<std::int64_t> senders(const RankMeeting& asked, std::int64_t n) {
  std::vector<std::int64_t> from(static_cast<std::size_t>(n), -1);
  for (const auto& [source, destination] : asked.pairs)
    from[static_cast<std::size_t>(destination)] = source;
  return from;
}

at::Tensor received(const at::Tensor& mine, const at::Tensor* sent) {
  if (sent == nullptr) return at::zeros(mine.sizes(), mine.options());
  return mine.is_meta() ? at::empty(mine.sizes(), mine.options())
                        : sent->clone(at::MemoryFormat::Contiguous);
}

// All devices are this process's: a permutation is copies.
Shards permute_here(const RankGrid& grid, const RankMeeting& asked, const Shards& shards,
                    const Weight& weight, const Cause& cause) {
  record_collective(request_for(grid.mesh, asked), weight, cause);
  const auto from = senders(asked, grid.mesh.shards(asked.axes));
  Shards results(shards.size());
  for (const auto& group : grid.mesh.groups(asked.axes)) {
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
      const auto at = [&](std::int64_t r) {
        return static_cast<std::size_t>(group[static_cast<std::size_t>(r)]);
      };
      const std::size_t mine = at(static_cast<std::int64_t>(rank));
      results[mine] = received(shards[mine], from[rank] < 0 ? nullptr : &shards[at(from[rank])]);
    }
  }
  return results;
}

// A communicator knows no permutation of whole shards: everyone's are gathered, and one is taken.
Shards permute_gathered(const RankGrid& grid, const RankMeeting& asked, const Shards& shards,
                        const Cause& cause) {
  const std::int64_t n = grid.mesh.shards(asked.axes);
  Shards rows;
  for (const at::Tensor& shard : shards) rows.push_back(shard.unsqueeze(0));
  Request request = Request::all_gather(grid.mesh, asked.axes, 0);
  request.even = true;
  const auto bytes = static_cast<std::int64_t>(shards.front().nbytes());
  const Shards all = run_collective(std::move(request), rows, {.bytes = (n - 1) * bytes}, cause);
  const auto from = senders(asked, n);
  const auto& positions = Runtime::current().communicator().addressable(grid.mesh);
  Shards results;
  for (std::size_t d = 0; d < shards.size(); ++d) {
    const auto rank = static_cast<std::size_t>(grid.mesh.group_rank(positions[d], asked.axes));
    const at::Tensor sent = from[rank] < 0 ? at::Tensor() : all[d].select(0, from[rank]);
    results.push_back(received(shards[d], from[rank] < 0 ? nullptr : &sent));
  }
  return results;
}

Shards run_asked(const RankGrid& grid, const RankMeeting& asked, const Shards& shards) {
  at::AutoDispatchBelowADInplaceOrView below;
  const auto scope = open_scope(asked.scope);
  const Cause cause{.op = asked.op, .origin = Origin::asked, .where = ""};
  const auto given = static_cast<std::int64_t>(shards.front().nbytes());
  const Weight weight{.bytes = bytes_of(asked, given, grid.mesh.shards(asked.axes))};
  if (asked.kind != Collective::permute)
    return run_collective(request_for(grid.mesh, asked), shards, weight, cause);
  if (Runtime::current().processes() == 1) return permute_here(grid, asked, shards, weight, cause);
  return permute_gathered(grid, asked, shards, cause);
}

bool has_gradients(at::ScalarType type) {
  return at::isFloatingType(type) || at::isComplexType(type);
}

}  // namespace

RankGrid::RankGrid(const Mesh& mesh, const std::vector<std::string>& manual_axes)
    : mesh(mesh), manual(manual_set(mesh, manual_axes)) {
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    if (!manual.contains(axis)) automatic.push_back(axis);
  }
  for (const int axis : manual) manual_order.push_back(axis);
  const std::int64_t each = mesh.size() / count();
  const auto& positions = Runtime::current().communicator().addressable(mesh);
  if (positions.empty()) {
    fail({.op = "local_map",
          .where = text("mesh ", mesh),
          .what = text("has no device of process ", Runtime::current().process()),
          .remedy = "make the mesh with Runtime::make_mesh, which gives every process a part"});
  }
  std::map<std::int64_t, RankPlace> by_rank;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    RankPlace& place = by_rank[mesh.group_rank(positions[d], manual_order)];
    if (place.devices.empty()) place.position = positions[d];
    place.devices.push_back(d);
  }
  for (auto& [number, place] : by_rank) {
    place.number = number;
    place.name = coordinates_text(mesh, manual, place.position);
    if (static_cast<std::int64_t>(place.devices.size()) != each) {
      fail({.op = "local_map",
            .where = text("rank (", place.name, ") of mesh ", mesh),
            .what = text("has ", each, " devices, of which process ", Runtime::current().process(),
                         " holds ", place.devices.size()),
            .remedy = "order the mesh's axes so that the manual ones come first, or start fewer "
                      "processes: a rank's devices must be of one process"});
    }
    if (each > 1) place.mesh = own_mesh(*this, place.position);
    ranks.push_back(std::move(place));
  }
}

std::size_t RankGrid::devices() const {
  return Runtime::current().communicator().addressable(mesh).size();
}

std::string RankGrid::manual_names() const {
  std::vector<std::string> names;
  for (const int axis : manual) names.push_back(mesh.axes()[static_cast<std::size_t>(axis)].name);
  return join(names);
}

std::int64_t RankGrid::count() const { return mesh.shards(manual_order); }

std::int64_t RankGrid::position_of(std::int64_t number) const {
  return mesh.group(0, manual_order)[static_cast<std::size_t>(number)];
}

std::string RankGrid::name_of(std::int64_t number) const {
  return coordinates_text(mesh, manual, position_of(number));
}

int RankGrid::automatic_index(int axis) const {
  return static_cast<int>(std::find(automatic.begin(), automatic.end(), axis) - automatic.begin());
}

void serve_meeting(const RankGrid& grid, const std::vector<RankTurns::Meeting*>& meetings) {
  Shards all(grid.devices());
  bool recorded = false;
  for (std::size_t rank = 0; rank < meetings.size(); ++rank) {
    const auto& meeting = static_cast<RankMeeting&>(*meetings[rank]);
    const auto& devices = grid.ranks[rank].devices;
    for (std::size_t d = 0; d < devices.size(); ++d) all[devices[d]] = meeting.shards[d];
    recorded = recorded || meeting.recorded;
  }
  // What cannot have a gradient asks no other process.
  if (has_gradients(all.front().scalar_type()) && !c10::InferenceMode::is_enabled())
    recorded = on_any_rank(grid, {recorded}).front();
  const Shards results = run_asked(grid, static_cast<RankMeeting&>(*meetings.front()), all);
  for (std::size_t rank = 0; rank < meetings.size(); ++rank) {
    auto& meeting = static_cast<RankMeeting&>(*meetings[rank]);
    const auto& devices = grid.ranks[rank].devices;
    for (std::size_t d = 0; d < devices.size(); ++d) meeting.shards[d] = results[devices[d]];
    meeting.recorded = recorded;
  }
}

Rank& Rank::current(const std::string& op) {
  if (current_ != nullptr) return *current_;
  fail({.op = op,
        .where = "",
        .what = "is called outside of local_map, where there are no ranks",
        .remedy =
            "call it in the function that local_map runs, or use reshard, which changes how a "
            "sharded tensor lies"});
}

AxisList Rank::manual_axes(const std::string& op, const std::vector<std::string>& names) const {
  AxisList axes;
  for (const std::string& name : names) {
    const int axis = grid.mesh.find_axis(name);
    if (axis >= 0 && grid.manual.contains(axis) && !axes.contains(axis)) {
      axes.push_back(axis);
      continue;
    }
    std::string what = text("is not an axis of mesh ", grid.mesh);
    if (axis >= 0 && axes.contains(axis)) what = "is named twice";
    if (axis >= 0 && !grid.manual.contains(axis)) what = "is automatic in this local_map";
    fail({.op = op,
          .where = text("axis \"", name, "\""),
          .what = what,
          .remedy = text("name manual axes, each once: ", grid.manual_names())});
  }
  return axes;
}

}  // namespace meshtorch
