// SPDX-License-Identifier: Apache-2.0
//
// The in-place (foo_), out= (foo.out) and list (_foreach_foo) forms of a case's op: they take its rule,
// so each is run from the case's own arguments.
#pragma once

#include <string>
#include <vector>

#include "runner.h"

namespace meshtorch::conformance {

struct DerivedOp {
  enum class Form { in_place, out, list, list_in_place } form;
  c10::OperatorHandle handle;
  std::string name() const;  // "aten::add_.Tensor"
  bool in_place() const { return form == Form::in_place || form == Form::list_in_place; }
};

// Those whose arguments are the op's own, by their schemas; the dispatch gives them the op's rule. Of
// the list forms those whose tensors are lists where the op's are tensors.
std::vector<DerivedOp> derived_ops(const c10::OperatorHandle& op);

// The op's results and its out= tensors go together one by one. (Lists of lists do not.)
bool can_run(const DerivedOp& op, const Reference& reference);

struct Verdict {
  std::vector<std::string> problems;
  bool refused = false;  // by plain libtorch
};

// The derived op from this placing. In place the written operand must end up with the value that it has in
// plain libtorch, in the layout that it had. Where libtorch refuses (the result is larger than the
// operand, another dtype) this must, too.
Verdict check_derived(const Scene& scene, const DerivedOp& op, const Placing& placing);

}  // namespace meshtorch::conformance
