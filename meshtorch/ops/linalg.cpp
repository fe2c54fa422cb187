// SPDX-License-Identifier: Apache-2.0
//
// Linear algebra on batches of matrices: batch dims are independent, matrices whole. Where a matrix
// meets right-hand sides, their columns are independent too.
#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// What an option leaves out comes back as a tensor of size (0).
constexpr const char* kMatrix = "...**";
constexpr const char* kVector = "...*";
constexpr const char* kNothing = "*";

// Right-hand sides "...*k" of a matrix on their left, "...k*" of one on their right.
std::string sides(const OpCall& call) { return call.boolean("left", true) ? "...*k" : "...k*"; }

OpRule qr(const OpCall& call) {
  const bool only_r = call.word("mode", "reduced") == "r";
  return rule_for(call, text(kMatrix, "->", only_r ? kNothing : kMatrix, ",", kMatrix));
}

OpRule svd(const OpCall& call) {
  const char* vectors = call.boolean("compute_uv", true) ? kMatrix : kNothing;
  return rule_for(call, text(kMatrix, "->", vectors, ",", kVector, ",", vectors));
}

OpRule eigh(const OpCall& call) {
  const char* vectors = call.boolean("compute_v", true) ? kMatrix : kNothing;
  return rule_for(call, text(kMatrix, "->", kVector, ",", vectors));
}

OpRule lu(const OpCall& call) {
  const char* pivots = call.boolean("pivot", true) ? kMatrix : kNothing;
  return rule_for(call, text(kMatrix, "->", pivots, ",", kMatrix, ",", kMatrix));
}

OpRule lu_unpack(const OpCall& call) {
  const char* data = call.boolean("unpack_data", true) ? kMatrix : kNothing;
  const char* pivots = call.boolean("unpack_pivots", true) ? kMatrix : kNothing;
  return rule_for(call, text("...**,...*->", pivots, ",", data, ",", data));
}

// A right-hand side of one rank less is a batch of vectors where its dims are the matrices' batch.
bool is_vector(const Shape& matrix, const Shape& side) {
  return side.size() == 1 ||
         (side.size() + 1 == matrix.size() && std::equal(side.begin(), side.end(), matrix.begin()));
}

// The factorisation is of A as it is, not as it broadcasts against the right-hand sides, and does not
// depend on them.
OpRule solve(const OpCall& call) {
  const Shape& a = shape_of(call, "A");
  const Shape& b = shape_of(call, "B");
  const bool vector = is_vector(a, b);
  const std::size_t sides_rank = vector ? 1 : 2;
  if (a.size() < 2 || b.size() < sides_rank)
    fail({call.name, "A", text("got ranks ", a.size(), " and ", b.size()), "give matrices"});
  const std::size_t of_a = a.size() - 2;
  const std::size_t of_b = b.size() - sides_rank;
  const std::string batch = letters(std::max(of_a, of_b), 26);
  std::string factors = batch.substr(batch.size() - of_a);
  std::string apart = vector ? "" : "k";
  Shape result(batch.size(), 1);
  for (std::size_t d = 1; d <= batch.size(); ++d) {
    std::int64_t& size = result[result.size() - d];
    if (d <= of_b) size = b[of_b - d];
    const bool broadcast = d > of_a || (a[of_a - d] == 1 && size != 1);
    if (!broadcast) size = a[of_a - d];
    if (!broadcast) continue;
    apart += batch[batch.size() - d];
    if (d <= of_a) factors[of_a - d] = '1';
  }
  if (!apart.empty()) apart.insert(0, "/");
  const std::string right = vector ? "*" : call.boolean("left", true) ? "*k" : "k*";
  result.insert(result.end(), b.end() - static_cast<std::ptrdiff_t>(sides_rank), b.end());
  const Shape matrices(a.begin(), a.end() - 2);
  Shape pivots = matrices;
  pivots.push_back(a.back());
  return rule_for(call,
                  text(factors, "**,", batch.substr(batch.size() - of_b), right, "->", batch, right,
                       ",", factors, "**", apart, ",", factors, "*", apart, ",", factors, apart,
                       "; each(1) reduced(1,2,3)"),
                  {result, a, pivots, matrices});
}

