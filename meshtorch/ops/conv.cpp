// SPDX-License-Identifier: Apache-2.0
//
// Convolutions: batch and channels may be sharded, input channels contract, spatial dims are whole.
#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// The attribute's value for a spatial dim; one value stands for all.
std::int64_t spatial(const std::vector<std::int64_t>& list, std::size_t d, std::int64_t otherwise) {
  return list.empty() ? otherwise : list[list.size() == 1 ? 0 : d];
}

Shape output_shape(const OpCall& call) {
  const Shape& input = shape_of(call, "input");
  const Shape& weight = shape_of(call, "weight");
  const auto stride = call.integers("stride");
  const auto padding = call.integers("padding");
  const auto dilation = call.integers("dilation");
  const auto extra = call.integers("output_padding");
  const bool transposed = call.boolean("transposed");
  Shape shape = {input[0], transposed ? weight[1] * call.integer("groups") : weight[0]};
  for (std::size_t d = 0; d + 2 < input.size(); ++d) {
    const std::int64_t reach = spatial(dilation, d, 1) * (weight[d + 2] - 1);
    const std::int64_t cut = reach - 2 * spatial(padding, d, 0);
    const std::int64_t step = spatial(stride, d, 1);
    shape.push_back(transposed ? (input[d + 2] - 1) * step + cut + spatial(extra, d, 0) + 1
                               : (input[d + 2] - cut - 1) / step + 1);
  }
  return shape;
}

// Channels of several groups are a group of factors: g runs over the groups, c and o over the channels
// of one. Only g may be sharded then (and what is left of a group of its own).
struct ConvDims {
  std::string input;
  std::string weight;
  std::string bias;
  std::string output;
};

ConvDims conv_dims(std::size_t spatial_dims, bool transposed, bool grouped) {
  const std::string space(spatial_dims, '*');
  if (!grouped) return {"nc" + space, (transposed ? "co" : "oc") + space, "o", "no" + space};
  return {"n(gc)" + space, (transposed ? "(gc)o" : "(go)c") + space, "(go)", "n(go)" + space};
}

ConvDims conv_dims(const OpCall& call) {
  const std::size_t rank = shape_of(call, "input").size();
  if (rank < 3) fail({call.name, "input", text("got rank ", rank, ", expected at least 3"), ""});
  return conv_dims(rank - 2, call.boolean("transposed"), call.integer("groups") != 1);
}

OpRule with_local_groups(OpRule rule, const OpCall& call) {
  if (call.integer("groups") == 1) return rule;
  return sized_by_factor(std::move(rule), call, "groups",
                         call.arguments[call.argument("weight")].operands[0], 0);
}

OpRule convolution(const OpCall& call) {
  const ConvDims dims = conv_dims(call);
  return with_local_groups(rule_for(call,
                                    dims.input + "," + dims.weight + "," + dims.bias + "->" +
                                        dims.output + "; joint(2) each(0,1)",
                                    {output_shape(call)}),
                           call);
}

// Of one image without a batch dim, as the direct forms below take it.
OpRule lone(const OpCall& call) {
  const std::string image(shape_of(call, "input").size(), '*');
  return rule_for(call, image + "," + image + ",*" + image + "->" + image + ",*" + image + ",*");
}

// The bias gradient is a sum of the output's gradient: input channels are nothing to it.
OpRule convolution_backward(const OpCall& call) {
  if (shape_of(call, "input").size() + 1 == shape_of(call, "weight").size()) return lone(call);
  const ConvDims dims = conv_dims(call);
  const Shape& out = shape_of(call, "grad_output");
  OpRule rule = with_local_groups(
      rule_for(call,
               dims.output + "," + dims.input + "," + dims.weight + "->" + dims.input + "," +
                   dims.weight + "," + dims.bias + "/c; each(0)",
               {shape_of(call, "input"), shape_of(call, "weight"), {out[1]}}),
      call);
  if (call.integers("bias_sizes").empty()) return rule;
  return sized(std::move(rule), call, "bias_sizes", 2);
}

