// SPDX-License-Identifier: Apache-2.0
//
// Fourier transforms: linear, whole along the dims that they transform.
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

OpRule transform(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  std::vector<bool> whole(rank, false);
  for (const std::int64_t dim : call.integers("dim")) {
    if (rank > 0) whole[wrap_dim(call, dim, rank)] = true;
  }
  // A real spectrum has half the dim.
  return whole_along(call, whole, 1, "; each", false);
}

}  // namespace

void add_fft(Family& family) {
  family.add("a*->a*; each", transform, {"_fft_r2c", "_fft_c2r", "_fft_c2c"});
}

}  // namespace meshtorch
