// SPDX-License-Identifier: Apache-2.0
//
// Reductions, and ops that run along a dim: scans, sorts.
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// What becomes of the dims that are reduced.
enum class Reduced { contract, whole };

// No dims: all of them.
std::vector<bool> reduced_dims(const OpCall& call, std::size_t rank) {
  return dim_mask(call, call.has("dim") ? call.integers("dim") : std::vector<std::int64_t>(), rank);
}

// An empty list is no dim here: the elements themselves, as bools.
std::vector<bool> listed_dims(const OpCall& call, std::size_t rank) {
  const bool none = !call.is_none("dim") && call.integers("dim").empty();
  return none ? std::vector<bool>(rank, false) : reduced_dims(call, rank);
}

RuleFunction over_dims(Reduced how, std::size_t outputs, const char* marks = "",
                       std::vector<bool> (*dims)(const OpCall&, std::size_t) = reduced_dims) {
  return [=](const OpCall& call) {
    const std::size_t rank = shape_of(call, "self").size();
    const bool keep = call.has("keepdim") && call.boolean("keepdim");
    const std::vector<bool> reduced = dims(call, rank);
    std::string in = letters(rank);
    std::string out;
    for (std::size_t d = 0; d < rank; ++d) {
      if (!reduced[d]) out += in[d];
      if (reduced[d] && keep) out += '1';
      if (reduced[d] && how == Reduced::whole) in[d] = '*';
    }
    return rule_for(call, in + "->" + repeated(out, outputs) + marks);
  };
}

RuleFunction along_dim(std::size_t outputs, const char* marks = "", bool same_size = true) {
  return [=](const OpCall& call) {
    const std::size_t rank = shape_of(call, "self").size();
    const auto mask = dim_mask(call, {call.integer("dim", -1)}, rank);
    return whole_along(call, mask, outputs, marks, same_size);
  };
}

}  // namespace

void add_reduce(Family& family) {
  // A mean's kernel divides by the global count.
  family.add("ab->a; each", over_dims(Reduced::contract, 1, "; each"),
             {"sum", "sum.dim_IntList", "mean", "mean.dim"});
  family.add("ab->a", over_dims(Reduced::contract, 1),
             {"nansum", "count_nonzero", "count_nonzero.dim_IntList", "linalg__powsum"});
  family.add("**->; each", {"trace"});
  // A kernel joins the devices' parts (kernels/).
  family.add("ab->a; reduced", over_dims(Reduced::contract, 1, "; reduced"),
             {"amax",
              "amin",
              "max",
              "min",
              "argmax",
              "argmin",
              "any",
              "any.dim",
              "all",
              "all.dim",
              "prod",
              "prod.dim_int",
              "var.correction",
              "std.correction",
              "logsumexp",
              "linalg_vector_norm",
              "norm.Scalar",
              "norm.ScalarOpt_dtype",
              "norm.ScalarOpt_dim",
              "norm.ScalarOpt_dim_dtype"});
  family.add("ab->a; reduced", over_dims(Reduced::contract, 1, "; reduced", listed_dims),
             {"any.dims", "all.dims"});
  family.add("ab->a,a; reduced", over_dims(Reduced::contract, 2, "; reduced"),
             {"max.dim", "min.dim", "aminmax", "var_mean.correction", "std_mean.correction"});
  family.add("a*->a", over_dims(Reduced::whole, 1), {"median", "nanmedian", "hash_tensor"});
  family.add("a*->a,a", over_dims(Reduced::whole, 2),
             {"median.dim", "nanmedian.dim", "mode", "kthvalue", "_aminmax", "_aminmax.dim"});

  family.add("a*->a*; each", along_dim(1, "; each"), {"cumsum"});
  family.add("a*->a*", along_dim(1), {"cumprod", "logcumsumexp", "_logcumsumexp"});
  family.add("a*->a*,a*", along_dim(2), {"cummax", "cummin", "sort", "sort.stable"});
  family.add("a*->a*,a*", along_dim(2, "", false), {"topk"});
}

}  // namespace meshtorch
