// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/ops/notation.h>

#include <meshtorch/base/error.h>

namespace meshtorch {

std::string letters(std::size_t count, std::size_t from) {
  if (from + count > 52)
    fail({"notation", "", text(from + count, " factors, expected at most 52"), ""});
  std::string names;
  for (std::size_t i = from; i < from + count; ++i) {
    names += static_cast<char>(i < 26 ? 'a' + i : 'A' + (i - 26));
  }
  return names;
}

std::size_t wrap_dim(const OpCall& call, std::int64_t dim, std::size_t rank) {
  const std::int64_t limit = rank == 0 ? 1 : static_cast<std::int64_t>(rank);
  if (dim < -limit || dim >= limit) {
    fail(
        {call.name, "dim", text("got ", dim, ", expected one of ", -limit, " to ", limit - 1), ""});
  }
  return static_cast<std::size_t>(dim < 0 ? dim + limit : dim);
}

std::vector<bool> dim_mask(const OpCall& call, const std::vector<std::int64_t>& dims,
                           std::size_t rank) {
  std::vector<bool> mask(rank, dims.empty());
  for (const std::int64_t dim : dims) {
    const std::size_t d = wrap_dim(call, dim, rank);
    if (d < rank) mask[d] = true;
  }
  return mask;
}

OpRule rule_for(const OpCall& call, const std::string& text, const std::vector<Shape>& outputs) {
  return parse_rule(call.name, RuleText::runtime(text), call.operands, outputs);
}

const Shape& shape_of(const OpCall& call, std::string_view argument) {
  const std::optional<Shape>& shape = call.tensor(argument);
  if (!shape) fail({call.name, std::string(argument), "is absent", "give a tensor"});
  return *shape;
}

std::string repeated(const std::string& piece, std::size_t count) {
  return join(std::vector<std::string>(count, piece), ",");
}

OpRule sized(OpRule rule, const OpCall& call, std::string_view argument, int output, int dim) {
  rule.sizes.push_back({.argument = call.argument(argument), .output = output, .dim = dim});
  return rule;
}

OpRule sized_by_factor(OpRule rule, const OpCall& call, std::string_view argument, int operand,
                       int dim, int member) {
  const auto& dims = rule.operands.at(static_cast<std::size_t>(operand)).value();
  const int factor = dims.at(static_cast<std::size_t>(dim)).at(static_cast<std::size_t>(member));
  rule.sizes.push_back({.argument = call.argument(argument), .factor = factor});
  return rule;
}

OpRule whole_along(const OpCall& call, const std::vector<bool>& whole, std::size_t outputs,
                   const std::string& marks, bool same_size) {
  std::string dims = letters(whole.size());
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (whole[d]) dims[d] = '*';
  }
  const std::string text =
      repeated(dims, call.operands.size()) + "->" + repeated(dims, outputs) + marks;
  if (!same_size) return rule_for(call, text);
  return rule_for(call, text, std::vector<Shape>(outputs, *call.operands[0]));
}

}  // namespace meshtorch
