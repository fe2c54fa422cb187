// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices and vectors.
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// `self` broadcasts against the product: its dims are the last ones of `out`.
RuleFunction plus_product(const char* product, const char* out) {
  const std::string dims = out;
  return [=](const OpCall& call) {
    const std::size_t rank = shape_of(call, "self").size();
    const std::string self = rank > dims.size() ? dims : dims.substr(dims.size() - rank);
    return rule_for(call, self + "," + product + "->" + dims + "; joint(0) each(1,2)");
  };
}

}  // namespace

void add_matmul(Family& family) {
  family.add("ik,kj->ij; each", {"mm"});
  family.add("bik,bkj->bij; each", {"bmm"});
  family.add("ik,k->i; each", {"mv"});
  family.add("k,k->; each", {"dot", "vdot"});
  family.add("i,j->ij; each", {"ger"});
  family.add("ij,ik,kj->ij; joint(0) each(1,2)", plus_product("ik,kj", "ij"), {"addmm"});
  family.add("bij,bik,bkj->bij; joint(0) each(1,2)", plus_product("bik,bkj", "bij"), {"baddbmm"});
  family.add("ij,bik,bkj->ij; joint(0) each(1,2)", plus_product("bik,bkj", "ij"), {"addbmm"});
  family.add("i,ik,k->i; joint(0) each(1,2)", plus_product("ik,k", "i"), {"addmv"});
  family.add("ij,i,j->ij; joint(0) each(1,2)", plus_product("i,j", "ij"), {"addr"});
  family.add("...k,ok,o->...o; joint(2) each(0,1)", {"linear"});
  family.add("...k,...o,ok->...k,ok,o; each(1)", {"linear_backward"});
}

}  // namespace meshtorch
