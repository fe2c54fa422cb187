// SPDX-License-Identifier: Apache-2.0
//
// A PartitionSpec says how the dimensions of a tensor lie on the axes of a mesh, by name:
//
//   P()                                    every device holds the whole tensor
//   P("dp", whole, "tp")                   dim 0 over dp, dim 1 whole, dim 2 over tp
//   P("dp", axes("fsdp", "tp"))            dim 1 first over fsdp, each piece then over tp
//   P("tp").unreduced("dp")                each device along dp holds one summand
//
// Trailing dims default to whole, an axis may be used once. The text form is
// "P(dp, (fsdp, tp), -, pp) unreduced(ep)"; parse(to_string(s)) == s.
#pragma once

#include <concepts>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace meshtorch {

// One dimension's axes, major to minor; empty means whole.
using DimSpec = std::vector<std::string>;

struct Whole {};
inline constexpr Whole whole{};

// Several axes on one dimension, major to minor.
template <std::convertible_to<std::string>... Names>
DimSpec axes(const Names&... names) {
  return {std::string(names)...};
}

class PartitionSpec {
 public:
  PartitionSpec() = default;

  template <class... Dims>
    requires(sizeof...(Dims) > 0 &&
             ((std::convertible_to<Dims, std::string> || std::same_as<Dims, Whole> ||
               std::same_as<Dims, DimSpec>) && ...))
  explicit PartitionSpec(const Dims&... dims) : dims_{dim(dims)...} {
    normalize();
  }
  // From data: throws Error where an axis is used twice or a name is ill-formed.
  static PartitionSpec from(std::vector<DimSpec> dims, std::vector<std::string> unreduced = {});
  // Reads the text form, blanks ignored. Throws Error that shows the column of what it cannot read.
  static PartitionSpec parse(std::string_view text);

  // The same spec with these axes unreduced as well. Throws Error where one is already used.
  template <std::convertible_to<std::string>... Names>
  PartitionSpec unreduced(const Names&... names) const {
    return with_unreduced({std::string(names)...});
  }
  // The same spec with nothing unreduced.
  PartitionSpec reduced() const;

  // Trailing whole dims are not stored: dims().size() may be below the tensor's rank.
  const std::vector<DimSpec>& dims() const { return dims_; }
  // Sorted by name: the order has no meaning.
  const std::vector<std::string>& unreduced_axes() const { return unreduced_; }

  std::string to_string() const;
  friend bool operator==(const PartitionSpec&, const PartitionSpec&) = default;

 private:
  static DimSpec dim(const std::string& name) { return {name}; }
  static DimSpec dim(Whole) { return {}; }
  static DimSpec dim(const DimSpec& names) { return names; }
  PartitionSpec with_unreduced(const std::vector<std::string>& names) const;
  void normalize();  // drops trailing whole dims, sorts unreduced; throws on ill-formed or repeated

  std::vector<DimSpec> dims_;
  std::vector<std::string> unreduced_;
};

using P = PartitionSpec;

std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec);

}  // namespace meshtorch
