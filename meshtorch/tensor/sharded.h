// SPDX-License-Identifier: Apache-2.0
//
// The representation of a sharded tensor: a plain c10::TensorImpl without storage whose BackendMeta is
// a ShardedView. Internal to the library; programs use sharding.h.
//
//   wrapper (TensorImpl)  global sizes and strides, dtype, device, autograd
//     ShardedView         mesh, the axes of each dim, one local tensor per addressable device
//       LocalSource       only where the locals are elsewhere: made for an op, dropped after it
//       Allocation        what all views of one storage share: which axes are unreduced, the version
//
// Views of one tensor have a ShardedView each and one Allocation together, because an in-place op may
// change a value's `unreduced` (a gradient that accumulates) and every view must see that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/layout/layout.h>

namespace meshtorch {

using DimAxes = std::vector<AxisList>;

struct Constraint;  // constrain.h

// Values that are not kept where they are used: a parameter that is sharded over more axes than ops see
// (its storage axes), and every view of it.
class LocalSource {
 public:
  virtual ~LocalSource() = default;
  // The locals, for as long as the result is held.
  virtual std::shared_ptr<const Shards> get() = 0;
  // An op wrote these, which get() gave.
  virtual void written(const Shards& locals) = 0;
  // The sharded tensor that keeps the values; undefined for a view of such a one.
  virtual const at::Tensor& stored() const = 0;
  // What get() makes has no values (comm/meta.h).
  virtual bool meta() const = 0;
};

struct Allocation {
  AxisSet unreduced;
  std::uint64_t version = 0;  // counts writes through any view
  // A fresh buffer (empty_like, zeros_like) has no layout of its own: it adopts that of the first
  // value copied or added in.
  enum class Content { value, zeros, uninitialized } content = Content::value;
  // A view that had to communicate holds a copy: neither it nor its base may be written while both
  // live.
  std::vector<std::weak_ptr<Allocation>> copy_of;       // in a copy: its bases, nearest first
  std::vector<std::weak_ptr<Allocation>> copied_views;  // in a base: its copies
  std::string copied_by;                                // in a copy: the op that made it
  // A layout that the program chose (device_put, shard, reshard): no op may change it.
  bool placed = false;
  // The wrapper, where the backward of an in-place op on a view made it for its own use.
  const void* backward_buffer = nullptr;
  // How many elements of an integer tensor differ from `ignore_index`, where it is known: mean losses
  // over a sharded batch divide by it. Valid for views of all elements at this version.
  struct Count {
    std::uint64_t version;
    std::int64_t numel, ignore_index, valid;
  };
  std::shared_ptr<const Count> count;
  // A collective that will write the locals is in flight: called once, before they are looked at.
  std::function<void()> arrive;
  // What ops that consume this parameter are to do with their activations.
  std::shared_ptr<const Constraint> constraint;
};

class ShardedView final : public c10::BackendMeta {
 public:
  // With a source `locals` are meta tensors like those that it makes.
  ShardedView(Mesh mesh, std::shared_ptr<const DimAxes> dims, Shards locals,
              std::shared_ptr<Allocation> allocation,
              std::shared_ptr<LocalSource> source = nullptr)
      : mesh_(std::move(mesh)),
        dims_(std::move(dims)),
        allocation_(std::move(allocation)),
        locals_(std::move(locals)),
        source_(std::move(source)) {}

  const Mesh& mesh() const { return mesh_; }
  const DimAxes& dims() const { return *dims_; }
  const std::shared_ptr<const DimAxes>& shared_dims() const { return dims_; }
  AxisSet unreduced() const { return allocation_->unreduced; }
  Layout layout() const { return {*dims_, allocation_->unreduced}; }
  const std::shared_ptr<Allocation>& allocation() const { return allocation_; }
  // One per addressable device, in order. The one accessor of values: it waits for a collective in
  // flight, and has a source make them. Those live until the op that runs now (op_scope.h) is over.
  const Shards& locals() const {
    if (source_ != nullptr) return made();
    if (allocation_->arrive) arrive();
    return locals_;
  }
  // Sizes, strides and dtypes of the locals; perhaps without values.
  const Shards& models() const { return locals_; }
  const std::shared_ptr<LocalSource>& source() const { return source_; }
  // The locals have no values (comm/meta.h).
  bool meta() const { return source_ != nullptr ? source_->meta() : locals_.front().is_meta(); }

  // The reduced value beside an unreduced one, valid at the version it was computed at, so that no
  // tensor is reduced twice.
  struct Reduced {
    std::uint64_t version = 0;
    Layout layout;
    Shards locals;
  };
  std::shared_ptr<const Reduced> reduced;

 private:
  const Shards& made() const;
  void arrive() const;

  Mesh mesh_;
  std::shared_ptr<const DimAxes> dims_;
  std::shared_ptr<Allocation> allocation_;
  Shards locals_;
  std::shared_ptr<LocalSource> source_;
};

// The view of a sharded tensor; null for a plain or undefined one.
inline ShardedView* sharded_view(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !impl->key_set().has_backend(c10::BackendComponent::PrivateUse3Bit)) {
    return nullptr;
  }
  return static_cast<ShardedView*>(impl->get_backend_meta());
}

// The global number of this process's d-th device on the mesh.
std::int64_t device_number(const Mesh& mesh, std::size_t d);

// Of a plain tensor, or the global one of a wrapper.
inline Shape shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

// Makes a wrapper. `shape` is global.
at::Tensor wrap(const Shape& shape, c10::intrusive_ptr<ShardedView> view);
// Makes a wrapper of fresh locals (an allocation of its own).
at::Tensor wrap(const Mesh& mesh, const Shape& shape, const Layout& layout, Shards locals);

// The view that keeps a tensor's values: its own, or that of the tensor its parts are stored in.
const ShardedView& at_rest(const ShardedView& view);

// Points an existing wrapper at another view: other handles of the same tensor see it, other views
// keep theirs.
void rebind(const at::Tensor& wrapper, const Shape& shape, c10::intrusive_ptr<ShardedView> view);

// Turns the plain tensor behind every handle of `plain` into the sharded one.
void convert(const at::Tensor& plain, const at::Tensor& sharded);

// Global strides that order and space the dims as the local tensor's do.
Shape global_strides(const Shape& shape, const DimAxes& dims, const at::Tensor& local);

// Strides of a dense tensor of these sizes whose dims are ordered as those of a tensor of `strides` are.
Shape dense_strides_like(const Shape& sizes, at::IntArrayRef strides);

// "P(dp) on (dp=4, tp=2)" of a sharded tensor, "plain" of others.
std::string describe(const at::Tensor& tensor);

}  // namespace meshtorch
