// SPDX-License-Identifier: Apache-2.0
//
// pmap: a function of one device's data, mapped over one axis of a mesh (JAX: pmap, Flax NNX: nnx.pmap). It
// is local_map with dims in place of specs: a dim that is mapped, as long as the axis, is not there in fn.
//
//   auto step = mt::pmap(
//       [](Cnn& model, const Tensor& images, const Tensor& labels) {   // one device's images
//         return mt::pmean(loss(model->forward(images), labels), "dp");
//       },
//       mesh, "dp",
//       {mt::StateAxes{{mt::Kind::parameter, mt::StateAxis::broadcast},
//                      {mt::Kind::random_state, mt::StateAxis::split},
//                      {mt::Kind::batch_statistic, mt::StateAxis::mean}}, 0, 0},
//       std::nullopt);
//   step(model, images, labels).backward();                // images: [devices, batch, ...]
//
// Everything that local_map.h says holds: trees, gradients (those of what is broadcast are unreduced over the
// axis), collectives by the axis's name, other axes automatic, errors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <meshtorch/tensor/state.h>
#include <meshtorch/train/local_map.h>

namespace meshtorch {

// What each device has of a kind of state.
enum class StateAxis {
  broadcast,  // the same. Random state: the same numbers. A buffer that fn writes is an Error.
  split,  // its own. Random state: a stream of its own. A batch statistic: split_state makes it so.
  mean,  // of a batch statistic: the same, and what the devices make of it is averaged after the call
};

// How a module's state lies on the devices, by kind. Kinds that are not named: broadcast, but random state
// split.
class StateAxes {
 public:
  StateAxes() = default;
  // Throws Error: a kind twice, parameters that are not broadcast, buffers that are mean, random state
  // that is mean.
  StateAxes(std::initializer_list<std::pair<Kind, StateAxis>> axes);

  StateAxis of(Kind kind) const;
  bool names(Kind kind) const { return axes_.contains(kind); }

 private:
  std::map<Kind, StateAxis> axes_;
};

// Of an argument: the dim that is mapped, of every tensor in it, none of which may be a module's; nullopt: all
// devices have all of it; StateAxes: so, but a module's state by its kind. Several StateAxes that name
// the random state must agree.
using PmapAxis = std::variant<std::nullopt_t, std::int64_t, StateAxes>;

// Of the result: where the mapped dim is put, of every tensor in it, or of each; nullopt: every device
// returns the same, and nothing is put.
class PmapOut {
 public:
  PmapOut(std::nullopt_t) : axes_{std::nullopt} {}  // NOLINT: reads as a value
  PmapOut(std::int64_t axis) : axes_{axis} {}       // NOLINT
  PmapOut(std::initializer_list<std::optional<std::int64_t>> each) : axes_(each) {}

  // Throws Error where there is neither one nor one for each.
  std::vector<std::optional<std::int64_t>> of(std::size_t leaves) const;

 private:
  std::vector<std::optional<std::int64_t>> axes_;
};

// Gives each device of the axis its own copy of the module's batch statistics (or buffers), in place: a
// buffer of shape [...] becomes one of [devices, ...], sharded over the axis, which StateAxis::split maps over.
// The module itself cannot run on them; merge_state takes their mean (integers: the largest), whole on every
// device, and it can. Split is what has a leading dim, as long as the axis and sharded over it alone: other
// buffers merge_state leaves alone, however rules shard them, and split_state leaves alone what is split.
// Throws Error for other kinds.
void split_state(torch::nn::Module& module, Kind kind, const Mesh& mesh, const std::string& axis);
void merge_state(torch::nn::Module& module, Kind kind, const std::string& axis);

namespace detail {

// What pmap says to local_map. Throws Error, later and with the path: a tensor whose mapped dim is not as
// long as the axis, or that is a module's; a batch statistic that is split and not yet so.
RankSpecs pmap_argument(const Mesh& mesh, const std::string& axis, const PmapAxis& in);
RankSpecs pmap_result(const std::string& axis, const PmapOut& out);
LocalMapOptions pmap_options(const std::string& axis, const std::vector<PmapAxis>& in);
std::vector<at::Tensor> add_dims(const std::vector<at::Tensor>& leaves, const PmapOut& out);

// The argument as fn sees it.
template <class T>
T without_mapped(const T& argument, const PmapAxis& in) {
  const auto* dim = std::get_if<std::int64_t>(&in);
  if (dim == nullptr) return argument;
  return tree_map([&](const at::Tensor& x) { return x.squeeze(*dim); }, argument);
}

template <class Fn>
struct PmapFn {
  Fn fn;
  std::vector<PmapAxis> in;
  PmapOut out;

  template <class... Arguments>
  auto operator()(Arguments&... arguments) {
    auto mine = seen(std::index_sequence_for<Arguments...>(), arguments...);
    auto result = std::apply(fn, mine);
    return tree_unflatten(result, add_dims(tree_leaves(result), out));
  }

 private:
  template <std::size_t... i, class... Arguments>
  auto seen(std::index_sequence<i...>, Arguments&... arguments) {
    return std::tuple<Arguments...>{without_mapped(arguments, in[i])...};
  }
};

}  // namespace detail

// fn as a function of what all devices along the axis have. As many in_axes as arguments.
template <class Fn>
auto pmap(Fn&& fn, const Mesh& mesh, const std::string& axis, std::vector<PmapAxis> in_axes,
          PmapOut out_axes) {
  std::vector<RankSpecs> specs;
  for (const PmapAxis& in : in_axes) specs.push_back(detail::pmap_argument(mesh, axis, in));
  LocalMapOptions options = detail::pmap_options(axis, in_axes);
  RankSpecs out = detail::pmap_result(axis, out_axes);
  return local_map(detail::PmapFn<std::decay_t<Fn>>{std::forward<Fn>(fn), std::move(in_axes),
                                                    std::move(out_axes)},
                   mesh, std::move(specs), std::move(out), std::move(options));
}

}  // namespace meshtorch
