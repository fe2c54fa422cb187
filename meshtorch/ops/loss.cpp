// SPDX-License-Identifier: Apache-2.0
//
// Losses. With a reduction every dim contracts to a scalar; the kernel of a mean divides by the
// global count (kernels/). In the backward the gradient of a reduced loss is that scalar.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// at::Reduction
constexpr std::int64_t kNone = 0;

bool is_reduced(const OpCall& call) { return call.integer("reduction", 1) != kNone; }

OpRule elementwise(const OpCall& call) {
  return rule_for(call,
                  repeated("...", call.operands.size()) + "->" + (is_reduced(call) ? "" : "..."));
}

// Class scores (n, c) or (c); of images (n, c, h, w) with one target per pixel.
struct ClassDims {
  std::string scores;
  std::string targets;
  std::string loss;
};

ClassDims class_dims(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  if (rank == 0) fail({call.name, "self", "has no class dim", "give scores of rank 1 or more"});
  const std::string batch = rank == 1 ? "" : "n";
  const std::string space(rank > 2 ? rank - 2 : 0, '*');
  return {batch + "c" + space, batch + space, is_reduced(call) ? "" : batch + space};
}

// The class dim contracts: each target's score is on one device. The total weight is global.
OpRule nll(const OpCall& call) {
  const ClassDims dims = class_dims(call);
  return rule_for(call, dims.scores + "," + dims.targets + ",c->" + dims.loss + ",; reduced(1)");
}

OpRule nll_backward(const OpCall& call) {
  const ClassDims dims = class_dims(call);
  return rule_for(
      call,
      dims.loss + "," + dims.scores + "," + dims.targets + ",c,->" + dims.scores + "; each(0)",
      {shape_of(call, "self")});
}

}  // namespace

void add_loss(Family& family) {
  family.add("nc,n,c->,; reduced(1)", nll, {"nll_loss_forward", "nll_loss2d_forward"});
  family.add(",nc,n,c,->nc; each(0)", nll_backward, {"nll_loss_backward", "nll_loss2d_backward"});
  family.add("...,...->", elementwise,
             {"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"});
  family.add("...,...,...->", elementwise, {"binary_cross_entropy"});
  family.add("...,...,...,...->", elementwise, {"binary_cross_entropy_with_logits"});
  family.add("...,...,...->...; each(0)", {"mse_loss_backward", "smooth_l1_loss_backward",
                                           "huber_loss_backward", "soft_margin_loss_backward"});
  family.add("...,...,...,...->...; each(0)", {"binary_cross_entropy_backward"});
}

}  // namespace meshtorch