// The forms that libtorch's own convolution chooses from, called directly: no groups, and they refuse
// operands without channels, which a device without a part of them would have.
OpRule one_group(const OpCall& call, bool transposed) {
  const std::size_t rank = shape_of(call, "self").size();
  if (rank < 3) fail({call.name, "self", text("got rank ", rank, ", expected at least 3"), ""});
  ConvDims dims = conv_dims(shape_of(call, "weight").size() - 2, transposed, false);
  for (std::string* text : {&dims.input, &dims.weight})
    std::replace(text->begin(), text->end(), 'c', '*');
  const std::size_t unbatched = shape_of(call, "weight").size() - rank;
  return rule_for(call, dims.input.substr(unbatched) + "," + dims.weight + "," + dims.bias + "->" +
                            dims.output.substr(unbatched));
}

OpRule direct(const OpCall& call) { return one_group(call, false); }
OpRule direct_transposed(const OpCall& call) { return one_group(call, true); }

OpRule slow_backward(const OpCall& call) {
  return rule_for(
      call, "no**,nc**,oc**->nc**,oc**,o/c; each(0)",
      {shape_of(call, "self"), shape_of(call, "weight"), {shape_of(call, "grad_output").at(1)}});
}

OpRule mkldnn(const OpCall& call) {
  const std::size_t rank = shape_of(call, "self").size();
  if (rank < 3) fail({call.name, "self", text("got rank ", rank, ", expected at least 3"), ""});
  const ConvDims dims = conv_dims(rank - 2, false, call.integer("groups") != 1);
  Shape out(rank, -1);
  out[0] = shape_of(call, "self")[0];
  out[1] = shape_of(call, "weight").at(0);
  return with_local_groups(rule_for(call,
                                    dims.input + "," + dims.weight + "," + dims.bias + "->" +
                                        dims.output + "; joint(2) each(0,1)",
                                    {out}),
                           call);
}

// (n, c, h, w) to (n, c windows, places): a channel's window is the minor part of the dim.
OpRule im2col(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  if (self.size() < 3)
    fail({call.name, "self", text("got rank ", self.size(), ", expected 3 or 4"), ""});
  const std::size_t channels = self.size() - 3;
  const auto kernel = call.integers("kernel_size");
  Shape out(channels + 2, -1);
  if (channels == 1) out[0] = self[0];
  out[channels] = self[channels] * spatial(kernel, 0, 1) * spatial(kernel, 1, 1);
  const std::string batch(channels, 'n');
  return rule_for(call, batch + "c**->" + batch + "(c*)*; each", {out});
}

OpRule col2im(const OpCall& call) {
  const Shape& self = shape_of(call, "self");
  if (self.size() < 2)
    fail({call.name, "self", text("got rank ", self.size(), ", expected 2 or 3"), ""});
  const std::size_t channels = self.size() - 2;
  const auto kernel = call.integers("kernel_size");
  const auto size = call.integers("output_size");
  const std::int64_t window = spatial(kernel, 0, 1) * spatial(kernel, 1, 1);
  Shape out(channels + 3, -1);
  if (channels == 1) out[0] = self[0];
  out[channels] = window > 0 ? self[channels] / window : 0;
  for (std::size_t d = 0; d < 2; ++d) out[channels + 1 + d] = spatial(size, d, -1);
  const std::string batch(channels, 'n');
  return rule_for(call, batch + "(c*)*->" + batch + "c**; each", {out});
}

}  // namespace

void add_conv(Family& family) {
  family.add("nc**,oc**,o->no**; joint(2) each(0,1)", convolution, {"convolution", "_convolution"});
  family.add("no**,nc**,oc**->nc**,oc**,o/c; each(0)", convolution_backward,
             {"convolution_backward"});
  family.add("n***,o***,o->no**", direct,
             {"_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv_dilated2d",
              "slow_conv_dilated3d"});
  family.add("n***,*o**,o->no**", direct_transposed,
             {"slow_conv_transpose2d", "slow_conv_transpose3d"});
  family.add("no**,nc**,oc**->nc**,oc**,o/c; each(0)", slow_backward,
             {"_slow_conv2d_backward.output_mask"});
  family.add("nc**,oc**,o->no**; joint(2) each(0,1)", mkldnn, {"mkldnn_convolution"});
  family.add("*nc,*co,o->*no; joint(2) each(0,1)", {"conv_tbc"});
  family.add("nc**->n(c*)*; each", im2col, {"im2col"});
  family.add("n(c*)*->nc**; each", col2im, {"col2im"});
}

}  // namespace meshtorch