OpRule solve_triangular(const OpCall& call) {
  return rule_for(call, text(kMatrix, ",", sides(call), "->", sides(call), "; each(1)"));
}

OpRule lu_solve(const OpCall& call) {
  return rule_for(call, text("...**,...*,", sides(call), "->", sides(call), "; each(2)"));
}

OpRule ormqr(const OpCall& call) {
  return rule_for(call, text("...**,...*,", sides(call), "->", sides(call), "; each(2)"));
}

// Which of residuals, rank and singular values there are is the driver's matter.
OpRule lstsq(const OpCall& call) {
  const Shape& a = shape_of(call, "self");
  const bool vector = is_vector(a, shape_of(call, "b"));
  const std::string driver = call.word("driver", "gelsy");
  if (a.size() < 2) fail({call.name, "self", text("got rank ", a.size(), ", expected 2"), ""});
  const bool tall = a[a.size() - 2] > a[a.size() - 1];
  const char* residuals = !tall || driver == "gelsy" ? kNothing : vector ? "..." : kVector;
  const char* rank = driver == "gels" ? kNothing : "...";
  const char* values = driver == "gelsd" || driver == "gelss" ? kVector : kNothing;
  const char* b = vector ? kVector : kMatrix;
  return rule_for(call, text(kMatrix, ",", b, "->", b, ",", residuals, ",", rank, ",", values));
}

// Tolerances are of each matrix.
OpRule pinv(const OpCall& call) { return rule_for(call, "...**,...,...->...**"); }

}  // namespace

void add_linalg(Family& family) {
  family.add("...**->...**", {"cholesky_inverse", "linalg_matrix_exp", "linalg_matrix_sqrth"});
  family.add("...**->...**,...", {"linalg_cholesky_ex", "linalg_inv_ex"});
  family.add("...**->...,...**,...*", {"_linalg_det"});
  family.add("...**->...,...,...**,...*", {"_linalg_slogdet"});
  family.add("...**->...**,...**", qr, {"linalg_qr"});
  family.add("...**->...**,...*,...**", svd, {"_linalg_svd"});
  family.add("...**->...*,...**", eigh, {"_linalg_eigh"});
  family.add("...**->...*,...**", {"linalg_eig"});
  family.add("...**->...*", {"_linalg_eigvals"});
  family.add("...**->...**,...*", {"geqrf"});
  family.add("...**->...**,...**", {"linalg_polar"});
  family.add("...**->...**,...*,...", {"linalg_lu_factor_ex", "linalg_ldl_factor_ex"});
  family.add("...**->...**,...**,...**", lu, {"linalg_lu"});
  family.add("...**,...*->...**,...**,...**", lu_unpack, {"lu_unpack"});
  family.add("...**,...*->...**", {"linalg_householder_product"});

  family.add("...**,...*k->...*k,...**/k,...*/k,.../k; each(1) reduced(1,2,3)", solve,
             {"_linalg_solve_ex"});
  family.add("...**,...*k->...*k; each(1)", solve_triangular, {"linalg_solve_triangular"});
  family.add("...*k,...**->...*k,...**/k; each(0) reduced(1)", {"triangular_solve"});
  family.add("...*k,...**->...*k; each(0)", {"cholesky_solve", "_cholesky_solve_helper"});
  family.add("...**,...*,...*k->...*k; each(2)", lu_solve, {"linalg_lu_solve"});
  family.add("...**,...*,...*k->...*k; each(2)", {"linalg_ldl_solve"});
  family.add("...**,...*,...*k->...*k; each(2)", ormqr, {"ormqr"});
  family.add("...**,...**->...**,*,...,*", lstsq, {"linalg_lstsq"});
  family.add("...**,...,...->...**", pinv, {"linalg_pinv.atol_rtol_tensor"});
  // Read on the host, which throws where a factorisation failed.
  family.add("...->",
             [](const OpCall& call) {
               return rule_for(call, std::string(shape_of(call, "info").size(), '*') + "->");
             },
             {"_linalg_check_errors"});
}

}  // namespace meshtorch
