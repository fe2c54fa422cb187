// SPDX-License-Identifier: Apache-2.0
//
// Fully sharded parameters, by size alone: FsdpRule("fsdp") adds its axis to the largest dim that divides,
// after what shards the dim already, as ZeRO chooses it (layout/divisible_dim.h). It adds to what rules
// before it gave, and gives P() and its axis where none did:
//
//   Rules{PathRules{{"up\\.weight", P("tp")}, {"down\\.weight", P(whole, "tp")}}, FsdpRule("fsdp")}
//
//   up.weight    [512, 128]   P((tp, fsdp))
//   down.weight  [128, 512]   P(-, (tp, fsdp))
//   norm.weight  [128]        P()                  "not over fsdp: 128 elements of 1,024" in the report
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <meshtorch/tree/leaf.h>

namespace meshtorch {

struct FsdpOptions {
  std::int64_t min_size = 1024;  // elements; smaller leaves are left as they are
  friend bool operator==(const FsdpOptions&, const FsdpOptions&) = default;
};

class FsdpRule {
 public:
  static constexpr const char* kKind = "FsdpRule";

  explicit FsdpRule(std::string axis, FsdpOptions options = {});

  struct Addition {
    Layout layout;
    bool added = false;
    std::string note;  // why not
  };
  // Left as they are: leaves below min_size, those that use the axis (unreduced too), those with no dim
  // that divides, and buffers. Throws Error: the mesh has no such axis.
  Addition add(const Mesh& mesh, const Leaf& leaf, const Layout& given) const;

  const std::string& axis() const { return axis_; }
  const FsdpOptions& options() const { return options_; }
  std::string name() const { return "FsdpRule(" + axis_ + ")"; }
  friend bool operator==(const FsdpRule&, const FsdpRule&) = default;

 private:
  std::string axis_;
  FsdpOptions options_;
};

}  // namespace meshtorch
