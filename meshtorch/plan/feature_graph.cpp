// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/plan/feature_graph.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace meshtorch {
namespace {

// The factor of a dim that carries a shard: minor ones are cut only where all before them have size one.
int carrier(const OpRule& rule, const DimFactors& factors) {
  for (const int factor : factors) {
    if (rule.factors[static_cast<std::size_t>(factor)].size != 1) return factor;
  }
  return factors.empty() ? -1 : factors.front();
}

std::set<int> carriers(const OpRule& rule, const std::vector<OperandFactors>& outputs) {
  std::set<int> all;
  for (const OperandFactors& dims : outputs) {
    for (const DimFactors& factors : dims) all.insert(carrier(rule, factors));
  }
  return all;
}

bool looks_up(const std::string& op) {
  return op.starts_with("aten::embedding") || op.starts_with("aten::index_select");
}

}  // namespace

int FeatureGraph::add_feature() {
  parent_.push_back(static_cast<int>(parent_.size()));
  features_.emplace_back();
  return parent_.back();
}

int FeatureGraph::root(int feature) const {
  int& parent = parent_[static_cast<std::size_t>(feature)];
  if (parent != feature) parent = root(parent);
  return parent;
}

void FeatureGraph::unite(int a, int b) {
  a = root(a), b = root(b);
  if (a == b) return;
  Feature &kept = features_[static_cast<std::size_t>(a)],
          &other = features_[static_cast<std::size_t>(b)];
  kept.pieces = std::gcd(kept.pieces, other.pieces);
  if (kept.whole_by.empty()) kept.whole_by = other.whole_by;
  if (kept.lookup_by.empty()) kept.lookup_by = other.lookup_by;
  parent_[static_cast<std::size_t>(b)] = a;
}

int FeatureGraph::add_tensor(const Shape& shape) {
  Value value{.shape = shape, .dims = {}};
  for (std::size_t d = 0; d < shape.size(); ++d) value.dims.push_back(add_feature());
  values_.push_back(std::move(value));
  return static_cast<int>(values_.size()) - 1;
}

void FeatureGraph::bind(const OpRule& rule, const OperandFactors& dims, int tensor,
                        const std::vector<int>& loops) {
  const Value& value = values_[static_cast<std::size_t>(tensor)];
  for (std::size_t d = 0; d < dims.size() && d < value.dims.size(); ++d) {
    const int factor = carrier(rule, dims[d]);
    if (factor < 0) continue;
    const Factor& loop = rule.factors[static_cast<std::size_t>(factor)];
    unite(loops[static_cast<std::size_t>(factor)], value.dims[d]);
    Feature& feature =
        features_[static_cast<std::size_t>(root(loops[static_cast<std::size_t>(factor)]))];
    if (loop.even || dims[d].size() > 1) feature.pieces = std::gcd(feature.pieces, loop.size);
    if (loop.whole && feature.whole_by.empty()) feature.whole_by = rule.name;
  }
}

void FeatureGraph::add_op(const OpRule& rule, const std::vector<int>& operands,
                          const std::vector<int>& outputs) {
  std::vector<int> loops;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) loops.push_back(add_feature());
  for (std::size_t i = 0; i < operands.size() && i < rule.operands.size(); ++i) {
    if (operands[i] >= 0 && rule.operands[i]) bind(rule, *rule.operands[i], operands[i], loops);
  }
  for (std::size_t i = 0; i < outputs.size() && i < rule.outputs.size(); ++i) {
    if (outputs[i] >= 0) bind(rule, rule.outputs[i], outputs[i], loops);
  }
  if (!looks_up(rule.name)) return;
  const std::set<int> kept = carriers(rule, rule.outputs);
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (!kept.contains(static_cast<int>(f)))
      features_[static_cast<std::size_t>(root(loops[f]))].lookup_by = rule.name;
  }
}

void FeatureGraph::same(int a, int b) {
  const Value &one = values_[static_cast<std::size_t>(a)],
              &other = values_[static_cast<std::size_t>(b)];
  const std::size_t shared = std::min(one.dims.size(), other.dims.size());
  for (std::size_t i = 1; i <= shared; ++i) {
    const std::size_t d = one.dims.size() - i, e = other.dims.size() - i;
    if (one.shape[d] == other.shape[e]) unite(one.dims[d], other.dims[e]);
  }
}

int FeatureGraph::feature(int tensor, std::size_t dim) const {
  return root(values_[static_cast<std::size_t>(tensor)].dims[dim]);
}

const Shape& FeatureGraph::shape(int tensor) const {
  return values_[static_cast<std::size_t>(tensor)].shape;
}

}  // namespace meshtorch
