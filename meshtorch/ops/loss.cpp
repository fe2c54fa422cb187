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

// One loss per row of scores, each of all classes; a row alone has rank 1. A mean's kernel divides by the
// global count of rows.
struct Rows {
  std::string scores;
  std::string target;  // a class
  std::string loss;
};

Rows rows(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  if (rank > 2) fail({call.name, "self", text("got rank ", rank, ", expected at most 2"), ""});
  const std::string row = rank == 2 ? "n" : "";
  return {row + (rank == 0 ? "" : "*"), row, is_reduced(call) ? "" : row};
}

// A lone target may be a scalar or have one element.
std::string class_target(const OpCall& call, const Rows& dims) {
  return dims.target.size() == shape_of(call, "target").size() ? dims.target : "*";
}

OpRule multi_margin(const OpCall& call) {
  const Rows dims = rows(call);
  return rule_for(call, dims.scores + "," + class_target(call, dims) + ",*->" + dims.loss);
}

OpRule multi_margin_backward(const OpCall& call) {
  const Rows dims = rows(call);
  return rule_for(call,
                  dims.loss + "," + dims.scores + "," + class_target(call, dims) + ",*->" +
                      dims.scores + "; each(0)",
                  {shape_of(call, "self")});
}

OpRule multilabel(const OpCall& call) {
  const Rows dims = rows(call);
  return rule_for(call, dims.scores + "," + dims.scores + "->" + dims.loss + "," + dims.scores);
}

OpRule multilabel_backward(const OpCall& call) {
  const Rows dims = rows(call);
  return rule_for(call,
                  dims.loss + "," + repeated(dims.scores, 3) + "->" + dims.scores + "; each(0)",
                  {shape_of(call, "self")});
}

// Targets of a batch of sequences are a row each or all in one row, of which no part belongs to a
// device. Lengths that are lists are the whole batch's.
struct Ctc {
  std::string log_probs;  // (t, n, classes)
  std::string targets;
  std::string lengths;    // and losses
  std::string log_alpha;  // (n, t, states)
};

Ctc ctc_dims(const OpCall& call) {
  const bool lists = !call.arguments[call.argument("input_lengths")].is_tensor;
  const std::size_t rank = shape_of(call, "targets").size();
  if (lists || rank != 2) return {"***", std::string(rank, '*'), "*", "***"};
  return {"*n*", "n*", "n", "n**"};
}

OpRule ctc(const OpCall& call) {
  const Ctc dims = ctc_dims(call);
  const bool lists = call.operands.size() == 2;
  return rule_for(call, dims.log_probs + "," + dims.targets +
                            (lists ? "" : "," + dims.lengths + "," + dims.lengths) + "->" +
                            dims.lengths + "," + dims.log_alpha);
}

OpRule ctc_backward(const OpCall& call) {
  const Ctc dims = ctc_dims(call);
  const bool lists = call.operands.size() == 5;
  return rule_for(call, dims.lengths + "," + dims.log_probs + "," + dims.targets +
                            (lists ? "" : "," + dims.lengths + "," + dims.lengths) + "," +
                            dims.lengths + "," + dims.log_alpha + "->" + dims.log_probs +
                            "; each(0)");
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
  family.add("n*,n,*->", multi_margin, {"multi_margin_loss"});
  family.add(",n*,n,*->n*; each(0)", multi_margin_backward, {"multi_margin_loss_backward"});
  family.add("n*,n*->,n*", multilabel, {"multilabel_margin_loss_forward"});
  family.add(",n*,n*,n*->n*; each(0)", multilabel_backward, {"multilabel_margin_loss_backward"});
  family.add("***,**->*,***", ctc, {"_ctc_loss"});
  family.add("*n*,n*,n,n->n,n**", ctc, {"_ctc_loss.Tensor"});
  family.add("*,***,**,*,***->***; each(0)", ctc_backward, {"_ctc_loss_backward"});
  family.add("n,*n*,n*,n,n,n,n**->*n*; each(0)", ctc_backward, {"_ctc_loss_backward.Tensor"});
}

}  // namespace meshtorch
