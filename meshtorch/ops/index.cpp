// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing elements by index. The indexed dim is whole: a global index means nothing in
// a shard (except for embedding, whose kernel masks what it does not hold).
#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// The dims of `self`, with the indexed one starred: "a*c" of dim 1.
struct Indexed {
  std::size_t dim = 0;
  std::string self;
};

Indexed indexed(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  Indexed dims{wrap_dim(call, call.integer("dim"), rank), letters(rank)};
  if (rank > 0) dims.self[dims.dim] = '*';
  return dims;
}

// A 1-D (or 0-D) index takes slices along the dim: "a*c" and "n" make "anc".
struct Slices {
  std::string self;
  std::string index;
  std::string slices;
};

Slices slices_of(const OpCall& call) {
  const Indexed dims = indexed(call);
  Slices all{dims.self, std::string(shape_of(call, "index").size(), 'Z'), dims.self};
  if (!all.slices.empty()) all.slices[dims.dim] = all.index.empty() ? '*' : 'Z';
  if (all.slices.empty() && !all.index.empty()) all.index = "*";
  return all;
}

OpRule index_select(const OpCall& call) {
  const Slices dims = slices_of(call);
  return rule_for(call, dims.self + "," + dims.index + "->" + dims.slices + "; each(0)");
}

OpRule index_add(const OpCall& call) {
  const Slices dims = slices_of(call);
  return rule_for(
      call, dims.self + "," + dims.index + "," + dims.slices + "->" + dims.self + "; joint(0,2)");
}

OpRule index_copy(const OpCall& call) {
  Slices dims = slices_of(call);
  std::replace(dims.index.begin(), dims.index.end(), 'Z', '*');
  std::replace(dims.slices.begin(), dims.slices.end(), 'Z', '*');
  return rule_for(call, dims.self + "," + dims.index + "," + dims.slices + "->" + dims.self);
}

OpRule index_fill(const OpCall& call) {
  const Slices dims = slices_of(call);
  const std::string value = call.operands.size() == 3 ? "," : "";
  return rule_for(call,
                  dims.self + "," + std::string(dims.index.size(), '*') + value + "->" + dims.self);
}

// A full-rank index, as in gather and scatter: dims of equal size go through, others are whole.
// "a*c" with an index "aZc".
struct Elements {
  std::string self;
  std::string index;
};

Elements elements_of(const OpCall& call) {
  const Indexed dims = indexed(call);
  const Shape& self = shape_of(call, "self");
  const Shape& index = shape_of(call, "index");
  Elements all{dims.self, letters(index.size())};
  if (self.size() != index.size()) {  // rank 0 against 1
    return {std::string(self.size(), '*'), std::string(index.size(), '*')};
  }
  for (std::size_t d = 0; d < self.size(); ++d) {
    if (d == dims.dim) all.index[d] = 'Z';
    if (d != dims.dim && self[d] != index[d]) all.self[d] = all.index[d] = '*';
  }
  return all;
}

OpRule gather(const OpCall& call) {
  const Elements dims = elements_of(call);
  return rule_for(call, dims.self + "," + dims.index + "->" + dims.index + "; each(0)",
                  {shape_of(call, "index")});
}

// `src` may be larger than the index; then its dims are whole, and so are all.
bool src_is_larger(const OpCall& call) {
  return call.has("src") && call.arguments[call.argument("src")].is_tensor &&
         shape_of(call, "src") != shape_of(call, "index");
}

OpRule scatter(const OpCall& call, const std::string& marks, bool sums) {
  Elements dims = elements_of(call);
  if (src_is_larger(call)) {
    for (std::string* text : {&dims.self, &dims.index}) text->assign(text->size(), '*');
  }
  if (!sums) std::replace(dims.index.begin(), dims.index.end(), 'Z', '*');
  const std::string src = call.operands.size() == 3 ? "," + dims.index : "";
  return rule_for(call, dims.self + "," + dims.index + src + "->" + dims.self + marks);
}

OpRule scatter_write(const OpCall& call) { return scatter(call, "", false); }
OpRule scatter_add(const OpCall& call) { return scatter(call, "; joint(0,2)", true); }

