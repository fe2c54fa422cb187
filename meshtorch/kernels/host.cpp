// SPDX-License-Identifier: Apache-2.0
//
// Composite ops of libtorch that read an operand's memory on the host, where a sharded tensor has none.
#include <ATen/ATen.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>
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

std::vector<std::int64_t> integers(const at::Tensor& x) {
  const at::Tensor values = full(x.detach()).to(at::kLong).contiguous();
  return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
}

std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& where,
                                     std::int64_t dim) {
  if (where.dim() == 0) return at::tensor_split(self, integers(where)[0], dim);
  return at::tensor_split(self, at::IntArrayRef(integers(where)), dim);
}

at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                    std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  return at::ctc_loss(log_probs, targets, integers(input_lengths), integers(target_lengths), blank,
                      reduction, zero_infinity);
}

}  // namespace

void install_host(Dispatch& dispatch) {
  torch::Library& library = dispatch.autograd_library();
  library.impl("quantile", TORCH_FN(quantile));
  library.impl("quantile.scalar", TORCH_FN(quantile_scalar));
  library.impl("nanquantile", TORCH_FN(nanquantile));
  library.impl("nanquantile.scalar", TORCH_FN(nanquantile_scalar));
  library.impl("tensor_split.tensor_indices_or_sections", TORCH_FN(tensor_split));
  library.impl("ctc_loss.Tensor", TORCH_FN(ctc_loss));
}

}  // namespace meshtorch
