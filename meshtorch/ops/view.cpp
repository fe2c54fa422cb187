// SPDX-License-Identifier: Apache-2.0
//
// Views and their gradients: every one is linear.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>
#include <meshtorch/ops/view_factors.h>

#include <algorithm>

namespace meshtorch {
namespace {

constexpr const char* kLinear = "; each";

OpRule view(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  OpRule rule = view_rule(call, self, resolve_size(call, self, call.integers("size")));
  rule.local_view = call.has("stride");
  return sized(std::move(rule), call, "size");
}

OpRule expand(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  Shape size = call.integers("size");
  const std::size_t added = size.size() - std::min(size.size(), self.size());
  std::string in = letters(self.size(), added);
  const std::string out = letters(size.size());
  for (std::size_t d = 0; d < self.size() && added + d < size.size(); ++d) {
    std::int64_t& to = size[added + d];
    if (to == -1) to = self[d];
    if (self[d] == 1 && to != 1) in[d] = '1';
  }
  return sized(rule_for(call, in + "->" + out + kLinear, {size}), call, "size");
}

OpRule permuted(const OpCall& call, const std::vector<std::size_t>& order) {
  const std::string in = letters(order.size());
  std::string out;
  for (const std::size_t d : order) out += in[d];
  return rule_for(call, in + "->" + out + kLinear);
}

OpRule permute(const OpCall& call) {
  std::vector<std::size_t> order;
  const std::size_t rank = shape_of(call, "self").size();
  for (const std::int64_t dim : call.integers("dims")) order.push_back(wrap_dim(call, dim, rank));
  return permuted(call, order);
}

OpRule swapped(const OpCall& call, std::int64_t a, std::int64_t b) {
  const std::size_t rank = shape_of(call, "self").size();
  std::vector<std::size_t> order(rank);
  for (std::size_t d = 0; d < rank; ++d) order[d] = d;
  if (rank > 0) std::swap(order[wrap_dim(call, a, rank)], order[wrap_dim(call, b, rank)]);
  return permuted(call, order);
}

OpRule transpose(const OpCall& call) {
  return swapped(call, call.integer("dim0"), call.integer("dim1"));
}

OpRule t(const OpCall& call) {
  return shape_of(call, "self").size() < 2 ? swapped(call, 0, 0) : swapped(call, 0, 1);
}

OpRule squeeze(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  const std::vector<std::int64_t> dims =
      call.has("dim") ? call.integers("dim") : std::vector<std::int64_t>();
  std::vector<bool> asked = dim_mask(call, dims, self.size());
  if (call.has("dim") && dims.empty()) asked.assign(self.size(), false);
  std::string in = letters(self.size());
  std::string out;
  for (std::size_t d = 0; d < self.size(); ++d) {
    if (asked[d] && self[d] == 1) in[d] = '1';
    if (in[d] != '1') out += in[d];
  }
  OpRule rule = rule_for(call, in + "->" + out + kLinear);
  rule.local_view = true;
  return rule;
}

OpRule unsqueeze(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  std::string out = letters(rank);
  out.insert(wrap_dim(call, call.integer("dim"), rank + 1), "1");
  return rule_for(call, letters(rank) + "->" + out + kLinear);
}

// The dim of the attribute whole, or (no dim: a rank-0 tensor) an error.
std::string whole_dim(const OpCall& call, std::size_t rank, std::size_t& dim) {
  if (rank == 0) fail({call.name, "self", "has no dims", "give a tensor of rank 1 or more"});
  dim = wrap_dim(call, call.integer("dim", 0), rank);
  std::string dims = letters(rank);
  dims[dim] = '*';
  return dims;
}

OpRule select(const OpCall& call) {
  std::size_t dim = 0;
  const std::string in = whole_dim(call, shape_of(call, "self").size(), dim);
  std::string out = in;
  out.erase(dim, 1);
  return rule_for(call, in + "->" + out + kLinear);
}

OpRule slice(const OpCall& call) {
  Shape shape = shape_of(call, "self");
  std::size_t dim = 0;
  std::string dims = whole_dim(call, shape.size(), dim);
  const Range range = call.range("self");
  if (range.full) dims = letters(shape.size());
  shape[dim] = range.length;
  return rule_for(call, dims + "->" + dims + kLinear, {shape});
}

OpRule slice_backward(const OpCall& call) {
  const Shape shape = call.integers("input_sizes");
  std::size_t dim = 0;
  std::string dims = whole_dim(call, shape.size(), dim);
  if (call.range("input_sizes").full) dims = letters(shape.size());
  return sized(rule_for(call, dims + "->" + dims + kLinear, {shape}), call, "input_sizes");
}

OpRule select_backward(const OpCall& call) {
  const Shape shape = call.integers("input_sizes");
  std::size_t dim = 0;
  const std::string out = whole_dim(call, shape.size(), dim);
  std::string in = out;
  in.erase(dim, 1);
  return sized(rule_for(call, in + "->" + out + kLinear, {shape}), call, "input_sizes");
}

OpRule pieces(const OpCall& call, const std::vector<std::int64_t>& sizes, bool whole = true) {
  Shape shape = shape_of(call, "self");
  std::size_t dim = 0;
  std::string dims = whole_dim(call, shape.size(), dim);
  if (!whole) dims = letters(shape.size());
  std::vector<Shape> outputs;
  for (const std::int64_t size : sizes) {
    outputs.push_back(shape);
    outputs.back()[dim] = size;
  }
  return rule_for(call, dims + "->" + repeated(dims, sizes.size()) + kLinear, outputs);
}

OpRule split(const OpCall& call) {
  const Shape& shape = shape_of(call, "self");
  std::size_t dim = 0;
  whole_dim(call, shape.size(), dim);
  const std::int64_t piece = call.integer("split_size");
  std::vector<std::int64_t> sizes;
  for (std::int64_t at = 0; at < shape[dim] && piece > 0; at += piece) {
    sizes.push_back(std::min(piece, shape[dim] - at));
  }
  if (sizes.empty()) sizes.push_back(shape[dim]);
  // One piece is the tensor itself, and so is that of each shard.
  return pieces(call, sizes, sizes.size() > 1);
}

OpRule split_with_sizes(const OpCall& call) { return pieces(call, call.integers("split_sizes")); }

// A narrower form of slice, which takes a length for the end.
OpRule narrow(const OpCall& call) {
  Shape shape = shape_of(call, "self");
  std::size_t dim = 0;
  std::string dims = whole_dim(call, shape.size(), dim);
  shape[dim] = call.integer("length");
  return rule_for(call, dims + "->" + dims + kLinear, {shape});
}

OpRule unbind(const OpCall& call) {
  const Shape& shape = shape_of(call, "self");
  std::size_t dim = 0;
  const std::string in = whole_dim(call, shape.size(), dim);
  std::string out = in;
  out.erase(dim, 1);
  // A dim of no elements gives an empty list; a rule has an output.
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(shape[dim], 1));
  return rule_for(call, in + "->" + repeated(out, count) + kLinear);
}

// The dims of a diagonal are whole; what is left of them is one dim at the end.
struct Diagonal {
  std::string full;
  std::string diagonal;
};

Diagonal diagonal_dims(const OpCall& call, std::size_t rank) {
  Diagonal dims{letters(rank), ""};
  dims.full[wrap_dim(call, call.integer("dim1", 0), rank)] = '*';
  dims.full[wrap_dim(call, call.integer("dim2", 1), rank)] = '*';
  for (const char dim : dims.full) {
    if (dim != '*') dims.diagonal += dim;
  }
  dims.diagonal += '*';
  return dims;
}

OpRule diagonal(const OpCall& call) {
  const Diagonal dims = diagonal_dims(call, shape_of(call, "self").size());
  return rule_for(call, dims.full + "->" + dims.diagonal + kLinear);
}

OpRule diagonal_backward(const OpCall& call) {
  const Shape shape = call.integers("input_sizes");
  const Diagonal dims = diagonal_dims(call, shape.size());
  return sized(rule_for(call, dims.diagonal + "->" + dims.full + kLinear, {shape}), call,
               "input_sizes");
}

// The last dim becomes a diagonal of two dims of the result.
OpRule diag_embed(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  if (rank == 0) fail({call.name, "self", "has no dims", "give a tensor of rank 1 or more"});
  std::vector<bool> mask(rank + 1, false);
  for (const char* name : {"dim1", "dim2"}) {
    mask[wrap_dim(call, call.integer(name), rank + 1)] = true;
  }
  const std::string others = letters(rank - 1);
  std::string out;
  std::size_t next = 0;
  for (const bool diagonal : mask) out += diagonal ? '*' : others[next++];
  return rule_for(call, others + "*->" + out + kLinear);
}

// What is written over a part of `self` and the rest of it: linear together.
OpRule scatter(const OpCall& call, const std::string& self, const std::string& src) {
  return rule_for(call, self + "," + src + "->" + self + "; joint", {shape_of(call, "self")});
}

OpRule select_scatter(const OpCall& call) {
  std::size_t dim = 0;
  const std::string self = whole_dim(call, shape_of(call, "self").size(), dim);
  std::string src = self;
  src.erase(dim, 1);
  return scatter(call, self, src);
}

OpRule slice_scatter(const OpCall& call) {
  const Shape& shape = shape_of(call, "self");
  std::size_t dim = 0;
  std::string dims = whole_dim(call, shape.size(), dim);
  if (call.range("self").full) dims = letters(shape.size());
  return scatter(call, dims, dims);
}

OpRule diagonal_scatter(const OpCall& call) {
  const Diagonal dims = diagonal_dims(call, shape_of(call, "self").size());
  return scatter(call, dims.full, dims.diagonal);
}

// Another type's size changes the last dim, over which an element's bytes are spread.
OpRule view_dtype(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  const std::string dims = rank == 0 ? "" : letters(rank - 1) + "*";
  return rule_for(call, dims + "->" + dims);
}

OpRule unfold(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  std::string dims = letters(rank);
  if (rank > 0) dims[wrap_dim(call, call.integer("dimension"), rank)] = '*';
  return rule_for(call, dims + "->" + dims + "*" + kLinear);
}

OpRule unfold_backward(const OpCall& call) {
  const Shape shape = call.integers("input_sizes");
  std::string dims = letters(shape.size());
  if (!shape.empty()) dims[wrap_dim(call, call.integer("dim"), shape.size())] = '*';
  return sized(rule_for(call, dims + "*->" + dims + kLinear, {shape}), call, "input_sizes");
}

}  // namespace

