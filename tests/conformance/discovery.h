// SPDX-License-Identifier: Apache-2.0
//
// What plain libtorch itself says about an op, whatever its rule says: which loops can be cut in two so
// that the halves' results make up the whole one, and in which operands it is linear. Compared with the
// rule this finds dims that are gathered although a local answer exists, and tells a wrong rule from an
// equivalent one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <meshtorch/rule/op_rule.h>

#include "instance.h"

namespace meshtorch::conformance {

struct Discovery {
  // For each letter that can be halved: how each output comes together, "cat 1", "sum", "max", "min",
  // "or", "and" (of bools), "same" or "nothing" (no elements). Letters without an entry have no local answer.
  std::map<char, std::vector<std::string>> local;
  // Per operand: unreduced values could flow through it (with the operands that the rule calls joint).
  std::vector<bool> linear;
  // The sizes it was found at, for the rule to be bound to.
  Sizes sizes;
};

// `rule` tells the joint operands; null: none.
Discovery discover(const Case& of, const OpRule* rule);

// Dims that carry the letter as their leading part, as (operand, dim).
std::vector<std::pair<std::size_t, std::size_t>> dims_of(const Instance& instance, char letter);

// "self dim 1, other dim 0: cat 0" for every letter with a local answer that the rule has no way for,
// and "self: linear" for every operand that is reduced first although the op is linear in it.
std::vector<std::string> missed(const Case& of);

}  // namespace meshtorch::conformance
