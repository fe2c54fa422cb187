// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices and vectors.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// `self` broadcasts against the product: its dims are the last ones of `out`.
RuleFunction plus_product(const char* product, const char* out,
                          const char* marks = "; joint(0) each(1,2)") {
  const std::string dims = out;
  return [=](const OpCall& call) {
    const std::size_t rank = shape_of(call, "self").size();
    const std::string self = rank > dims.size() ? dims : dims.substr(dims.size() - rank);
    return rule_for(call, self + "," + product + "->" + dims + marks);
  };
}

// libtorch gives a scalar where a number is added to an empty product, as a device may have it.
OpRule addmv(const OpCall& call) {
  if (shape_of(call, "self").empty()) return rule_for(call, ",**,*->*; joint(0) each(1,2)");
  return plus_product("ik,k", "i")(call);
}

// The loops are the dims of a product of three; each operand lacks those that it is expanded by.
OpRule trilinear(const OpCall& call) {
  const std::size_t rank = shape_of(call, "i1").size() + call.integers("expand1").size();
  const auto without = [&](const char* argument) {
    const auto dims = call.integers(argument);
    const std::vector<bool> absent =
        dims.empty() ? std::vector<bool>(rank, false) : dim_mask(call, dims, rank);
    std::string kept;
    for (std::size_t d = 0; d < rank; ++d) {
      if (!absent[d]) kept += letters(rank)[d];
    }
    return kept;
  };
  return rule_for(
      call, join(std::vector{without("expand1"), without("expand2"), without("expand3")}, ",") +
                "->" + without("sumdim") + "; each");
}

OpRule cross(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  std::string dims = letters(rank);
  if (rank > 0) dims[wrap_dim(call, call.integer("dim", -1), rank)] = '*';
  return rule_for(call, dims + "," + dims + "->" + dims + "; each");
}

// Leading dims broadcast; a vector has none, and no dim of its own in the result.
OpRule matmul(const OpCall& call) {
  const std::size_t left = shape_of(call, "self").size(), right = shape_of(call, "other").size();
  if (left == 0 || right == 0)
    fail({call.name, left == 0 ? "self" : "other", "has no dims", "give a vector or a matrix"});
  const std::string out = std::string(left > 1 ? "i" : "") + (right > 1 ? "j" : "");
  const std::string batch = left > 2 || right > 2 ? "..." : "";
  return rule_for(call, (left > 1 ? batch + "ik" : "k") + "," + (right > 1 ? batch + "kj" : "k") +
                            "->" + batch + out + "; each");
}

// The weight's gradient alone, for which the weight is not needed: a sum over all leading dims.
OpRule weight_gradient(const OpCall& call) {
  if (call.tensor("weight") || call.integers("output_mask") != std::vector<std::int64_t>{0, 1, 0}) {
    fail({call.name, "output_mask", "asks for more than the weight's gradient",
          "take the others by matmul and sum"});
  }
  return rule_for(call, "...k,...o,->,ok,; reduced(0,2) each(0,1)");
}

}  // namespace

void add_matmul(Family& family) {
  family.add("ik,kj->ij; each", {"mm"});
  family.add("bik,bkj->bij; each", {"bmm"});
  family.add("ik,k->i; each", {"mv"});
  family.add("k,k->; each", {"dot", "vdot"});
  family.add("...ik,...kj->...ij; each", matmul, {"matmul"});
  family.add("...k,...o,->,ok,; reduced(0,2) each(0,1)", weight_gradient, {"linear_backward"});
  family.add("ij,ik,kj->ij; joint(0) each(1,2)", plus_product("ik,kj", "ij"), {"addmm"});
  family.add("bij,bik,bkj->bij; joint(0) each(1,2)", plus_product("bik,bkj", "bij"), {"baddbmm"});
  family.add("ij,bik,bkj->ij; joint(0) each(1,2)", plus_product("bik,bkj", "ij"), {"addbmm"});
  family.add("i,ik,k->i; joint(0) each(1,2)", addmv, {"addmv"});
  family.add("ij,i,j->ij; joint(0) each(1,2)", plus_product("i,j", "ij"), {"addr"});
  // The activation is applied to the sum: what contracts is whole.
  family.add("ij,i*,*j->ij", plus_product("i*,*j", "ij", ""), {"_addmm_activation"});
  family.add("ab,cbd,cd->ac; each", trilinear, {"_trilinear"});
  family.add("a*,a*->a*; each", cross, {"linalg_cross"});
  family.add("k...,nk->n...; each", {"_compute_linear_combination"});

  // Distances between rows; a column of the gradient takes the same column of the rows.
  family.add("...i*,...j*->...ij", {"_cdist_forward", "_euclidean_dist"});
  family.add("...ij,...im,...jm,...ij->...im; each(0)", {"_cdist_backward"});
  family.add("**->*", {"_pdist_forward"});
  family.add("*,*m,*->*m; each(0)", {"_pdist_backward"});
}

}  // namespace meshtorch
