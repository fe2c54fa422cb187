// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/environment.h>

namespace meshtorch::suite {
namespace {

using Devices = std::vector<std::int64_t>;

// Device 0 of every process, then device 1 of every process, ...
Devices alternating(std::int64_t processes, std::int64_t per_process) {
  Devices devices;
  for (std::int64_t device = 0; device < per_process; ++device) {
    for (std::int64_t process = 0; process < processes; ++process)
      devices.push_back(process * per_process + device);
  }
  return devices;
}

Devices first(Devices devices, std::int64_t count) {
  devices.resize(static_cast<std::size_t>(count));
  return devices;
}

// The same shuffle in every process and library.
Devices shuffled(std::int64_t count) {
  Devices devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), 0);
  std::mt19937 random(7);
  for (std::size_t i = devices.size(); i > 1; --i) std::swap(devices[i - 1], devices[random() % i]);
  return devices;
}

Layout layout(AxisList first, AxisList second) { return {{first, second}, {}}; }

// Two dims cut over the axes, the whole drawn once.
Case permuted(const Mesh& mesh, AxisList axes, const Shape& shape, Layout from, Layout to,
              at::ScalarType dtype) {
  const at::Tensor whole = values(shape, dtype, 77);
  Case test{Request::permute(mesh, shape, axes, std::move(from), std::move(to)), {}};
  for (std::int64_t position = 0; position < mesh.size(); ++position)
    test.inputs.push_back(cut(mesh, whole, test.request.from, position).clone());
  return test;
}

AxisList reversed(AxisList axes) {
  AxisList result;
  for (int i = axes.size(); i-- > 0;) result.push_back(axes[i]);
  return result;
}

}  // namespace

std::string name(const testing::TestParamInfo<World>& info) {
  return text(info.param.simulated ? "simulated" : "devices", info.param.devices);
}

std::vector<World> real_worlds() {
  std::vector<World> worlds{{1}, {2}, {3}, {4}};
  if (read_environment().processes == 1) worlds.insert(worlds.end(), {{5}, {6}, {8}});
  return worlds;
}

std::vector<World> worlds() {
  std::vector<World> worlds = real_worlds();
  if (read_environment().processes > 1) return worlds;
  for (const std::int64_t devices : {1, 2, 3, 4, 6, 8}) worlds.push_back({devices, true});
  return worlds;
}

void CommunicatorTest::SetUp() {
  processes_ = read_environment().processes;
  const std::int64_t devices = GetParam().devices;
  communicator_ = GetParam().simulated ? make_local_communicator(processes_ * devices)
                                       : make_communicator({.devices = devices, .timeout = 60});
}

std::vector<Mesh> CommunicatorTest::meshes() const {
  const std::int64_t k = GetParam().devices, all = devices();
  const Devices mixed = alternating(processes_, k);
  std::vector<Mesh> meshes{Mesh({{"a", all}}), Mesh(std::vector<MeshAxis>{{"a", all}}, mixed),
                           Mesh(std::vector<MeshAxis>{{"a", all}}, shuffled(all)),
                           Mesh({{"a", k}, {"b", processes_}}),
                           Mesh(std::vector<MeshAxis>{{"a", processes_}, {"b", k}}, shuffled(all))};
  for (const std::int64_t size : {3, 5, 6, 7}) {
    if (size >= processes_ && size < all)
      meshes.emplace_back(std::vector<MeshAxis>{{"a", size}}, first(mixed, size));
  }
  if (all >= 6 && processes_ <= 6) {
    meshes.emplace_back(std::vector<MeshAxis>{{"a", 2}, {"b", 3}}, first(mixed, 6));
    meshes.emplace_back(std::vector<MeshAxis>{{"a", 3}, {"b", 1}, {"c", 2}}, first(mixed, 6));
  }
  if (all % 4 == 0) meshes.push_back(Mesh({{"a", 2}, {"b", all / 4}, {"c", 2}}));
  return meshes;
}

std::vector<AxisList> axis_lists(const Mesh& mesh) {
  std::vector<AxisList> lists;
  AxisList all;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    lists.push_back(AxisList::of(axis));
    all.push_back(axis);
  }
  if (mesh.rank() > 1) {
    lists.push_back(all);
    lists.push_back(reversed(all));
  }
  return lists;
}

at::Tensor values(const Shape& shape, at::ScalarType dtype, std::uint64_t seed) {
  const at::Generator random = at::detail::createCPUGenerator(seed);
  if (at::isFloatingType(dtype)) return at::randn(shape, random, at::kDouble).to(dtype);
  if (dtype == at::kBool) return at::rand(shape, random).lt(0.3);
  return at::randint(0, dtype == at::kByte ? 256 : 2000, shape, random, at::kLong).to(dtype);
}

std::vector<Case> CommunicatorTest::every_kind(const Mesh& mesh, AxisList axes, const Shape& shape,
                                               at::ScalarType dtype) {
  const std::int64_t last = mesh.shards(axes) - 1;
  std::vector<Request> requests{Request::all_reduce(mesh, axes),
                                Request::all_reduce(mesh, axes, Reduction::max),
                                Request::all_reduce(mesh, axes, Reduction::min),
                                Request::reduce_scatter(mesh, axes, 0),
                                Request::reduce_scatter(mesh, axes, 1),
                                Request::broadcast(mesh, axes, 0),
                                Request::broadcast(mesh, axes, last)};
  for (const bool even : {false, true}) {
    for (const std::int64_t dim : {0, 1}) {
      requests.push_back(Request::all_gather(mesh, axes, dim));
      requests.back().even = even;
      requests.push_back(Request::all_to_all(mesh, axes, dim, 1 - dim));
      requests.back().even = even;
    }
  }
  std::vector<Case> cases;
  for (Request& request : requests) {
    Case& test = cases.emplace_back(Case{std::move(request), {}});
    for (std::int64_t position = 0; position < mesh.size(); ++position)
      test.inputs.push_back(values(shape, dtype, static_cast<std::uint64_t>(1000 + position)));
  }
  const AxisList other = reversed(axes);
  cases.push_back(permuted(mesh, axes, shape, layout(axes, {}), layout({}, axes), dtype));
  cases.push_back(permuted(mesh, axes, shape, layout(axes, {}), layout(other, {}), dtype));
  cases.push_back(permuted(mesh, axes, shape, layout({}, axes), layout({}, {}), dtype));
  return cases;
}

Case uneven_gather(const Mesh& mesh, AxisList axes, const Shape& shape, std::int64_t dim,
                   at::ScalarType dtype) {
  Case test{Request::all_gather(mesh, axes, dim), {}};
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    Shape own = shape;
    own[static_cast<std::size_t>(dim)] = (position * 5 + 2) % 4;
    test.inputs.push_back(values(own, dtype, static_cast<std::uint64_t>(position)));
  }
  return test;
}

}  // namespace meshtorch::suite
