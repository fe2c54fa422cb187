// SPDX-License-Identifier: Apache-2.0
//
// Composite ops of libtorch that read an operand's memory on the host, where a sharded tensor has none.
#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

at::Tensor replicated(const at::Tensor& value, const at::Tensor& like) {
  return is_sharded(like) ? replicate(value, sharding_of(like).mesh) : value;
}

const at::Tensor& mesh_of(const at::Tensor& a, const at::Tensor& b) {
  return is_sharded(a) ? a : b;
}

at::Tensor quantile(const at::Tensor& self, const at::Tensor& q, std::optional<std::int64_t> dim,
                    bool keepdim, c10::string_view interpolation) {
  return replicated(at::quantile(full(self), full(q), dim, keepdim, interpolation),
                    mesh_of(self, q));
}

at::Tensor quantile_scalar(const at::Tensor& self, double q, std::optional<std::int64_t> dim,
                           bool keepdim, c10::string_view interpolation) {
  return replicated(at::quantile(full(self), q, dim, keepdim, interpolation), self);
}

at::Tensor nanquantile(const at::Tensor& self, const at::Tensor& q, std::optional<std::int64_t> dim,
                       bool keepdim, c10::string_view interpolation) {
  return replicated(at::nanquantile(full(self), full(q), dim, keepdim, interpolation),
                    mesh_of(self, q));
}

at::Tensor nanquantile_scalar(const at::Tensor& self, double q, std::optional<std::int64_t> dim,
                              bool keepdim, c10::string_view interpolation) {
  return replicated(at::nanquantile(full(self), q, dim, keepdim, interpolation), self);
}

std::vector<std::int64_t> integers(const char* op, const char* name, const at::Tensor& x) {
  if (is_meta(x)) fail_without_values(op, name, "decides by its values");
  const at::Tensor values = full(x.detach()).to(at::kLong).contiguous();
  return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
}

std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& where,
                                     std::int64_t dim) {
  const std::vector<std::int64_t> places =
      integers("aten::tensor_split", "tensor_indices_or_sections", where);
  if (where.dim() == 0) return at::tensor_split(self, places[0], dim);
  return at::tensor_split(self, at::IntArrayRef(places), dim);
}

// Without a gradient libtorch's own runs over the memory itself.
at::Tensor max_pool1d(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(
      at::max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

// Compared where it lies; libtorch's own would take both to every device.
bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (self.scalar_type() != other.scalar_type()) {
    fail({.op = "aten::equal",
          .where = "other",
          .what = text("is ", other.scalar_type(), ", self is ", self.scalar_type()),
          .remedy = "give both the same dtype"});
  }
  if (self.sizes() != other.sizes()) return false;
  if (self.is_same(other) && is_meta(self)) return true;  // self-attention asks
  return self.eq(other).all().item<bool>();
}

// libtorch's form counts in memory: it writes through as_strided.
at::Tensor& fill_diagonal_(at::Tensor& self, const at::Scalar& value, bool wrap) {
  const at::Tensor mask = at::zeros(self.sizes(), at::kBool).fill_diagonal_(true, wrap);
  return self.masked_fill_(mask, value);
}

}  // namespace

void install_host(Dispatch& dispatch) {
  torch::Library& library = dispatch.autograd_library();
  library.impl("max_pool1d", TORCH_FN(max_pool1d));
  library.impl("quantile", TORCH_FN(quantile));
  library.impl("quantile.scalar", TORCH_FN(quantile_scalar));
  library.impl("nanquantile", TORCH_FN(nanquantile));
  library.impl("nanquantile.scalar", TORCH_FN(nanquantile_scalar));
  library.impl("tensor_split.tensor_indices_or_sections", TORCH_FN(tensor_split));
  library.impl("equal", TORCH_FN(equal));
  library.impl("fill_diagonal_", TORCH_FN(fill_diagonal_));
}

}  // namespace meshtorch
