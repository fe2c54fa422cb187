// SPDX-License-Identifier: Apache-2.0
//
// What the code of one rank may ask of the others, inside local_map (local_map.h). Every rank calls the
// same ones in the same order, on tensors of one shape and dtype; a collective over axes of size one
// gives x itself.
//
//   auto total = mt::psum(x, "dp");               // the sum over the ranks along dp, on each of them
//   auto rows = mt::all_gather(x, "dp");          // their concatenation along dim 0
//   auto mine = mt::psum_scatter(rows, "dp");     // this rank's chunk of the sum
//
// Names and meanings are those of jax.lax, with `tiled` as the default: results are concatenated and cut
// along dims that are there. All are differentiable, any number of times within the rank's code:
//
//   psum            its transpose is psum         all_gather      psum_scatter, and the other way round
//   all_to_all      with the two dims swapped     ppermute        with the pairs turned round
//   pmax, pmin      to the ranks that hold the extreme; those that tie share equally
//
// x is plain, or sharded over the axes left automatic, where it keeps its layout; a dim that is gathered
// or cut is made whole first (the ledger says `reshard`).
//
// Throws Error: outside of local_map; an axis that is unknown, or automatic; ranks that ask for different
// things (each rank's part is named); a dim that x has not, or that does not divide.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/tensor/tree.h>

namespace meshtorch {

// One manual axis, or several, major to minor: "dp", {"dp", "tp"}.
class RankAxes {
 public:
  RankAxes(const char* name) : names_{name} {}  // NOLINT: reads as a name
  RankAxes(std::string name) : names_{std::move(name)} {}
  RankAxes(std::vector<std::string> names) : names_(std::move(names)) {}
  RankAxes(std::initializer_list<std::string> names) : names_(names) {}

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

at::Tensor psum(const at::Tensor& x, const RankAxes& axis);
at::Tensor pmean(const at::Tensor& x, const RankAxes& axis);
at::Tensor pmax(const at::Tensor& x, const RankAxes& axis);
at::Tensor pmin(const at::Tensor& x, const RankAxes& axis);

// Of each tensor of a tree (tree.h).
template <class Tree>
concept RankTree = !std::convertible_to<const Tree&, at::Tensor>;
template <RankTree Tree>
Tree psum(const Tree& tree, const RankAxes& axis) {
  return tree_map([&](const at::Tensor& x) { return psum(x, axis); }, tree);
}
template <RankTree Tree>
Tree pmean(const Tree& tree, const RankAxes& axis) {
  return tree_map([&](const at::Tensor& x) { return pmean(x, axis); }, tree);
}
template <RankTree Tree>
Tree pmax(const Tree& tree, const RankAxes& axis) {
  return tree_map([&](const at::Tensor& x) { return pmax(x, axis); }, tree);
}
template <RankTree Tree>
Tree pmin(const Tree& tree, const RankAxes& axis) {
  return tree_map([&](const at::Tensor& x) { return pmin(x, axis); }, tree);
}

// Concatenated along `dim` in the order of ranks; not tiled: stacked along a new dim.
at::Tensor all_gather(const at::Tensor& x, const RankAxes& axis, std::int64_t dim = 0,
                      bool tiled = true);

// The sum, of which each rank gets its chunk along `dim`; not tiled: the dim, as long as there are ranks,
// is dropped.
at::Tensor psum_scatter(const at::Tensor& x, const RankAxes& axis, std::int64_t dim = 0,
                        bool tiled = true);

// Cuts x along `split_dim` in a chunk for each rank, and concatenates along `concat_dim` what arrives.
at::Tensor all_to_all(const at::Tensor& x, const RankAxes& axis, std::int64_t split_dim,
                      std::int64_t concat_dim);

// For each pair (source, destination) of places along the axis, the destination gets the source's x;
// ranks that are no destination get zeros. Throws Error where a place is twice a source, or twice a
// destination, or not there. Between processes it costs what an all_gather does.
at::Tensor ppermute(const at::Tensor& x, const RankAxes& axis,
                    const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs);

// This rank's place along the axis, of several row-major; and how many there are.
std::int64_t axis_index(const RankAxes& axis);
std::int64_t axis_size(const RankAxes& axis);

}  // namespace meshtorch
