// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/partition_spec.h>

#include <algorithm>
#include <ostream>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/mesh/scan.h>

namespace meshtorch {
namespace {

std::string dim_text(const DimSpec& dim) {
  if (dim.empty()) return "-";
  return dim.size() == 1 ? dim.front() : "(" + join(dim) + ")";
}

DimSpec parse_dim(Scanner& scan) {
  if (scan.accept("-")) return {};
  if (!scan.accept("(")) return {scan.name()};
  DimSpec names = scan.names();
  scan.expect(")");
  return names;
}

void check_name(const std::string& name, const PartitionSpec& spec, std::set<std::string>& seen) {
  if (!is_name(name)) {
    fail({.op = "PartitionSpec", .where = spec.to_string(),
          .what = "\"" + name + "\" is an ill-formed axis name",
          .remedy = "names are [A-Za-z_][A-Za-z0-9_]*; several axes on one dim are "
                    "axes(\"a\", \"b\")"});
  }
  if (!seen.insert(name).second) {
    fail({.op = "PartitionSpec", .where = spec.to_string(),
          .what = "axis \"" + name + "\" is used twice",
          .remedy = "an axis shards one dim or is unreduced, once"});
  }
}

}  // namespace

PartitionSpec PartitionSpec::from(std::vector<DimSpec> dims, std::vector<std::string> unreduced) {
  PartitionSpec spec;
  spec.dims_ = std::move(dims);
  spec.unreduced_ = std::move(unreduced);
  spec.normalize();
  return spec;
}

PartitionSpec PartitionSpec::parse(std::string_view text) {
  Scanner scan(text, "PartitionSpec::parse",
               "write it as \"P(dp, (fsdp, tp), -, pp) unreduced(ep)\"");
  std::vector<DimSpec> dims;
  std::vector<std::string> unreduced;
  scan.expect("P");
  scan.expect("(");
  if (!scan.accept(")")) {
    do {
      dims.push_back(parse_dim(scan));
    } while (scan.accept(","));
    scan.expect(")");
  }
  if (scan.accept("unreduced")) {
    scan.expect("(");
    unreduced = scan.names();
    scan.expect(")");
  }
  scan.expect_end();
  return from(std::move(dims), std::move(unreduced));
}

PartitionSpec PartitionSpec::reduced() const { return from(dims_); }

PartitionSpec PartitionSpec::with_unreduced(const std::vector<std::string>& names) const {
  std::vector<std::string> all = unreduced_;
  all.insert(all.end(), names.begin(), names.end());
  return from(dims_, std::move(all));
}

void PartitionSpec::normalize() {
  while (!dims_.empty() && dims_.back().empty()) dims_.pop_back();
  std::ranges::sort(unreduced_);
  std::set<std::string> seen;
  for (const DimSpec& dim : dims_) {
    for (const std::string& name : dim) check_name(name, *this, seen);
  }
  for (const std::string& name : unreduced_) check_name(name, *this, seen);
}

std::string PartitionSpec::to_string() const {
  std::vector<std::string> parts;
  for (const DimSpec& dim : dims_) parts.push_back(dim_text(dim));
  std::string text = "P(" + join(parts) + ")";
  if (!unreduced_.empty()) text += " unreduced(" + join(unreduced_) + ")";
  return text;
}

std::ostream& operator<<(std::ostream& out, const PartitionSpec& spec) {
  return out << spec.to_string();
}

}  // namespace meshtorch
