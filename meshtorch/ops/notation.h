// SPDX-License-Identifier: Apache-2.0
//
// Small pieces from which attribute-dependent rules write their text: one char per dim, so that a
// dim is dropped, starred or inserted by editing a string.
//
//   std::string in = letters(3);              "abc"
//   in[dim] = '*';                            "a*c"
//   rule_for(call, in + "->" + in + "; each");
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/ops/op_call.h>

namespace meshtorch {

// The first `count` letters after the first `from`; throws Error beyond the alphabet's 52.
std::string letters(std::size_t count, std::size_t from = 0);

// A dim counted from the end made to count from the front. A rank-0 tensor takes dims 0 and -1, and
// has no dim: the caller asks for the rank first. Throws Error out of range.
std::size_t wrap_dim(const OpCall& call, std::int64_t dim, std::size_t rank);

// As a mask over the dims of a tensor of this rank; no dims: all of them.
std::vector<bool> dim_mask(const OpCall& call, const std::vector<std::int64_t>& dims,
                           std::size_t rank);

// parse_rule for the call.
OpRule rule_for(const OpCall& call, const std::string& text,
                const std::vector<Shape>& outputs = {});

// The tensor of that argument; throws Error where it is absent.
const Shape& shape_of(const OpCall& call, std::string_view argument);

// `piece` repeated with commas between.
std::string repeated(const std::string& piece, std::size_t count);

// The rule with an argument that spells an output's shape.
OpRule sized(OpRule rule, const OpCall& call, std::string_view argument, int output = 0,
             int dim = -1);

// The rule with an argument that is a factor's size. The factor is named by where it stands: member
// `member` of a dim of an operand.
OpRule sized_by_factor(OpRule rule, const OpCall& call, std::string_view argument, int operand,
                       int dim, int member = 0);

// Every operand and output has the same dims, those in the mask are whole.
OpRule whole_along(const OpCall& call, const std::vector<bool>& whole, std::size_t outputs,
                   const std::string& marks = "", bool same_size = true);

}  // namespace meshtorch
