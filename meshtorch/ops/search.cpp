// SPDX-License-Identifier: Apache-2.0
//
// Finding, counting and comparing with a set: these ops read all values of an operand at once, and the
// size of many a result depends on them.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

std::string whole(const OpCall& call, std::string_view argument) {
  const auto& shape = call.tensor(argument);
  return shape ? std::string(shape->size(), '*') : "";
}

// All operands whole, and so the outputs of these ranks.
OpRule all_whole(const OpCall& call, const std::vector<std::size_t>& ranks,
                 const std::string& marks = "") {
  std::vector<std::string> operands;
  for (const auto& operand : call.operands)
    operands.emplace_back(operand ? operand->size() : 0, '*');
  std::vector<std::string> outputs;
  for (const std::size_t rank : ranks) outputs.emplace_back(rank, '*');
  return rule_for(call, join(operands, ",") + "->" + join(outputs, ",") + marks);
}

OpRule one_row(const OpCall& call) { return all_whole(call, {1}); }
OpRule two_rows(const OpCall& call) { return all_whole(call, {1, 1}); }
OpRule table(const OpCall& call) { return all_whole(call, {2}); }

// A histogram over d columns has d rows of edges, or d dims.
std::size_t columns(const OpCall& call) {
  const Argument& bins = call.arguments[call.argument("bins")];
  return bins.is_tensor ? bins.operands.size() : call.integers("bins").size();
}

OpRule edges(const OpCall& call) {
  return all_whole(call, std::vector<std::size_t>(columns(call), 1));
}

OpRule counts(const OpCall& call) { return all_whole(call, {columns(call)}); }

// The elements, for each element of `self` where it is among them, how often they occur. What is not
// asked for is an empty row.
OpRule unique(const OpCall& call) {
  const bool inverse = call.boolean("return_inverse");
  std::vector<std::size_t> ranks = {1, inverse ? shape_of(call, "self").size() : 1};
  if (call.has("return_counts")) ranks.push_back(1);
  const bool along = call.has("dim") && !call.integers("dim").empty();
  if (along) ranks = {shape_of(call, "self").size(), 1, 1};
  return all_whole(call, ranks);
}

// Rows of a sorted sequence take rows of values; a sequence without rows takes any value.
OpRule searchsorted(const OpCall& call) {
  const std::size_t rank = shape_of(call, "sorted_sequence").size();
  const std::string rows = letters(rank > 0 ? rank - 1 : 0);
  const std::string sequence = rows + (rank > 0 ? "*" : "");
  const bool scalar = call.operands.size() == 2;  // a number in place of the values
  const std::string values = scalar ? "" : rank > 1 ? rows + "Z" : "...";
  return rule_for(call, sequence + (scalar ? "" : "," + values) + "," + sequence + "->" + values);
}

OpRule isin(const OpCall& call) {
  return rule_for(call, "...," + whole(call, "test_elements") + "->...");
}

OpRule masked_scatter(const OpCall& call) {
  return all_whole(call, {std::max(shape_of(call, "self").size(), shape_of(call, "mask").size())},
                   "; joint(0,2)");
}

OpRule masked_scatter_backward(const OpCall& call) {
  return all_whole(call, {call.integers("sizes").size()}, "; each(0)");
}

// A slice of the dim is scaled by its norm.
OpRule renorm(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  std::vector<bool> mask(rank, true);
  if (rank > 0) mask[wrap_dim(call, call.integer("dim"), rank)] = false;
  return whole_along(call, mask, 1);
}

}  // namespace

void add_search(Family& family) {
  family.add("**->**", table, {"nonzero", "nonzero_static"});
  family.add("**,**->*", one_row, {"masked_select"});
  family.add("**,**,*->**; joint(0,2)", masked_scatter, {"masked_scatter"});
  family.add("**,**->*; each(0)", masked_scatter_backward, {"masked_scatter_backward"});
  family.add("**->*,**", unique, {"_unique"});
  family.add("**->*,**,*", unique,
             {"_unique2", "unique_consecutive", "unique_dim", "unique_dim_consecutive"});
  family.add("a*,ab,a*->ab", searchsorted, {"searchsorted.Tensor", "searchsorted.Scalar"});
  family.add("*->", {"bucketize.Scalar"});
  family.add("...,**->...", isin, {"isin.Tensor_Tensor"});
  family.add("...->...", {"isin.Tensor_Scalar"});
  family.add("*,*->*", one_row, {"bincount"});
  family.add("**->*", one_row, {"histc"});
  family.add("**,**->*,*", two_rows, {"histogram.bin_ct"});
  family.add("**,*,**->*,*", two_rows, {"histogram.bins_tensor"});
  family.add("**,*->*,*", edges, {"_histogramdd_bin_edges"});
  family.add("**,*->**", counts, {"_histogramdd_from_bin_cts"});
  family.add("**,*,*,*->**", counts, {"_histogramdd_from_bin_tensors"});
  family.add("*->*", one_row, {"repeat_interleave.Tensor"});
  family.add("a*->a*", renorm, {"renorm"});
}

}  // namespace meshtorch
