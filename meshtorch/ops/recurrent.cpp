// SPDX-License-Identifier: Apache-2.0
//
// Whole layers of recurrent networks, which libtorch's CPU runs by oneDNN: sequences of a batch are
// independent, everything else is whole. (Cells, and layers that it does not take, are made of linear
// maps and pointwise ops.)
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// Time first, whatever `batch_first` says: the layer is given its input that way round.
constexpr const char* kSequence = "*n*";
constexpr const char* kState = "*n*";

// The workspace is opaque bytes; only the backward on the same device reads it.
OpRule layer(const OpCall& call) {
  return rule_for(call, text(kSequence, ",**,**,*,*,", kState, ",", kState, "->", kSequence, ",",
                             kState, ",", kState, ",*"));
}

OpRule layer_backward(const OpCall& call) {
  const std::vector<std::string> operands = {kSequence, "**",   "**",      "*",    "*",
                                             kState,    kState, kSequence, kState, kState,
                                             kSequence, kState, kState,    "*"};
  return rule_for(call, join(operands, ",") + "->" + kSequence + ",**,**,*,*," + kState + "," +
                            kState + "; joint(10,11,12)");
}

}  // namespace

void add_recurrent(Family& family) {
  family.add("*n*,**,**,*,*,*n*,*n*->*n*,*n*,*n*,*", layer, {"mkldnn_rnn_layer"});
  family.add("*n*,**,**,*,*,*n*,*n*,*n*,*n*,*n*,*n*,*n*,*n*,*->*n*,**,**,*,*,*n*,*n*",
             layer_backward, {"mkldnn_rnn_layer_backward"});
}

}  // namespace meshtorch
