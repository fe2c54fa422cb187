// SPDX-License-Identifier: Apache-2.0
//
// Placing tensors on a mesh and looking at where they are. A sharded tensor is an ordinary at::Tensor;
// everything else is ordinary libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/layout/shard.h>
#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {

// Places a host tensor (every process gives the same one: checksums are compared, runtime.h), or moves a sharded tensor to another mesh
// or layout. Differentiable. The result shares no memory with `x`. Over unreduced axes the value goes
// to coordinate 0 and the others hold zeros. Throws Error: unknown axis, more dims than x has, a mesh
// of another runtime.
at::Tensor device_put(const at::Tensor& x, const NamedSharding& sharding);
std::vector<at::Tensor> device_put(const std::vector<at::Tensor>& xs,
                                   const NamedSharding& sharding);

// The part of a global tensor that this process holds, where no process needs to have it whole:
//
//   const Box mine = process_box({mesh, P("dp")}, {rows, length});
//   auto x = device_put(ProcessLocal{read(mine[0].begin, mine[0].end), {rows, length}}, {mesh, P("dp")});
struct ProcessLocal {
  at::Tensor data;     // of the sizes of process_box
  Shape global_shape;  // the same on every process
};

// The smallest box with the elements that this process's devices hold. Throws Error as device_put, and
// where they hold less than that box: a mesh whose devices lie so needs device_put of the whole.
Box process_box(const NamedSharding& sharding, const Shape& global_shape);

// Places a tensor from the parts that each process has. Not differentiable. Where several processes hold
// the same elements, their parts are compared (RuntimeOptions::check_inputs). Throws Error: as
// device_put, a part of other sizes than its box, unreduced axes.
at::Tensor device_put(const ProcessLocal& part, const NamedSharding& sharding);

// The same value in another layout on the same mesh. Differentiable: the gradient comes back in x's
// layout. Sharded from replicated is free; unreduced to sharded is one reduce-scatter, sharded to
// replicated one all-gather. Throws Error where x is plain.
at::Tensor reshard(const at::Tensor& x, const PartitionSpec& spec);

// device_put(x, {mesh, P()}).
at::Tensor replicate(const at::Tensor& x, const Mesh& mesh);

// The whole value as a plain tensor (a plain x comes back as it is). Differentiable.
at::Tensor full(const at::Tensor& x);

bool is_sharded(const at::Tensor& x);

// The value as libtorch prints it, and under it how it lies. (operator<< of a sharded tensor would read
// its storage, and says so.) A plain x prints as it always does.
std::string to_string(const at::Tensor& x);

// Throws Error where x is plain.
NamedSharding sharding_of(const at::Tensor& x);

// What one addressable device holds.
struct Shard {
  std::int64_t device;                    // global device
  std::vector<std::int64_t> coordinates;  // on the mesh, one per axis
  Box index;                              // which elements of the whole, one interval per dim
  at::Tensor data;                        // shares memory with the sharded tensor: read it
};

// In the order of devices. Throws Error where x is plain.
std::vector<Shard> addressable_shards(const at::Tensor& x);

}  // namespace meshtorch
