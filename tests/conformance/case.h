// SPDX-License-Identifier: Apache-2.0
//
// A conformance case: one line of text, a call of an op with letters for sizes.
//
//   mm(self=<m,k>, mat2=<k,n>)
//   sum.dim_IntList(self=<a,b,c>, dim=[1], keepdim=true)
//   embedding(weight=<v,k>, indices=<a,b>:index(v))
//   convolution(input=<n,c,h,w>, weight=<o,c,3,3>, ...) ; min(h)=3 min(w)=3 no-zero
//
// The whole grammar is in docs/conformance.md.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "expression.h"

namespace meshtorch::conformance {

// "<a,2*b>:index(v)"
struct TensorText {
  std::vector<Expression> dims;
  std::string kind = "real";
  std::optional<Expression> parameter;  // of index(e), permutation(e)
};

struct Value {
  enum class Kind { tensor, absent, list, integer, number, boolean, word } kind = Kind::absent;
  std::optional<TensorText> tensor;
  std::vector<Value> list;
  std::optional<Expression> integer;
  double number = 0;
  bool boolean = false;
  std::string word;
};

// How results are compared with the dense ones.
enum class Compare {
  values,    // every element
  absolute,  // up to sign
  set,       // the elements in any order
  seeded,    // random: with what replicated operands give from the same seed
  shape,     // sizes and dtype only
};

struct Case {
  std::string where;  // "pointwise.txt:12"
  std::string text;
  std::string op;  // "sum.dim_IntList"
  c10::OperatorHandle handle;
  std::vector<std::pair<std::string, Value>> arguments;
  std::vector<char> letters;  // in order of appearance
  Sizes least;                // min(a)=3
  bool zero = true;
  bool gradients = true;
  bool gathers = false;  // no rule can hold for this call: it runs gathered by design
  Compare compare = Compare::values;

  std::string base() const { return "aten::" + op; }  // the name its rule is under
};

// Throws Error "file:line: what; remedy" on an unknown op, argument, kind or option, and on bad text.
Case parse_case(const std::string& text, const std::string& where);

// All cases of a file; a line that is none goes to `problem` and is left out.
std::vector<Case> read_cases(const std::string& path,
                             const std::function<void(const std::string&)>& problem);

}  // namespace meshtorch::conformance
