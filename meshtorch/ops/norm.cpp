// SPDX-License-Identifier: Apache-2.0
//
// Normalisations and softmax.
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// "ab**" for an input normalised over its last two dims, "ab11" for its statistics, "**" for
// weights.
struct LayerDims {
  std::string input;
  std::string statistics;
  std::string weight;
};

LayerDims layer_dims(const OpCall& call) {
  const std::size_t rank = shape_of(call, "input").size();
  const std::size_t normed = call.integers("normalized_shape").size();
  if (normed > rank) {
    fail({call.name, "normalized_shape", text("got ", normed, " dims for rank ", rank), ""});
  }
  const std::string outer = letters(rank - normed);
  return {outer + std::string(normed, '*'), outer + std::string(normed, '1'),
          std::string(normed, '*')};
}

OpRule layer_norm(const OpCall& call) {
  const auto [x, s, w] = layer_dims(call);
  Shape statistics = shape_of(call, "input");
  const std::size_t outer = s.find('1') == std::string::npos ? s.size() : s.find('1');
  for (std::size_t d = outer; d < s.size(); ++d) statistics[d] = 1;
  return rule_for(call, join(std::vector{x, w, w}, ",") + "->" + join(std::vector{x, s, s}, ","),
                  {shape_of(call, "input"), statistics, statistics});
}

OpRule layer_norm_backward(const OpCall& call) {
  const auto [x, s, w] = layer_dims(call);
  const Shape& input = shape_of(call, "input");
  const Shape weight = call.integers("normalized_shape");
  return rule_for(call,
                  join(std::vector{x, x, s, s, w, w}, ",") + "->" +
                      join(std::vector{x, w, w}, ",") + "; each(0)",
                  {input, weight, weight});
}

// "nc**" of an input, channels second.
std::string channels_second(const OpCall& call) {
  const std::size_t rank = shape_of(call, "input").size();
  if (rank < 2) fail({call.name, "input", text("got rank ", rank, ", expected at least 2"), ""});
  return "nc" + std::string(rank - 2, '*');
}

bool training(const OpCall& call) {
  for (const char* name : {"training", "train"}) {
    if (call.has(name)) return call.boolean(name);
  }
  return false;
}

// The kernel takes the statistics over the global batch, so they come out reduced. In evaluation
// the saved ones are empty.
OpRule batch_norm(const OpCall& call) {
  const std::string x = channels_second(call);
  const Shape& input = shape_of(call, "input");
  const bool train = training(call);
  const std::string saved = train ? "c" : "*";
  const Shape size = {train ? input[1] : 0};
  return rule_for(call,
                  x + "," + repeated("c", call.operands.size() - 1) + "->" + x + "," + saved + "," +
                      saved + "; reduced(1,2)",
                  {input, size, size});
}

OpRule batch_norm_backward(const OpCall& call) {
  const std::string x = channels_second(call);
  const Shape& input = shape_of(call, "input");
  const std::string saved = training(call) ? ",c,c" : ",*,*";
  return rule_for(call, x + "," + x + ",c,c,c" + saved + "->" + x + ",c,c; each(0)",
                  {input, {input[1]}, {input[1]}});
}

// Groups are independent of each other, and so are the statistics of each; the channels of one group
// are whole.
OpRule group_norm_rule(const OpCall& call, bool backward) {
  const Shape& input = shape_of(call, "input");
  if (input.size() < 2)
    fail({call.name, "input", text("got rank ", input.size(), ", expected at least 2"), ""});
  const std::string x = "n(g*)" + std::string(input.size() - 2, '*');
  const Shape channels = {call.integer("C")};
  const Shape groups = {call.integer("N"), call.integer("group")};
  OpRule rule = backward
                    ? rule_for(call, x + "," + x + ",ng,ng,(g*)->" + x + ",(g*),(g*); each(0)",
                               {input, channels, channels})
                    : rule_for(call, x + ",(g*),(g*)->" + x + ",ng,ng", {input, groups, groups});
  rule = sized(std::move(rule), call, "N", 0, 0);
  rule = sized(std::move(rule), call, "C", 0, 1);
  return sized_by_factor(std::move(rule), call, "group", 0, 1);
}

OpRule group_norm(const OpCall& call) { return group_norm_rule(call, false); }
OpRule group_norm_backward(const OpCall& call) { return group_norm_rule(call, true); }

// Channels are independent; a kernel of the global batch's statistics exists for native_batch_norm, these
// take them over the whole one.
RuleFunction channel_norm(const char* outputs) {
  return [=](const OpCall& call) {
    std::string x = channels_second(call);
    x[0] = '*';
    return rule_for(call, x + "," + repeated("c", call.operands.size() - 1) + "->" + x + outputs,
                    {});
  };
}

// By given statistics every element is for itself.
RuleFunction given_statistics(const char* outputs) {
  return [=](const OpCall& call) {
    const std::string x = channels_second(call);
    return rule_for(call, x + "," + repeated("c", call.operands.size() - 1) + "->" + x + outputs);
  };
}

// Writes its running statistics, which would have to come back from where the input's channels lie.
OpRule with_update(const OpCall& call) {
  const std::string x(shape_of(call, "input").size(), '*');
  return rule_for(call, x + "," + repeated("*", call.operands.size() - 1) + "->" + x + ",*,*,*");
}

OpRule reserved_backward(const OpCall& call) {
  std::string x = channels_second(call);
  x[0] = '*';
  const Shape& input = shape_of(call, "input");
  return rule_for(call, x + "," + x + ",c,c,c,c,c,*->" + x + ",c,c; each(0)",
                  {input, {input[1]}, {input[1]}});
}

