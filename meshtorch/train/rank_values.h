// SPDX-License-Identifier: Apache-2.0
//
// Between tensors on the whole mesh and what each rank has of them. Internal to local_map.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/layout/layout.h>
#include <meshtorch/mesh/partition_spec.h>
#include <meshtorch/train/rank.h>

namespace meshtorch {

// The spec as a layout on the whole mesh. Throws Error where it names an automatic axis.
Layout manual_layout(const RankGrid& grid, const PartitionSpec& spec, std::int64_t dims,
                     const std::string& where);

// `manual` and, minor to it, what `layout` says of the automatic axes.
Layout with_automatic(const RankGrid& grid, const Layout& manual, const Layout& layout);

// x on the whole mesh, along the manual axes as `manual` says; x itself where it lies so. Differentiable.
// Throws Error where x is on another mesh.
at::Tensor lay_out(const RankGrid& grid, const at::Tensor& x, const Layout& manual,
                   const std::string& where);

// What one rank has of a tensor of the whole mesh. Shares memory with `locals`, those of this process.
at::Tensor rank_tensor(const RankGrid& grid, std::size_t rank, const Shape& shape,
                       const Layout& layout, const Shards& locals);

// A rank's result, taken apart.
struct RankPart {
  Shape shape;
  at::ScalarType type = at::kFloat;
  Layout layout;  // of the automatic axes, by their index on the whole mesh
  Shards locals;  // one a device of the rank; none: the value is zero
};

// What a rank made, in memory that nothing else sees: it is copied where someone else does. `holders`:
// how many handles of it the caller knows. Throws Error where it is on another mesh.
RankPart take_part(const RankGrid& grid, std::size_t rank, const at::Tensor& tensor,
                   const std::string& where, std::size_t holders);

// How a tensor of the whole mesh is put together.
struct RankForm {
  Shape shape;
  Layout manual, automatic;
  at::TensorOptions zeros;  // of parts that are not there
};

// One tensor of the whole mesh, of the parts of this process's ranks. A part that lies otherwise along the
// automatic axes is redistributed.
at::Tensor assemble(const RankGrid& grid, std::vector<RankPart> parts, const RankForm& form);

// Ranks wrote into the locals of this sharded tensor. Autograd's version is not counted up: batch norm's
// graph keeps the statistics, and what it has of them it does not use.
void mark_written(const at::Tensor& tensor);

// The shape of a result by the shapes that all ranks have, by their number. Throws Error where they do
// not fit together as `manual` says.
Shape whole_shape(const RankGrid& grid, const std::vector<Shape>& shapes, const Layout& manual,
                  const std::string& where);

}  // namespace meshtorch
