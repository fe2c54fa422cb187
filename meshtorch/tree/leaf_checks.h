// SPDX-License-Identifier: Apache-2.0
//
// What can be said of a leaf and its layout before anything is placed.
#pragma once

#include <string>

#include <meshtorch/tree/leaf.h>

namespace meshtorch {

// Adds to a note of several parts: "a; b".
void add_note(std::string& note, const std::string& more);

// Throws Error where a device would get a part of a head, or none: `heads` is what the rule says, where it
// does, and else what the leaf says. A dim that the tensor does not have has no heads.
void refuse_cut_heads(const Mesh& mesh, const Leaf& leaf, const Heads& heads, const Layout& layout,
                      const std::string& op, const std::string& where);

// Throws Error where a dim does not divide over its axes.
void refuse_uneven(const Mesh& mesh, const Leaf& leaf, const Layout& layout, const std::string& op,
                   const std::string& where);

// "uneven: dim 0 of 5 over dp=4, 1 empty", of all such dims; empty where all divide.
std::string uneven_note(const Mesh& mesh, const Leaf& leaf, const Layout& layout);

}  // namespace meshtorch
