// SPDX-License-Identifier: Apache-2.0
//
// Fused attention: batch and heads are independent, and queries are where no mask ties them to their
// place. (Unfused, it is bmm and softmax.)
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// "bhtd" of queries, "bhsd" of keys and values. Where there are more heads of queries than of keys, g
// queries share each key's head h.
struct Dims {
  std::string query;  // and of the result
  std::string key;
  std::string logsumexp;
  std::string mask;
};

// A causal mask counts queries from the first one on: then they are whole. A mask is (t, s) or
// broadcasts to (b, h, t, s), by all heads of queries.
Dims dims_of(const OpCall& call) {
  const Shape& query = shape_of(call, "query");
  const Shape& key = shape_of(call, "key");
  if (query.size() != 4 || key.size() != 4) {
    fail({call.name, "query", text("got rank ", query.size(), ", expected 4"), ""});
  }
  const std::string heads = query[1] == key[1] ? "h" : "(hg)";
  const std::string t = call.boolean("is_causal") ? "*" : "t";
  Dims dims{"b" + heads + t + "*", "bh**", "b" + heads + t, ""};
  if (const auto& mask = call.tensor("attn_mask")) {
    const std::string full = t + "*";
    if (mask->size() == 4) {
      dims.mask = ((*mask)[0] == 1 ? "1" : "b") + ((*mask)[1] == 1 ? "1" : heads) + full;
    } else {
      dims.mask = mask->size() == 2 ? full : std::string(mask->size(), '*');
    }
  }
  return dims;
}

OpRule forward(const OpCall& call) {
  const Dims dims = dims_of(call);
  const Shape& query = shape_of(call, "query");
  Shape out = query;
  out[3] = shape_of(call, "value").at(3);
  return rule_for(call,
                  dims.query + "," + dims.key + "," + dims.key + "," + dims.mask + "->" +
                      dims.query + "," + dims.logsumexp,
                  {out, {query[0], query[1], query[2]}});
}

OpRule backward(const OpCall& call) {
  const Dims dims = dims_of(call);
  const std::vector<std::string> operands = {dims.query, dims.query,     dims.key, dims.key,
                                             dims.query, dims.logsumexp, dims.mask};
  return rule_for(
      call, join(operands, ",") + "->" + dims.query + "," + dims.key + "," + dims.key + "; each(0)",
      {shape_of(call, "query"), shape_of(call, "key"), shape_of(call, "value")});
}

// Which kernel to use: asked of the shapes, on the host.
OpRule choice(const OpCall& call) {
  const Dims dims = dims_of(call);
  return rule_for(
      call, dims.query + "," + dims.key + "," + dims.key + "," + dims.mask + "->; each reduced");
}

// (b, t, 3 d) to three of (b, heads, t, d / heads).
OpRule split_heads(const OpCall& call) { return rule_for(call, "bt*,*->b*t*,b*t*,b*t*"); }

// What the inference paths of transformer modules take in one op: sequences are independent. A mask is
// (t, s), or (b, s) where its type says so, or one for each head.
std::string padding_mask(const OpCall& call) {
  const auto& mask = call.tensor("mask");
  if (!mask) return "";
  const bool per_sequence = call.integer("mask_type", -1) == 1 || mask->size() == 4;
  return (per_sequence ? "b" : "*") + std::string(mask->empty() ? 0 : mask->size() - 1, '*');
}

OpRule multi_head(const OpCall& call) {
  const bool weights = call.boolean("need_weights", true);
  const std::string averaged = call.boolean("average_attn_weights", true) ? "b**" : "b***";
  return rule_for(
      call, "b**,b**,b**,**,*,**,*," + padding_mask(call) + "->b**," + (weights ? averaged : "*"));
}

OpRule encoder_layer(const OpCall& call) {
  return rule_for(call, "b**,**,*,**,*,*,*,*,*,**,*,**,*," + padding_mask(call) + "->b**",
                  {shape_of(call, "src")});
}

}  // namespace

void add_attention(Family& family) {
  family.add("bht*,bh**,bh**,bht*->bht*,bht", forward,
             {"_scaled_dot_product_flash_attention_for_cpu"});
  family.add("bht*,bht*,bh**,bh**,bht*,bht,bht*->bht*,bh**,bh**; each(0)", backward,
             {"_scaled_dot_product_flash_attention_for_cpu_backward"});
  family.add("bht*,bh**,bh**,bht*->; each reduced", choice, {"_fused_sdp_choice"});
  family.add("bt*,*->b*t*,b*t*,b*t*", split_heads, {"_transform_bias_rescale_qkv"});
  family.add("b**,b**,b**,**,*,**,*,b*->b**,b**", multi_head, {"_native_multi_head_attention"});
  family.add("b**,**,*,**,*,*,*,*,*,**,*,**,*,b*->b**", encoder_layer,
             {"_transformer_encoder_layer_fwd"});
}

}  // namespace meshtorch
