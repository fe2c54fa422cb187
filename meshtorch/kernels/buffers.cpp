// SPDX-License-Identifier: Apache-2.0
//
// Ops of libtorch that write into a plain buffer of their own, from a sharded tensor. The buffer would be
// whole on every device, and so would be all that is computed from it.
#include <ATen/ATen.h>
#include <ATen/ops/_pad_circular_native.h>
#include <ATen/ops/one_hot_native.h>

#include <algorithm>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

// Circular padding is a concatenation of what wraps around, dim by dim, the last dim's pads first.
at::Tensor pad_circular(const at::Tensor& self, c10::SymIntArrayRef symbolic) {
  const auto pad = C10_AS_INTARRAYREF_SLOW(symbolic);
  const std::int64_t dims = static_cast<std::int64_t>(pad.size()) / 2;
  const auto wraps_once = [&] {
    for (std::int64_t i = 0; i < 2 * dims; ++i) {
      if (pad[i] < 0 || pad[i] > self.size(self.dim() - 1 - i / 2)) return false;
    }
    return self.dim() == dims + 2 && pad.size() % 2 == 0;
  };
  // Negative pads crop; the others are errors that libtorch words.
  if (self.dim() < dims || !wraps_once()) return at::native::_pad_circular_symint(self, symbolic);
  at::Tensor padded = self;
  for (std::int64_t i = 0; i < dims; ++i) {
    const std::int64_t dim = self.dim() - 1 - i, size = self.size(dim);
    std::vector<at::Tensor> parts{padded};
    if (pad[2 * i] > 0)
      parts.insert(parts.begin(), padded.narrow(dim, size - pad[2 * i], pad[2 * i]));
    if (pad[2 * i + 1] > 0) parts.push_back(padded.narrow(dim, 0, pad[2 * i + 1]));
    padded = at::cat(parts, dim);
  }
  return padded;
}

// An empty plain buffer that is made as large as a sharded tensor is written from it next (CrossMapLRN2d).
// It becomes whole on every device: the module writes to it plane by plane, by views of any dim.
const at::Tensor& resize_as_(const at::Tensor& self, const at::Tensor& like,
                             std::optional<at::MemoryFormat> format) {
  if (is_sharded(self) || self.numel() > 0) return self.resize_(like.sizes(), format);
  convert(self, replicate(at::empty(like.sizes(), self.options(), format), sharding_of(like).mesh));
  return self;
}

// libtorch scatters ones into zeros. A comparison is the same, element by element where the input lies.
at::Tensor one_hot(const at::Tensor& self, std::int64_t classes) {
  if (self.scalar_type() != at::kLong || self.numel() == 0 || classes < -1 || classes == 0)
    return at::native::one_hot(self, classes);
  if (!sharded_view(self)->meta() || classes < 0) {
    const auto largest = self.max().item<std::int64_t>();
    if (classes < 0) classes = largest + 1;
    TORCH_CHECK(self.min().item<std::int64_t>() >= 0, "Class values must be non-negative.");
    TORCH_CHECK(largest < classes, "Class values must be smaller than num_classes.");
  }
  return self.unsqueeze(-1).eq(at::arange(classes)).to(at::kLong);
}

}  // namespace

void install_buffers(Dispatch& dispatch) {
  torch::Library& library = dispatch.autograd_library();
  library.impl("_pad_circular", TORCH_FN(pad_circular));
  library.impl("resize_as_", TORCH_FN(resize_as_));
  library.impl("one_hot", TORCH_FN(one_hot));
}

}  // namespace meshtorch
