// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/sharded.h>

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/op_scope.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/strides.h>

namespace meshtorch {
namespace {

// CPU keeps the wrapper "dense-compatible", which lets set_data convert a module in place; PrivateUse3
// outranks it, so every op that meets a wrapper comes to us.
c10::DispatchKeySet wrapper_keys(const at::Tensor& local) {
  c10::DispatchKeySet keys({local.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU,
                            c10::DispatchKey::PrivateUse3, c10::DispatchKey::ADInplaceOrView});
  if (local.is_conj()) keys = keys.add(c10::DispatchKey::Conjugate);
  if (local.is_neg()) keys = keys.add(c10::DispatchKey::Negative);
  return keys;
}

const std::string& no_storage_message() {
  static const std::string message =
      "[data_ptr] sharded tensor: it has no storage of its own, its elements are in one local "
      "tensor "
      "per device; use meshtorch::full(x) for the whole value or "
      "meshtorch::addressable_shards(x) for the local ones";
  return message;
}

// Reaches a protected switch: storage access throws our message instead of returning an empty one.
class WrapperImpl : public c10::TensorImpl {
 public:
  static void forbid_storage(c10::TensorImpl& impl) {
    impl.release_storage_and_set_meta_custom_data_ptr_error_msg_(no_storage_message());
  }
};

Shape dense_strides(const Shape& shape, const std::vector<std::size_t>& outer_to_inner) {
  Shape strides(shape.size());
  std::int64_t next = 1;
  for (auto dim = outer_to_inner.rbegin(); dim != outer_to_inner.rend(); ++dim) {
    strides[*dim] = next;
    next *= std::max<std::int64_t>(shape[*dim], 1);
  }
  return strides;
}

// Whether some dim repeats the same elements: a local size of one or none hides it from the local tensor.
bool is_stretched(const Shape& shape, const at::Tensor& local) {
  const auto strides = local.strides();
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (strides[dim] == 0 && shape[dim] > 1) return true;
  }
  return false;
}

Shape row_major(const Shape& shape) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return dense_strides(shape, order);
}

Shape strides_of(const Shape& shape, const ShardedView& view) {
  if (strides_are_untold(view.mesh(), shape, view.dims())) return row_major(shape);
  return global_strides(shape, view.dims(), view.models().front());
}

}  // namespace

std::int64_t device_number(const Mesh& mesh, std::size_t d) {
  const std::int64_t position = Runtime::current().communicator().addressable(mesh)[d];
  return mesh.devices()[static_cast<std::size_t>(position)];
}

const Shards& ShardedView::made() const { return op_scope::hold(source_); }

void ShardedView::arrive() const {
  // Taken out first: what arrives is written through this accessor. A failure is every reader's.
  auto arrive = std::exchange(allocation_->arrive, nullptr);
  try {
    arrive();
  } catch (...) {
    allocation_->arrive = std::move(arrive);
    throw;
  }
}

const ShardedView& at_rest(const ShardedView& view) {
  const bool stored = view.source() != nullptr && view.source()->stored().defined();
  return stored ? *sharded_view(view.source()->stored()) : view;
}

bool strides_are_untold(const Mesh& mesh, const Shape& shape, const DimAxes& dims) {
  if (Runtime::current().processes() == 1) return false;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (dims[dim].empty()) continue;
    const std::int64_t most = shard_interval(mesh, shape[dim], dims[dim], 0).size();
    const std::int64_t least = shard_interval(mesh, shape[dim], dims[dim], mesh.size() - 1).size();
    if (least <= 1 && least != most) return true;
  }
  return false;
}

Shape global_strides(const Shape& shape, const DimAxes& dims, const at::Tensor& local) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  const auto local_strides = local.strides();
  if (local.is_contiguous() && !is_stretched(shape, local)) return dense_strides(shape, order);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return local_strides[a] > local_strides[b]; });
  if (local.is_non_overlapping_and_dense() && !is_stretched(shape, local))
    return dense_strides(shape, order);
  // A slice or an expansion: scale each stride by what the faster dims grew.
  Shape strides(shape.size());
  double growth = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] =
        static_cast<std::int64_t>(static_cast<double>(local_strides[*dim]) * growth + 0.5);
    if (!dims[*dim].empty() && local.size(*dim) > 0 && local_strides[*dim] > 0) {
      growth *= static_cast<double>(shape[*dim]) / static_cast<double>(local.size(*dim));
    }
  }
  return strides;
}

at::Tensor wrap(const Shape& shape, c10::intrusive_ptr<ShardedView> view) {
  const at::Tensor& local = view->models().front();
  // Meta shards stand for the CPU's: the program sees the devices of the real run.
  const at::Device device = local.is_meta() ? at::Device(at::kCPU) : local.device();
  auto impl = c10::make_intrusive<c10::TensorImpl>(wrapper_keys(local), local.dtype(), device);
  if (local.is_contiguous() && !is_stretched(shape, local)) {
    impl->set_sizes_contiguous(shape);
  } else {
    impl->set_sizes_and_strides(shape, strides_of(shape, *view));
  }
  WrapperImpl::forbid_storage(*impl);
  if (MemoryAccount* account = MemoryAccount::active(); account != nullptr && !local.is_meta()) {
    const Shards& locals = view->models();
    for (std::size_t d = 0; d < locals.size(); ++d)
      account->adopt(locals[d], device_number(view->mesh(), d));
  }
  impl->set_backend_meta(std::move(view));
  return at::Tensor(std::move(impl));
}

at::Tensor wrap(const Mesh& mesh, const Shape& shape, const Layout& layout, Shards locals) {
  auto allocation = std::make_shared<Allocation>();
  allocation->unreduced = layout.unreduced;
  return wrap(shape, c10::make_intrusive<ShardedView>(mesh, std::make_shared<DimAxes>(layout.dims),
                                                      std::move(locals), std::move(allocation)));
}

void rebind(const at::Tensor& wrapper, const Shape& shape, c10::intrusive_ptr<ShardedView> view) {
  auto* impl = wrapper.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(shape, strides_of(shape, *view));
  impl->set_backend_meta(std::move(view));
}

void convert(const at::Tensor& plain, const at::Tensor& sharded) {
  plain.unsafeGetTensorImpl()->shallow_copy_from(sharded.getIntrusivePtr());
}

Shape dense_strides_like(const Shape& sizes, at::IntArrayRef strides) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return strides[a] > strides[b]; });
  return dense_strides(sizes, order);
}

std::string describe(const at::Tensor& tensor) {
  const ShardedView* view = sharded_view(tensor);
  if (view == nullptr) return "plain";
  const ShardedView& rest = at_rest(*view);
  return to_string(rest.mesh(), rest.layout()) + " on " + rest.mesh().to_string();
}

}  // namespace meshtorch
