// SPDX-License-Identifier: Apache-2.0
//
// The one list of families. A family is a file with one function that adds its ops, most of them by
// a line of notation and a list of names. A new op of a known family is one name or one line, and
// one line in golden.inl.
#pragma once

#include <initializer_list>
#include <string>

#include <meshtorch/ops/registry.h>

namespace meshtorch {

// Adds ops, named without "aten::", to a registry under a family's name.
class Family {
 public:
  Family(std::string name, OpRegistry& registry) : name_(std::move(name)), registry_(registry) {}

  // Ops whose rule is this text, whatever their attributes.
  void add(RuleText text, std::initializer_list<const char*> ops);
  // Ops whose rule depends on attributes or shapes; `text` is a typical one.
  void add(const char* text, RuleFunction rule, std::initializer_list<const char*> ops);

 private:
  std::string name_;
  OpRegistry& registry_;
};

void add_pointwise(Family& family);
void add_reduce(Family& family);
void add_matmul(Family& family);
void add_view(Family& family);
void add_shape(Family& family);
void add_search(Family& family);
void add_index(Family& family);
void add_norm(Family& family);
void add_conv(Family& family);
void add_pool(Family& family);
void add_attention(Family& family);
void add_recurrent(Family& family);
void add_loss(Family& family);
void add_linalg(Family& family);
void add_fft(Family& family);
void add_optimizer(Family& family);
void add_create(Family& family);

struct FamilyList {
  const char* name;
  void (*add)(Family&);
};

inline constexpr FamilyList kFamilies[] = {
    {"pointwise", add_pointwise}, {"reduce", add_reduce},       {"matmul", add_matmul},
    {"view", add_view},           {"shape", add_shape},         {"search", add_search},
    {"index", add_index},         {"norm", add_norm},           {"conv", add_conv},
    {"pool", add_pool},           {"attention", add_attention}, {"recurrent", add_recurrent},
    {"loss", add_loss},           {"linalg", add_linalg},       {"fft", add_fft},
    {"optimizer", add_optimizer}, {"create", add_create},
};

}  // namespace meshtorch
