// SPDX-License-Identifier: Apache-2.0
//
// Pooling, resampling and padding of images: batch and channels are independent, spatial dims whole.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// The random numbers are one set per image and channel: (n, c, spatial dims); a lone image has n = 1.
RuleFunction fractional(std::size_t spatial_dims) {
  return [=](const OpCall& call) {
    const std::size_t rank = shape_of(call, "self").size();
    const std::string space(spatial_dims, '*');
    if (rank == spatial_dims + 1)
      return rule_for(call, "c" + space + ",1c*->c" + space + ",c" + space);
    return rule_for(call, "nc" + space + ",nc*->nc" + space + ",nc" + space);
  };
}

OpRule resample_backward(const OpCall& call) {
  const Shape input = call.integers("input_size");
  const std::string dims =
      "nc" + std::string(shape_of(call, "grad_output").size() > 2 ? input.size() - 2 : 0, '*');
  return sized(rule_for(call, dims + "->" + dims + "; each", {input}), call, "input_size");
}

// The grid's own spatial dims are those of the result: each place is looked up by itself.
std::string places(std::size_t dims) { return letters(dims, 26); }

RuleFunction sample(std::size_t dims, bool backward) {
  const std::string input = "nc" + std::string(dims, '*');
  const std::string grid = "n" + places(dims) + "*";
  const std::string output = "nc" + places(dims);
  const std::string text =
      backward ? output + "," + input + "," + grid + "->" + input + "," + grid + "; each(0)"
               : input + "," + grid + "->" + output + "; each(0)";
  return [=](const OpCall& call) {
    if (!backward) return rule_for(call, text);
    return rule_for(call, text, {shape_of(call, "input"), shape_of(call, "grid")});
  };
}

// size spells (n, c, ...); the grid has no channels, only its batch is taken from there.
OpRule affine_grid(const OpCall& call) {
  Shape grid = call.integers("size");
  if (grid.size() < 4)
    fail({call.name, "size", text("got ", grid.size(), " dims, expected 4 or 5"), ""});
  grid.erase(grid.begin() + 1);
  grid.push_back(static_cast<std::int64_t>(grid.size()) - 1);
  OpRule rule = rule_for(call, "n**->n" + std::string(grid.size() - 1, '*') + "; each", {grid});
  rule.sizes.push_back({.argument = call.argument("size"), .output = 0, .dim = 0, .element = 0});
  return rule;
}

void add_pooling(Family& family) {
  family.add("...**->...**,...**", {"max_pool2d_with_indices", "adaptive_max_pool2d"});
  family.add("...***->...***,...***", {"max_pool3d_with_indices", "adaptive_max_pool3d"});
  family.add("...**,...**,...**->...**; each(0)",
             {"max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward",
              "fractional_max_pool2d_backward"});
  family.add("...***,...***,...***->...***; each(0)",
             {"max_pool3d_with_indices_backward", "adaptive_max_pool3d_backward",
              "fractional_max_pool3d_backward"});
  family.add("nc**,nc*->nc**,nc**", fractional(2), {"fractional_max_pool2d"});
  family.add("nc***,nc*->nc***,nc***", fractional(3), {"fractional_max_pool3d"});
  family.add("...**,...**->...**; each(0)", {"max_unpool2d"});
  family.add("...***,...***->...***; each(0)", {"max_unpool3d"});
  family.add("...**->...**; each", {"avg_pool2d", "_adaptive_avg_pool2d"});
  family.add("...***->...***; each", {"avg_pool3d", "_adaptive_avg_pool3d"});
  family.add("...**,...**->...**; each(0)",
             {"avg_pool2d_backward", "_adaptive_avg_pool2d_backward"});
  family.add("...***,...***->...***; each(0)",
             {"avg_pool3d_backward", "_adaptive_avg_pool3d_backward"});
}

void add_padding(Family& family) {
  family.add("...*->...*; each", {"reflection_pad1d", "replication_pad1d"});
  family.add("...**->...**; each", {"reflection_pad2d", "replication_pad2d"});
  family.add("...**,...**->...**; each(0)",
             {"reflection_pad2d_backward", "replication_pad2d_backward"});
}

void add_resampling(Family& family) {
  family.add("nc*->nc*; each",
             {"upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_linear1d"});
  family.add("nc**->nc**; each",
             {"upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d",
              "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
              "_upsample_lanczos2d_aa"});
  family.add("nc***->nc***; each",
             {"upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d"});
  family.add("nc*->nc*; each", resample_backward,
             {"upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward",
              "upsample_linear1d_backward"});
  family.add("nc**->nc**; each", resample_backward,
             {"upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward",
              "upsample_bilinear2d_backward", "upsample_bicubic2d_backward",
              "_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward",
              "_upsample_lanczos2d_aa_backward"});
  family.add("nc***->nc***; each", resample_backward,
             {"upsample_nearest3d_backward", "_upsample_nearest_exact3d_backward",
              "upsample_trilinear3d_backward"});
  family.add("nc**,nAB*->ncAB; each(0)", sample(2, false), {"grid_sampler_2d"});
  family.add("nc***,nABC*->ncABC; each(0)", sample(3, false), {"grid_sampler_3d"});
  family.add("ncAB,nc**,nAB*->nc**,nAB*; each(0)", sample(2, true), {"grid_sampler_2d_backward"});
  family.add("ncABC,nc***,nABC*->nc***,nABC*; each(0)", sample(3, true),
             {"grid_sampler_3d_backward"});
  family.add("n**->n***; each", affine_grid, {"affine_grid_generator"});
}

}  // namespace

void add_pool(Family& family) {
  add_pooling(family);
  add_padding(family);
  add_resampling(family);
}

}  // namespace meshtorch