OpRule embedding_backward(const OpCall& call) {
  const Shape& grad = shape_of(call, "grad_output");
  const std::int64_t rows = call.integer("num_weights");
  // Counting how often an index occurs takes all of them.
  const bool counts = call.boolean("scale_grad_by_freq");
  const std::string index(shape_of(call, "indices").size(), '*');
  const std::string text =
      counts ? index + "k," + index + "->vk; each(0)" : "...k,...->vk; each(0)";
  return sized(rule_for(call, text, {{rows, grad.empty() ? 1 : grad.back()}}), call, "num_weights",
               0, 0);
}

// Tensor indices on some dims of `self`. The indices broadcast against each other; their dims take
// the place of the indexed ones, or come first where those are not adjacent. Boolean indices are
// not seen here as such: the caller expands them or has no rule.
struct Advanced {
  std::string self;
  std::size_t at = 0;    // where the index dims stand in the result
  std::string kept;      // the other dims of the result
  std::size_t rank = 0;  // of the broadcast index
};

Advanced advanced(const OpCall& call) {
  const auto& indices = call.arguments[call.argument("indices")].operands;
  Advanced dims{letters(shape_of(call, "self").size())};
  std::vector<std::size_t> where;
  for (std::size_t d = 0; d < indices.size() && d < dims.self.size(); ++d) {
    const auto& index = call.operands[indices[d]];
    if (!index) continue;
    dims.self[d] = '*';
    dims.rank = std::max(dims.rank, index->size());
    where.push_back(d);
  }
  for (const char dim : dims.self) {
    if (dim != '*') dims.kept += dim;
  }
  const bool adjacent = !where.empty() && where.back() - where.front() + 1 == where.size();
  if (adjacent) dims.at = where.front();
  return dims;
}

OpRule index(const OpCall& call) {
  const Advanced dims = advanced(call);
  std::string out = dims.kept;
  out.insert(dims.at, "...");
  const std::string indices = repeated("...", call.operands.size() - 1);
  return rule_for(
      call, dims.self + (call.operands.size() > 1 ? "," + indices : "") + "->" + out + "; each(0)");
}

OpRule index_put(const OpCall& call) {
  const Advanced dims = advanced(call);
  std::string text = dims.self;
  for (const int i : call.arguments[call.argument("indices")].operands) {
    text += "," + (call.operands[i] ? std::string(call.operands[i]->size(), '*') : "");
  }
  std::string values = dims.kept;
  values.insert(dims.at, dims.rank, '*');
  const std::size_t rank = shape_of(call, "values").size();
  if (rank < values.size()) values.erase(0, values.size() - rank);
  text += "," + values + "->" + dims.self;
  if (call.boolean("accumulate")) {
    text += meshtorch::text("; joint(0,", call.operands.size() - 1, ")");
  }
  return rule_for(call, text);
}

// Every element of the index is looked up in all of self.
OpRule take(const OpCall& call) {
  const std::string index = letters(shape_of(call, "index").size());
  return rule_for(call, std::string(shape_of(call, "self").size(), '*') + "," + index + "->" +
                            index + "; each(0)");
}

OpRule put(const OpCall& call) {
  const auto whole = [&](const char* name) {
    return std::string(shape_of(call, name).size(), '*');
  };
  const std::string text = whole("self") + "," + whole("index") + "," + whole("source") + "->" +
                           whole("self") + (call.boolean("accumulate") ? "; joint(0,2)" : "");
  return rule_for(call, text, {shape_of(call, "self")});
}

// Rows of a table that are too long are shortened: in place, so the table is what comes out.
OpRule renorm(const OpCall& call) {
  return rule_for(call, "**," + std::string(shape_of(call, "indices").size(), '*') + "->**",
                  {shape_of(call, "self")});
}

// Bags of rows: sums and means add up row after row, a maximum looks at each column for itself. Which
// indices make a bag is known from all offsets, so bags are whole.
constexpr std::int64_t kMaximum = 2;

std::string stars(const OpCall& call, const char* name) {
  return std::string(shape_of(call, name).size(), '*');
}

OpRule bags(const OpCall& call) {
  const bool maximum = call.integer("mode") == kMaximum;
  return rule_for(call, "*k," + stars(call, "indices") + "," + stars(call, "offsets") +
                            ",*->*k,*/k,*/k," +
                            (maximum ? "*k; reduced(1,2)" : "*/k; each(0,3) reduced(1,2,3)"));
}

