// SPDX-License-Identifier: Apache-2.0
//
// Ops that move elements without computing: joining, repeating, padding, reordering.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

const Shape& first_of(const OpCall& call, std::string_view argument) {
  const auto& operands = call.arguments[call.argument(argument)].operands;
  for (const int i : operands) {
    const Shape& shape = *call.operands[i];
    // cat skips empty tensors of rank 1, whatever the rank of the others.
    if (shape != Shape{0}) return shape;
  }
  if (operands.empty()) fail({call.name, std::string(argument), "is empty", "give a tensor"});
  return *call.operands[operands[0]];
}

OpRule cat(const OpCall& call) {
  Shape shape = first_of(call, "tensors");
  if (shape.empty()) fail({call.name, "tensors", "have no dims", "stack them"});
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

OpRule flip(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  const std::vector<std::int64_t> dims = call.integers("dims");
  return whole_along(call, dims.empty() ? std::vector<bool>(rank) : dim_mask(call, dims, rank), 1,
                     "; each");
}

// Without dims it rolls the flattened tensor.
OpRule roll(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  return whole_along(call, dim_mask(call, call.integers("dims"), rank), 1, "; each");
}

// A quarter turn flips one dim, then exchanges the two; a half turn flips both.
OpRule rot90(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  const std::vector<std::int64_t> dims = call.integers("dims");
  if (dims.size() != 2) fail({call.name, "dims", text("got ", dims.size(), ", expected 2"), ""});
  const std::size_t from = wrap_dim(call, dims[0], rank);
  const std::size_t to = wrap_dim(call, dims[1], rank);
  const std::int64_t quarters = (call.integer("k", 1) % 4 + 4) % 4;
  std::string in = letters(rank);
  if (quarters == 1 || quarters == 2) in[to] = '*';
  if (quarters == 2 || quarters == 3) in[from] = '*';
  std::string out = in;
  if (quarters % 2 == 1) std::swap(out[from], out[to]);
  const Shape& shape = shape_of(call, "self");
  Shape turned = shape;
  if (quarters % 2 == 1) std::swap(turned[from], turned[to]);
  return rule_for(call, in + "->" + out + "; each", {turned});
}

// Every operand, of rank 2 or less, becomes a block.
OpRule block_diag(const OpCall& call) {
  std::vector<std::string> operands;
  Shape shape = {0, 0};
  for (const auto& operand : call.operands) {
    const std::size_t rank = operand->size();
    operands.emplace_back(rank, '*');
    shape[0] += rank == 2 ? (*operand)[0] : 1;
    shape[1] += rank == 0 ? 1 : operand->back();
  }
  return rule_for(call, join(operands, ",") + "->**; joint", {shape});
}

// Channels are (channel, row, column) of a block; the channel and the block's place may be sharded.
OpRule pixel_shuffle(const OpCall& call, bool forward) {
  Shape shape = shape_of(call, "self");
  if (shape.size() < 3) {
    fail({call.name, "self", text("got rank ", shape.size(), ", expected at least 3"), ""});
  }
  const std::int64_t factor = call.integer(forward ? "upscale_factor" : "downscale_factor");
  if (factor < 1) fail({call.name, "factor", text("got ", factor, ", expected at least 1"), ""});
  const std::size_t channels = shape.size() - 3;
  const std::string batch = letters(channels, 26);
  const std::string merged = batch + "(crs)hw";
  const std::string spread = batch + "c(hr)(ws)";
  shape[channels] =
      forward ? shape[channels] / (factor * factor) : shape[channels] * factor * factor;
  for (const std::size_t d : {channels + 1, channels + 2}) {
    shape[d] = forward ? shape[d] * factor : shape[d] / factor;
  }
  OpRule rule = rule_for(
      call, (forward ? merged + "->" + spread : spread + "->" + merged) + "; each", {shape});
  for (Factor& part : rule.factors) {
    if (part.name == "r" || part.name == "s") part.whole = true;
  }
  return rule;
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
  family.add("a,a->a*; joint", stack, {"stack", "_stack"});
  family.add("**,**->**; joint", block_diag, {"block_diag"});
  family.add("a*->a*; each", repeat, {"repeat"});
  family.add("a*->a*", pad, {"constant_pad_nd"});
  family.add("...***->...***; each", {"reflection_pad3d", "replication_pad3d"});
  family.add("...*,...*->...*; each(0)",
             {"reflection_pad1d_backward", "replication_pad1d_backward"});
  family.add("...***,...***->...***; each(0)",
             {"reflection_pad3d_backward", "replication_pad3d_backward"});
  family.add("a*->a*; each", flip, {"flip"});
  family.add("a*->a*; each", roll, {"roll"});
  family.add("a*->*a; each", rot90, {"rot90"});
  family.add("(abc)de->a(db)(ec); each",
             [](const OpCall& call) { return pixel_shuffle(call, true); }, {"pixel_shuffle"});
  family.add("a(db)(ec)->(abc)de; each",
             [](const OpCall& call) { return pixel_shuffle(call, false); }, {"pixel_unshuffle"});
  family.add("n*...->n*...; each", {"channel_shuffle"});
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
}

}  // namespace meshtorch
