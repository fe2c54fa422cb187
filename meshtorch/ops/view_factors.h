// SPDX-License-Identifier: Apache-2.0
//
// The factors of a view, from its sizes alone. Dims are matched from the major end; where several
// dims become several others, both are cut into common factors:
//
//   (6, 4) -> (24)      ab->(ab)
//   (6, 4) -> (3, 8)    (ab)c->a(bc)
//   (4, 6) -> (6, 4)    (a*)*->(a*)*     2 is common, the rest must be whole
//   (2, 1, 3) -> (2, 3) a1b->ab
#pragma once

#include <meshtorch/ops/op_call.h>

namespace meshtorch {

// A rule of one operand and one output, linear, without size arguments. The shapes have equally
// many elements; with zero elements only the equal leading dims are matched.
OpRule view_rule(const OpCall& call, const Shape& from, const Shape& to);

// Sizes with one -1 resolved. Throws Error where the elements do not fit.
Shape resolve_size(const OpCall& call, const Shape& from, Shape to);

}  // namespace meshtorch