void add_view(Family& family) {
  family.add("...->...; each",
             {"alias", "alias_copy", "detach", "detach_copy", "lift", "lift_fresh"});
  family.add("...->...*; each", {"view_as_real", "view_as_real_copy"});
  family.add("...*->...; each", {"view_as_complex", "view_as_complex_copy"});
  family.add("a*->a*", view_dtype, {"view.dtype", "view_copy.dtype"});
  family.add("(ab)c->a(bc); each", view,
             {"view", "view_copy", "_unsafe_view", "_reshape_alias", "_reshape_alias_copy",
              "_reshape_copy"});
  family.add("1b->ab; each", expand, {"expand", "expand_copy"});
  family.add("abc->bca; each", permute, {"permute", "permute_copy"});
  family.add("ab->ba; each", transpose, {"transpose.int", "transpose_copy.int"});
  family.add("ab->ba; each", t, {"t", "t_copy"});
  family.add("a1b->ab; each", squeeze,
             {"squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy", "squeeze_copy.dim",
              "squeeze_copy.dims"});
  family.add("ab->a1b; each", unsqueeze, {"unsqueeze", "unsqueeze_copy"});
  family.add("a*->a; each", select, {"select.int", "select_copy.int"});
  family.add("a->*a; each", select_backward, {"select_backward"});
  family.add("a*,a->a*; joint", select_scatter, {"select_scatter"});
  family.add("a*->a*; each", slice, {"slice.Tensor", "slice_copy.Tensor"});
  family.add("a*->a*; each", narrow, {"narrow_copy"});
  family.add("a*->a*; each", slice_backward, {"slice_backward"});
  family.add("a*,a*->a*; joint", slice_scatter, {"slice_scatter"});
  family.add("a*->a*,a*; each", split,
             {"split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor"});
  family.add("a*->a*,a*; each", split_with_sizes,
             {"split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes"});
  family.add("*a->a,a; each", unbind, {"unbind.int", "unbind_copy.int"});
  family.add("**a->a*; each", diagonal, {"diagonal", "diagonal_copy"});
  family.add("a*->**a; each", diagonal_backward, {"diagonal_backward"});
  family.add("**a,a*->**a; joint", diagonal_scatter, {"diagonal_scatter"});
  family.add("a*->a**; each", diag_embed, {"diag_embed"});
  family.add("a*->a**; each", unfold, {"unfold", "unfold_copy"});
  family.add("a**->a*; each", unfold_backward, {"unfold_backward"});
}

}  // namespace meshtorch
