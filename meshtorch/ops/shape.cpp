// SPDX-License-Identifier: Apache-2.0
//
// Ops that move elements without computing: joining, repeating, padding, reordering.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

const Shape& first_of(const OpCall& call, std::string_view argument) {
  for (const int i : call.arguments[call.argument(argument)].operands) {
    const Shape& shape = *call.operands[i];
    // cat skips empty tensors of rank 1, whatever the rank of the others.
    if (shape != Shape{0}) return shape;
  }
  fail({call.name, std::string(argument), "holds no tensor with a shape", "give one"});
}

OpRule cat(const OpCall& call) {
  Shape shape = first_of(call, "tensors");
  const std::size_t dim = wrap_dim(call, call.integer("dim", 0), shape.size());
  std::string dims = letters(shape.size());
  dims[dim] = '*';
  shape[dim] = 0;
  std::vector<std::string> operands;
  for (const auto& operand : call.operands) {
    const bool skipped = *operand == Shape{0} && shape.size() != 1;
    operands.push_back(skipped ? "*" : dims);
    if (!skipped && dim < operand->size()) shape[dim] += (*operand)[dim];
  }
  return rule_for(call, join(operands, ",") + "->" + dims + "; joint", {shape});
}

OpRule stack(const OpCall& call) {
  Shape shape = first_of(call, "tensors");
  const std::string in = letters(shape.size());
  const std::size_t dim = wrap_dim(call, call.integer("dim", 0), shape.size() + 1);
  const std::size_t count = call.operands.size();
  std::string out = in;
  out.insert(dim, "*");
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<std::int64_t>(count));
  return rule_for(call, repeated(in, count) + "->" + out + "; joint", {shape});
}

// Dims that the attribute changes are whole.
OpRule repeat(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  const std::vector<std::int64_t> repeats = call.integers("repeats");
  if (repeats.size() < self.size()) {
    fail({call.name, "repeats", text("got ", repeats.size(), " for rank ", self.size()), ""});
  }
  const std::size_t added = repeats.size() - self.size();
  std::string in = letters(self.size());
  Shape shape = repeats;
  for (std::size_t d = 0; d < self.size(); ++d) {
    if (repeats[added + d] != 1) in[d] = '*';
    shape[added + d] *= self[d];
  }
  return rule_for(call, in + "->" + std::string(added, '*') + in + "; each", {shape});
}

OpRule pad(const OpCall& call) {
  Shape shape = shape_of(call, "self");
  const std::vector<std::int64_t> pads = call.integers("pad");
  std::string dims = letters(shape.size());
  for (std::size_t i = 0; i + 1 < pads.size() && i / 2 < shape.size(); i += 2) {
    const std::size_t d = shape.size() - 1 - i / 2;  // listed from the last dim
    if (pads[i] == 0 && pads[i + 1] == 0) continue;
    dims[d] = '*';
    shape[d] += pads[i] + pads[i + 1];
  }
  return rule_for(call, dims + "->" + dims, {shape});
}

OpRule reorder(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  return whole_along(call, dim_mask(call, call.integers("dims"), rank), 1, "; each");
}

OpRule glu(const OpCall& call) {
  Shape shape = shape_of(call, "self");
  const std::size_t dim = wrap_dim(call, call.integer("dim", -1), shape.size());
  std::string dims = letters(shape.size());
  if (!shape.empty()) {
    dims[dim] = '*';
    shape[dim] /= 2;
  }
  return rule_for(call, dims + "->" + dims, {shape});
}

OpRule glu_backward(const OpCall& call) {
  const Shape& shape = shape_of(call, "self");
  std::string dims = letters(shape.size());
  if (!shape.empty()) dims[wrap_dim(call, call.integer("dim", -1), shape.size())] = '*';
  return rule_for(call, dims + "," + dims + "->" + dims + "; each(0)", {shape});
}

}  // namespace

void add_shape(Family& family) {
  family.add("a*,a*->a*; joint", cat, {"cat"});
  family.add("a,a->a*; joint", stack, {"stack"});
  family.add("a*->a*; each", repeat, {"repeat"});
  family.add("a*->a*", pad, {"constant_pad_nd"});
  family.add("a*->a*; each", reorder, {"flip", "roll"});
  family.add("...**->...**; each", {"tril", "triu"});
  family.add("a*->a*", glu, {"glu"});
  family.add("a*,a*->a*; each(0)", glu_backward, {"glu_backward"});
  // Sequences are packed by their lengths on the host.
  family.add("***,*->**,*",
             [](const OpCall& call) {
               const std::size_t rank = shape_of(call, "input").size();
               OpRule rule = rule_for(call, std::string(rank, '*') + ",*->" +
                                                std::string(rank > 0 ? rank - 1 : 0, '*') + ",*");
               rule.host_outputs = {1};
               return rule;
             },
             {"_pack_padded_sequence"});
  family.add("**,*->***,*",
             [](const OpCall& call) {
               const std::size_t rank = shape_of(call, "data").size();
               OpRule rule = rule_for(
                   call, std::string(rank, '*') + ",*->" + std::string(rank + 1, '*') + ",*");
               rule.host_outputs = {1};
               return rule;
             },
             {"_pad_packed_sequence"});
}

}  // namespace meshtorch
