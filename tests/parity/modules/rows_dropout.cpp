// SPDX-License-Identifier: Apache-2.0
//
// Dropouts draw on the library's generator: the same values on any mesh. Against plain libtorch holds
// what does not depend on the draw: what is kept is the input, scaled, and about a half is kept.
#include <cmath>

#include <gtest/gtest.h>

#include "row.h"

namespace meshtorch::modules {
namespace {

constexpr double kP = 0.5;

// Every element is scale * x + offset (kept) or `dropped`. A plane is dropped as a whole: its elements
// are those of the dims from `plane_dim` on.
Property keeps(double scale, double offset, double dropped, int plane_dim) {
  return [=](const Tensors& inputs, const Tensors& outputs) {
    const auto &x = inputs[0], &y = outputs[0];
    const auto is_dropped = (y - dropped).abs() < 1e-12;
    const auto is_kept = (y - (x * scale + offset)).abs() < 1e-12;
    EXPECT_TRUE(is_dropped.logical_xor(is_kept).all().item<bool>());
    const auto planes =
        plane_dim < x.dim() ? is_dropped.flatten(plane_dim) : is_dropped.unsqueeze(-1);
    EXPECT_TRUE(planes.all(-1).equal(planes.any(-1)));
    const double fraction = planes.all(-1).to(torch::kDouble).mean().item<double>();
    EXPECT_GT(fraction, 0.25);
    EXPECT_LT(fraction, 0.75);
  };
}

// Klambauer et al. 2017, "Self-Normalizing Neural Networks": dropped elements get the negative
// saturation of SELU, and an affine map restores mean and variance.
Property keeps_alpha(int plane_dim) {
  const double saturation = -1.7580993408473766;
  const double scale = 1 / std::sqrt((saturation * saturation * kP + 1) * (1 - kP));
  const double offset = -scale * saturation * kP;
  return keeps(scale, offset, scale * saturation + offset, plane_dim);
}

}  // namespace

Rows dropouts() {
  const auto x = real({B, 8, 6}), x2 = real({B, 16, 3, 2}), x3 = real({B, 16, 2, 3, 2});
  return {
      row([] { return nn::Dropout(kP); }, x).random(keeps(1 / (1 - kP), 0, 0, 3)),
      row([] { return nn::Dropout2d(kP); }, x2).random(keeps(1 / (1 - kP), 0, 0, 2)),
      row([] { return nn::Dropout3d(kP); }, x3).random(keeps(1 / (1 - kP), 0, 0, 2)),
      row([] { return nn::AlphaDropout(kP); }, x).random(keeps_alpha(3)),
      row([] { return nn::FeatureAlphaDropout(kP); }, x2).random(keeps_alpha(2)),
  };
}

}  // namespace meshtorch::modules
