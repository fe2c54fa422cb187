// SPDX-License-Identifier: Apache-2.0
//
// How an op may be sharded, as a value: which loop ("factor") of the op each dimension of each
// operand is, and in which operands the op is linear. The notation is einsum's, with a few marks:
//
//   ik,kj->ij; each            mm: i and j are sharded through; k contracts, which leaves the result
//                              unreduced; unreduced values flow through one operand at a time
//   ...,...->...; joint        add: broadcast dims; all operands unreduced -> the result unreduced
//   j,ik,kj->ij; joint(0) each(1,2)   addmm: the bias is added once, on the coordinate that keeps it
//   ...*->...*                 softmax over the last dim, which must be whole
//   bsh->(bs)h; each           view: (bs) is one dim of two factors, the major one carries the shard
//   vk,...->...k               embedding: v contracts
//
// letter   a factor: one per loop, the same letter has the same size everywhere
// *        a dim that must be whole, independent of all others
// 1        a broadcast dim of size one
// ...      any number of dims, aligned to the right and broadcast against each other
// (abc)    one dim made of several factors, major to minor. A minor factor is sharded only where every
//          more major one of the group is cut to size one; group factors divide evenly or not at all
// ,        between operands; absent (undefined, optional) operands have a text but are not bound
// ?        an operand that is absent (what to_string prints for one)
// joint(i,j) the result is a sum over these operands and the rest: they are unreduced together
// each(i,j)  the result is linear in each of these alone, with the others held fixed
// reduced(i) output i is complete on every device of the axis, whatever contracts or passes unreduced:
//            the op's own kernel sums over the axis, or the values do not depend on the operands
//            (no parentheses: all operands, all outputs)
// /ab       behind an output's dims: its values do not run over these factors, so it is complete on every
//           device where they are sharded (the bias gradient "o/c" of a convolution, which only the
//           output channels and the batch make)
//
// A rule is stated for one mesh axis; propagate() takes the product over the axes of a mesh.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

// The notation, checked when the library is compiled where it is a literal.
class RuleText {
 public:
  consteval RuleText(const char* text) : text_(text) {  // NOLINT(google-explicit-constructor)
    if (const char* problem = check(text_); problem != nullptr) throw problem;
  }
  // For text that is only known at run time; parse_rule reports what check would.
  static RuleText runtime(std::string_view text) { return RuleText(text, 0); }
  std::string_view view() const { return text_; }

  // What is wrong with the text, or null.
  static constexpr const char* check(std::string_view text);

 private:
  constexpr RuleText(std::string_view text, int) : text_(text) {}
  std::string_view text_;
};

struct Factor {
  std::string name;        // as in the notation; "*" for a whole dim
  std::int64_t size = -1;  // -1: known only from the result (a whole dim of an output)
  bool whole = false;      // must not be sharded
  bool even = false;       // may be sharded only into equal pieces (member of a group)
};

// The factors of one dimension, major to minor; empty for a broadcast dim of size one.
using DimFactors = std::vector<int>;
using OperandFactors = std::vector<DimFactors>;

// An integer-list or integer argument that spells the global shape of a tensor (view's size, expand's
// size, a backward's input_sizes) and becomes the local one on each device.
struct SizeArgument {
  int argument;      // position in the op's schema
  int output = -1;   // of this output, or
  int operand = -1;  // of this operand, or
  int factor = -1;   // of this factor alone (a convolution's groups)
  int dim = -1;      // the argument is this one dimension's size; -1: the whole shape
  int element = -1;  // it stands in this element of the list, whose others stay; -1: alone
};

struct OpRule {
  std::string name;  // "aten::mm"
  std::string text;  // the notation it came from
  std::vector<Factor> factors;
  // One entry per operand; nullopt for an absent one.
  std::vector<std::optional<OperandFactors>> operands;
  std::vector<OperandFactors> outputs;
  std::vector<bool> joint;  // per operand
  std::vector<bool> each;   // per operand
  std::vector<bool> reduced;  // per output; empty: none
  // Per output, the factors that its values do not run over; empty: none of any output.
  std::vector<std::vector<int>> apart;
  std::vector<SizeArgument> sizes;
  std::vector<int> host_outputs;  // outputs that are host metadata and stay plain tensors
  // Run as a view of the local operand to the local result's shape: the op itself would take a local
  // size of one for a global one (squeeze).
  bool local_view = false;
};

// Binds the notation to shapes (nullopt: absent operand). Throws Error with the rule's name where the
// text is malformed or sizes disagree. `outputs` is empty or has one shape per output (-1: a size that is
// not known); it is needed where a letter stands only in outputs. Without operands in the text and in `operands` the rule is a
// factory's.
OpRule parse_rule(std::string_view name, RuleText text,
                  const std::vector<std::optional<Shape>>& operands,
                  const std::vector<Shape>& outputs = {});

// The global shape of an output, of its factors' sizes; -1 where a dim is known only from the result.
Shape output_extents(const OpRule& rule, std::size_t output);

// The notation of a bound rule: factors are renamed a, b, c in order of appearance.
std::string to_string(const OpRule& rule);

}  // namespace meshtorch

#include <meshtorch/rule/rule_text.inl>