// The norm of each slice along `dim`, which is the first or the last.
OpRule weight_norm(const OpCall& call, const char* weight, bool backward) {
  const std::size_t rank = shape_of(call, weight).size();
  const std::size_t dim = wrap_dim(call, call.integer("dim"), rank);
  std::string v(rank, '*');
  std::string g(rank, '1');
  if (rank > 0) v[dim] = g[dim] = 'a';
  const std::string out = "->" + v + "," + g;
  return backward ? rule_for(call, join(std::vector{v, v, g, g}, ",") + out + "; each(0)")
                  : rule_for(call, v + "," + g + out);
}

OpRule weight_norm_forward(const OpCall& call) { return weight_norm(call, "v", false); }
OpRule weight_norm_backward(const OpCall& call) { return weight_norm(call, "saved_v", true); }

// A mask is (t, s), or (b, s) of a batch of sequences, or one for each element.
std::string softmax_mask(const OpCall& call, const std::string& scores, const Shape& shape) {
  const Shape& mask = shape_of(call, "mask");
  if (mask == shape) return scores;
  if (shape.size() == 4 && mask.size() == 2 && call.has("mask_type") &&
      call.integer("mask_type") == 1) {
    return "a*";
  }
  return std::string(mask.size(), '*');
}

OpRule masked_softmax(const OpCall& call) {
  const Shape& shape = shape_of(call, "self");
  std::string scores = letters(shape.size());
  const bool broadcast = shape_of(call, "mask") != shape;
  if (!shape.empty()) scores[wrap_dim(call, call.integer("dim", -1), shape.size())] = '*';
  for (std::size_t d = 2; broadcast && d < scores.size(); ++d) scores[d] = '*';
  return rule_for(call, scores + "," + softmax_mask(call, scores, shape) + "->" + scores, {shape});
}

OpRule masked_softmax_backward(const OpCall& call) {
  const Shape& shape = shape_of(call, "grad_output");
  std::string scores = letters(shape.size());
  if (!shape.empty()) scores[wrap_dim(call, call.integer("dim", -1), shape.size())] = '*';
  return rule_for(call, repeated(scores, 3) + "->" + scores + "; each(0)", {shape});
}

RuleFunction softmax_along(const char* operand, const char* marks) {
  return [=](const OpCall& call) {
    const std::size_t rank = shape_of(call, operand).size();
    return whole_along(call, dim_mask(call, {call.integer("dim")}, rank), 1, marks);
  };
}

}  // namespace

void add_norm(Family& family) {
  family.add("ab*,*,*->ab*,ab1,ab1", layer_norm, {"native_layer_norm"});
  family.add("ab*,ab*,ab1,ab1,*,*->ab*,*,*; each(0)", layer_norm_backward,
             {"native_layer_norm_backward"});
  family.add("nc**,c,c,c,c->nc**,c,c; reduced(1,2)", batch_norm,
             {"native_batch_norm", "_native_batch_norm_legit"});
  family.add("nc**,c,c->nc**,c,c; reduced(1,2)", batch_norm, {"_native_batch_norm_legit.no_stats"});
  family.add("nc**,nc**,c,c,c,c,c->nc**,c,c; each(0)", batch_norm_backward,
             {"native_batch_norm_backward"});
  family.add("*c**,c,c,c,c->*c**,c,c,c,c", channel_norm(",c,c,c,c"),
             {"_native_batch_norm_legit_functional"});
  family.add("****,*,*,*,*->****,*,*,*", with_update, {"_batch_norm_with_update"});
  family.add("*c**,c,c,c,c->*c**,c,c,*,c,c", channel_norm(",c,c,*,c,c"),
             {"_batch_norm_with_update_functional"});
  family.add("nc**,c,c,c,c->nc**,*,*", given_statistics(",*,*"),
             {"_native_batch_norm_legit_no_training"});
  family.add("nc**,c,c,c,c->nc**,*,*,*", given_statistics(",*,*,*"), {"_batch_norm_no_update"});
  family.add("*c**,*c**,c,c,c,c,c,*->*c**,c,c; each(0)", reserved_backward,
             {"batch_norm_backward"});
  family.add("n(g*)**,(g*),(g*)->n(g*)**,ng,ng", group_norm, {"native_group_norm"});
  family.add("n(g*)**,n(g*)**,ng,ng,(g*)->n(g*)**,(g*),(g*); each(0)", group_norm_backward,
             {"native_group_norm_backward"});

  family.add("a**,a11->a**,a11", weight_norm_forward, {"_weight_norm_interface"});
  family.add("a**,a**,a11,a11->a**,a11; each(0)", weight_norm_backward,
             {"_weight_norm_interface_backward"});

  family.add("ab**,a*->ab**", masked_softmax, {"_masked_softmax"});
  family.add("a*,a*,a*->a*; each(0)", masked_softmax_backward, {"_masked_softmax_backward"});
  family.add("a*->a*", softmax_along("self", ""), {"_softmax", "_safe_softmax"});
  family.add("a*,a*->a*; each(0)", softmax_along("grad_output", "; each(0)"),
             {"_softmax_backward_data"});
  // The class dim may be sharded: the kernel takes its maximum and its sum over the devices.
  family.add("...->...", {"_log_softmax"});
  family.add("...,...->...; each(0)", {"_log_softmax_backward_data"});
}

}  // namespace meshtorch
