// SPDX-License-Identifier: Apache-2.0
//
// Fused attention: batch and heads are independent. (Unfused, it is bmm and softmax.)
#include <meshtorch/base/error.h>
#include <meshtorch/ops/families.h>
#include <meshtorch/ops/notation.h>

namespace meshtorch {
namespace {

// "bh**", or "b***" where queries and keys have different numbers of heads.
std::string heads(const OpCall& call) {
  const Shape& query = shape_of(call, "query");
  const Shape& key = shape_of(call, "key");
  if (query.size() != 4 || key.size() != 4) {
    fail({call.name, "query", text("got rank ", query.size(), ", expected 4"), ""});
  }
  return query[1] == key[1] ? "bh" : "b*";
}

// A mask is (t, s) or broadcasts to (b, h, t, s).
std::string mask(const OpCall& call, const std::string& head) {
  const auto& shape = call.tensor("attn_mask");
  if (!shape) return "";
  return shape->size() == 4 ? head + "**" : std::string(shape->size(), '*');
}

OpRule forward(const OpCall& call) {
  const std::string head = heads(call);
  const std::string x = head + "**";
  const Shape& query = shape_of(call, "query");
  Shape out = query;
  out[3] = shape_of(call, "value")[3];
  return rule_for(call, repeated(x, 3) + "," + mask(call, head) + "->" + x + "," + head + "*",
                  {out, {query[0], query[1], query[2]}});
}

OpRule backward(const OpCall& call) {
  const std::string head = heads(call);
  const std::string x = head + "**";
  return rule_for(
      call,
      repeated(x, 5) + "," + head + "*," + mask(call, head) + "->" + repeated(x, 3) + "; each(0)",
      {shape_of(call, "query"), shape_of(call, "key"), shape_of(call, "value")});
}

}  // namespace

void add_attention(Family& family) {
  family.add("bh**,bh**,bh**,bh**->bh**,bh*", forward,
             {"_scaled_dot_product_flash_attention_for_cpu"});
  family.add("bh**,bh**,bh**,bh**,bh**,bh*,bh**->bh**,bh**,bh**; each(0)", backward,
             {"_scaled_dot_product_flash_attention_for_cpu_backward"});
}

}  // namespace meshtorch