std::string bag_gradient(const OpCall& call, bool offsets) {
  const bool maximum = call.integer("mode") == kMaximum;
  return "*k," + stars(call, "indices") + (offsets ? "," + stars(call, "offsets") : "") + ",*,*," +
         (maximum ? "*k" : "*") + ",*->*k; each(0)";
}

OpRule bags_backward(const OpCall& call) {
  return rule_for(call, bag_gradient(call, call.has("offsets")),
                  {{call.integer("num_weights"), shape_of(call, "grad").back()}});
}

// A weight of an index gets the product of its row and its bag's gradient, summed over columns.
OpRule bag_weights_backward(const OpCall& call) {
  return rule_for(
      call, "*k,*k," + stars(call, "indices") + "," + stars(call, "offsets") + ",*->*; each(0,1)");
}

// Runs of elements along `axis` become one; the dims before it have lengths of their own.
OpRule segments(const OpCall& call, const char* first, int likes, const char* marks) {
  const std::size_t rank = shape_of(call, first).size();
  const std::size_t axis = wrap_dim(call, call.integer("axis", 0), rank);
  std::string data = letters(rank);
  if (rank > 0) data[axis] = '*';
  const std::string runs = data.substr(0, axis) + "*";
  std::string text = repeated(data, static_cast<std::size_t>(likes));
  for (std::size_t i = static_cast<std::size_t>(likes); i < call.operands.size(); ++i)
    text += "," + runs;
  return rule_for(call, text + "->" + data + marks);
}

OpRule segment_reduce(const OpCall& call) { return segments(call, "data", 1, ""); }
OpRule segment_reduce_backward(const OpCall& call) {
  return segments(call, "data", 3, "; each(0)");
}

}  // namespace

void add_index(Family& family) {
  family.add("vk,...->...k; each(0)", {"embedding"});
  family.add("...k,...->vk; each(0)", embedding_backward, {"embedding_dense_backward"});
  family.add("a*,n->an; each(0)", index_select, {"index_select"});
  family.add("a*,n,an->a*; joint(0,2)", index_add, {"index_add"});
  family.add("a*,*,a*->a*", index_copy, {"index_copy"});
  family.add("a*,*->a*", index_fill, {"index_fill.int_Scalar"});
  family.add("a*,*,->a*", index_fill, {"index_fill.int_Tensor"});
  family.add("a*,an->an; each(0)", gather, {"gather"});
  family.add("a*,a*,a*->a*", scatter_write,
             {"scatter.src", "scatter.reduce", "scatter_reduce.two"});
  family.add("a*,a*->a*", scatter_write, {"scatter.value", "scatter.value_reduce"});
  family.add("a*,an,an->a*; joint(0,2)", scatter_add, {"scatter_add"});
  family.add("*a,...->...a; each(0)", index, {"index.Tensor", "_unsafe_index.Tensor"});
  family.add("*a,*,*a->*a", index_put, {"index_put", "_index_put_impl", "_unsafe_index_put"});
  family.add("a*,*,a*->a*", index_copy, {"index_reduce"});
  family.add("**,...->...; each(0)", take, {"take"});
  family.add("**,...,...->**", put, {"put"});
  family.add("**,*->**", renorm, {"embedding_renorm"});
  family.add("*k,*,*,*->*k,*/k,*/k,*/k; each(0) reduced(1,2,3)", bags,
             {"_embedding_bag", "_embedding_bag_forward_only"});
  family.add("*k,*,*,*,*,*,*->*k; each(0)", bags_backward, {"_embedding_bag_backward"});
  family.add("*k,*,*,*,*,*->*k; each(0)", bags_backward, {"_embedding_bag_dense_backward"});
  family.add("*k,*k,*,*,*->*; each(0,1)", bag_weights_backward,
             {"_embedding_bag_per_sample_weights_backward"});
  family.add("a*b,a*,a*,a*->a*b", segment_reduce, {"segment_reduce"});
  family.add("a*b,a*b,a*b,a*,a*->a*b; each(0)", segment_reduce_backward,
             {"_segment_reduce_backward"});
  family.add("...,*->...", {"bucketize.Tensor"});
}

}  // namespace meshtorch
