// SPDX-License-Identifier: Apache-2.0
//
// Whole layers of recurrent networks, which libtorch's CPU runs by oneDNN in 32 and 16 bits: sequences of
// a batch are independent, everything else is whole. (Cells, and layers that it does not take, are made of
// linear maps and pointwise ops.)
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// Time first, whatever `batch_first` says: the layer is given its input that way round.
constexpr const char* kSequence = "*n*";

// (batch, hidden), perhaps behind the dim of layers.
std::string state(const OpCall& call) { return shape_of(call, "hx_").size() == 3 ? "*n*" : "n*"; }

// The workspace is opaque bytes, each device's its own: nothing but the backward on that device reads
// them, and it is called with the layouts of the forward.
OpRule layer(const OpCall& call) {
  const std::string h = state(call);
  return rule_for(call, text(kSequence, ",**,**,*,*,", h, ",", h, "->", kSequence, ",", h, ",", h,
                             ",*; reduced(3)"));
}

OpRule layer_backward(const OpCall& call) {
  const std::string h = state(call);
  const std::vector<std::string> operands = {kSequence, "**", "**", "*",       "*", h, h,
                                             kSequence, h,    h,    kSequence, h,   h, "*"};
  return rule_for(call, join(operands, ",") + "->" + kSequence + ",**,**,*,*," + h + "," + h +
                            "; joint(10,11,12)");
}

}  // namespace

void add_recurrent(Family& family) {
  family.add("*n*,**,**,*,*,n*,n*->*n*,n*,n*,*; reduced(3)", layer, {"mkldnn_rnn_layer"});
  family.add("*n*,**,**,*,*,n*,n*,*n*,n*,n*,*n*,n*,n*,*->*n*,**,**,*,*,n*,n*; joint(10,11,12)",
             layer_backward, {"mkldnn_rnn_layer_backward"});
}

}  // namespace meshtorch
