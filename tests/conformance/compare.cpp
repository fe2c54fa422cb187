// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <ATen/ATen.h>

#include <cmath>

#include <meshtorch/base/error.h>

namespace meshtorch::conformance {

std::string difference(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
  if (got.defined() != expected.defined())
    return got.defined() ? "is there, but not in the dense result" : "is missing";
  if (!got.defined()) return "";
  if (got.scalar_type() != expected.scalar_type())
    return text("has dtype ", got.dtype(), ", expected ", expected.dtype());
  if (got.sizes() != expected.sizes())
    return text("has sizes ", got.sizes(), ", expected ", expected.sizes());
  if (got.is_complex())
    return difference(at::view_as_real(got.resolve_conj()),
                      at::view_as_real(expected.resolve_conj()), tolerance);
  if (!got.is_floating_point()) {
    return at::equal(got, expected)
               ? ""
               : text("differs in ", at::ne(got, expected).sum().item<std::int64_t>(), " of ",
                      got.numel(), " integers");
  }
  const at::Tensor a = got.resolve_neg().to(at::kDouble).contiguous();
  const at::Tensor b = expected.resolve_neg().to(at::kDouble).contiguous();
  const double* x = a.const_data_ptr<double>();
  const double* y = b.const_data_ptr<double>();
  double worst = 0;
  std::int64_t at = -1;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double error = std::abs(x[i] - y[i]);
    if (error <= tolerance * (1 + std::abs(y[i]))) continue;
    if (at < 0 || !(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  if (at < 0) return "";
  return text("differs by up to ", worst, ": element ", at, " of ", a.numel(), " is ", x[at],
              ", expected ", y[at]);
}

at::Tensor comparable(const at::Tensor& x, Compare compare) {
  if (!x.defined()) return x;
  if (compare == Compare::absolute) return x.abs();
  if (compare == Compare::set) return std::get<0>(x.flatten().sort());
  return x;
}

double tolerance_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kComplexFloat:
      return 1e-4;
    case at::kHalf:
      return 1e-2;
    case at::kBFloat16:
      return 5e-2;
    default:
      return 1e-9;
  }
}

}  // namespace meshtorch::conformance
