// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, pooling and resampling: spatial dims are whole.
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

// Channels contract where there is one group; groups of channels would need the attribute cut too.
struct ConvDims {
  std::string input;
  std::string weight;
  std::string bias;
  std::string output;
};

ConvDims conv_dims(const OpCall& call) {
  const std::size_t rank = shape_of(call, "input").size();
  if (rank < 3) fail({call.name, "input", text("got rank ", rank, ", expected at least 3"), ""});
  const std::string space(rank - 2, '*');
  if (call.integer("groups") != 1) return {"n*" + space, "**" + space, "*", "n*" + space};
  const char* weight = call.boolean("transposed") ? "co" : "oc";
  return {"nc" + space, weight + space, "o", "no" + space};
}

OpRule convolution(const OpCall& call) {
  const ConvDims dims = conv_dims(call);
  return rule_for(call,
                  dims.input + "," + dims.weight + "," + dims.bias + "->" + dims.output +
                      "; joint(2) each(0,1)",
                  {output_shape(call)});
}

OpRule convolution_backward(const OpCall& call) {
  const ConvDims dims = conv_dims(call);
  const Shape& out = shape_of(call, "grad_output");
  OpRule rule = rule_for(call,
                         dims.output + "," + dims.input + "," + dims.weight + "->" + dims.input +
                             "," + dims.weight + "," + dims.bias + "; each(0)",
                         {shape_of(call, "input"), shape_of(call, "weight"), {out[1]}});
  if (call.integers("bias_sizes").empty()) return rule;
  return sized(std::move(rule), call, "bias_sizes", 2);
}

OpRule resample_backward(const OpCall& call) {
  return sized(rule_for(call, "nc**->nc**; each", {call.integers("input_size")}), call,
               "input_size");
}

}  // namespace

void add_conv(Family& family) {
  family.add("nc**,oc**,o->no**; joint(2) each(0,1)", convolution, {"convolution"});
  family.add("no**,nc**,oc**->nc**,oc**,o; each(0)", convolution_backward,
             {"convolution_backward"});

  family.add("...**->...**,...**", {"max_pool2d_with_indices", "adaptive_max_pool2d"});
  family.add("...**,...**,...**->...**; each(0)",
             {"max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward"});
  family.add("...**->...**; each",
             {"avg_pool2d", "_adaptive_avg_pool2d", "reflection_pad2d", "replication_pad2d",
              "upsample_nearest2d", "upsample_bilinear2d"});
  family.add("...**,...**->...**; each(0)",
             {"avg_pool2d_backward", "_adaptive_avg_pool2d_backward", "reflection_pad2d_backward",
              "replication_pad2d_backward"});
  family.add("...***->...***,...***", {"max_pool3d_with_indices"});
  family.add("...***,...***,...***->...***; each(0)", {"max_pool3d_with_indices_backward"});
  family.add("...***->...***; each", {"avg_pool3d", "_adaptive_avg_pool3d"});
  family.add("...***,...***->...***; each(0)",
             {"avg_pool3d_backward", "_adaptive_avg_pool3d_backward"});
  family.add("...*->...*; each", {"reflection_pad1d", "replication_pad1d"});
  family.add("nc**->nc**; each", resample_backward,
             {"upsample_nearest2d_backward", "upsample_bilinear2d_backward"});
}

}  // namespace meshtorch
