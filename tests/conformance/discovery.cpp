// SPDX-License-Identifier: Apache-2.0
#include "discovery.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <optional>

#include <meshtorch/base/error.h>

#include "compare.h"
#include "consistent.h"
#include "runner.h"

namespace meshtorch::conformance {
namespace {

constexpr std::uint64_t kSeeds[] = {1, 2, 3};

Sizes sizes_of(const Case& of) {
  Sizes sizes;
  for (std::size_t i = 0; i < of.letters.size(); ++i) {
    const auto least = of.least.find(of.letters[i]);
    const std::int64_t size = i % 2 == 0 ? 4 : 6;
    sizes[of.letters[i]] = std::max(size, least == of.least.end() ? 0 : 2 * least->second);
  }
  return sizes;
}

// Copies: some ops write their operands without saying so.
std::optional<Tensors> run(const Instance& instance, const Tensors& operands) {
  const at::NoGradGuard no_gradients;
  Tensors copies;
  for (const at::Tensor& x : operands) copies.push_back(x.defined() ? x.clone() : x);
  try {
    return call(instance.of().handle, instance.stack(copies));
  } catch (const std::exception&) {
    return std::nullopt;  // this half is no call of the op: that is the answer
  }
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return difference(a, b, std::max(tolerance_of(a.scalar_type()), 1e-9)).empty();
}

// One output from its halves; throws where the type has no sum or no order.
std::string way_of(const at::Tensor& whole, const at::Tensor& first, const at::Tensor& second) {
  if (!whole.defined()) return first.defined() || second.defined() ? "" : "same";
  if (!first.defined() || !second.defined() || first.dim() != whole.dim() ||
      first.sizes() != second.sizes())
    return "";
  std::int64_t cut = -1;
  for (std::int64_t d = 0; d < whole.dim(); ++d) {
    if (first.size(d) == whole.size(d)) continue;
    if (cut >= 0 || 2 * first.size(d) != whole.size(d)) return "";
    cut = d;
  }
  if (whole.numel() == 0) return "nothing";
  if (cut >= 0) return same_values(at::cat({first, second}, cut), whole) ? text("cat ", cut) : "";
  if (same_values(first, whole) && same_values(second, whole)) return "same";
  if (whole.scalar_type() == at::kBool) {
    if (same_values(at::logical_or(first, second), whole)) return "or";
    return same_values(at::logical_and(first, second), whole) ? "and" : "";
  }
  if (same_values(first + second, whole)) return "sum";
  if (whole.is_complex()) return "";
  if (same_values(at::maximum(first, second), whole)) return "max";
  return same_values(at::minimum(first, second), whole) ? "min" : "";
}

std::string way(const at::Tensor& whole, const at::Tensor& first, const at::Tensor& second) {
  try {
    return way_of(whole, first, second);
  } catch (const c10::Error&) {
    return "";
  }
}

bool has(const Expression& expression, char letter) {
  const auto letters = expression.letters();
  return std::find(letters.begin(), letters.end(), letter) != letters.end();
}

// The letter leads a dim, "a" of "a*b", or does not stand in it. Indices below it do not fit a half:
// some kernels of libtorch read out of bounds then.
bool sliceable(const Instance& instance, char letter) {
  bool found = false;
  for (std::size_t i = 0; i < instance.operands(); ++i) {
    if (instance.operand(i) == nullptr) continue;
    const auto& parameter = instance.operand(i)->parameter;
    if (parameter && has(*parameter, letter)) return false;
    for (const Expression& dim : instance.operand(i)->dims) {
      if (!has(dim, letter)) continue;
      const auto atoms = dim.product();
      if (atoms[0] != std::string(1, letter) ||
          std::count(atoms.begin(), atoms.end(), atoms[0]) > 1)
        return false;
      found = true;
    }
  }
  return found;
}

std::vector<std::string> ways(const Case& of, const Sizes& sizes, char letter, std::uint64_t seed) {
  const Instance whole(of, sizes);
  Sizes halved = sizes;
  halved[letter] /= 2;
  const Instance half(of, halved);
  if (!half.possible()) return {};
  const Tensors values = whole.values(seed);
  std::vector<Tensors> parts(2, values);
  for (const auto& [i, d] : dims_of(whole, letter)) {
    const auto dim = static_cast<std::int64_t>(d);
    const std::int64_t length = values[i].size(dim) / 2;
    for (std::int64_t part = 0; part < 2; ++part) {
      at::Tensor& x = parts[static_cast<std::size_t>(part)][i];
      x = x.narrow(dim, part * length, length).contiguous();
    }
  }
  const auto all = run(whole, values), first = run(half, parts[0]), second = run(half, parts[1]);
  if (!all || !first || !second || first->size() != all->size() || second->size() != all->size())
    return {};
  std::vector<std::string> found;
  for (std::size_t o = 0; o < all->size(); ++o) {
    found.push_back(way((*all)[o], (*first)[o], (*second)[o]));
    if (found.back().empty()) return {};
  }
  return found;
}

bool sums(const at::Tensor& x) { return x.defined() && (x.is_floating_point() || x.is_complex()); }

// f(x1 + x2) = f(x1) + f(x2), where operand `i` and the rule's joint ones are split and others are fixed.
// Outputs that the rule calls complete, or host metadata, do not depend on them at all.
bool is_linear(const Instance& instance, std::size_t i, const OpRule* rule) {
  const auto marked = [](const std::vector<bool>& marks, std::size_t k) {
    return k < marks.size() && marks[k];
  };
  const auto complete = [&](std::size_t o) {
    if (rule == nullptr) return false;
    const auto& host = rule->host_outputs;
    return marked(rule->reduced, o) ||
           std::find(host.begin(), host.end(), static_cast<int>(o)) != host.end();
  };
  for (const std::uint64_t seed : kSeeds) {
    const Tensors values = instance.values(seed);
    const Tensors summands = instance.values(seed + 100);
    std::vector<Tensors> parts(2, values);
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!values[k].defined() || !(k == i || (rule && marked(rule->joint, k)))) continue;
      if (!sums(values[k])) return false;
      parts[0][k] = summands[k];
      parts[1][k] = values[k] - summands[k];
    }
    const auto all = run(instance, values), first = run(instance, parts[0]),
               second = run(instance, parts[1]);
    if (!all || !first || !second || first->size() != all->size() || second->size() != all->size())
      return false;
    for (std::size_t o = 0; o < all->size(); ++o) {
      const at::Tensor& whole = (*all)[o];
      const at::Tensor& a = (*first)[o];
      const at::Tensor& b = (*second)[o];
      if (!whole.defined()) continue;
      if (complete(o)) {
        if (!same_values(a, whole) || !same_values(b, whole)) return false;
      } else if (!sums(whole) || a.sizes() != b.sizes() || !same_values(a + b, whole)) {
        return false;
      }
    }
  }
  return true;
}

// The rule shards all dims of the letter on one factor, and nothing else has that factor.
bool has_way(const OpRule& rule, const std::vector<std::pair<std::size_t, std::size_t>>& dims) {
  int factor = -1;
  for (const auto& [i, d] : dims) {
    const DimFactors& factors = (*rule.operands[i])[d];
    if (factors.empty() || rule.factors[static_cast<std::size_t>(factors[0])].whole) return false;
    if (factor >= 0 && factors[0] != factor) return false;
    factor = factors[0];
  }
  std::size_t used = 0;
  for (const auto& operand : rule.operands) {
    if (!operand) continue;
    for (const DimFactors& dim : *operand) used += std::count(dim.begin(), dim.end(), factor) > 0;
  }
  return used == dims.size();
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> dims_of(const Instance& instance, char letter) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < instance.operands(); ++i) {
    if (instance.operand(i) == nullptr) continue;
    const auto& dims = instance.operand(i)->dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (dims[d].product()[0] == std::string(1, letter)) found.emplace_back(i, d);
    }
  }
  return found;
}

Discovery discover(const Case& of, const OpRule* rule) {
  Discovery discovery;
  discovery.sizes = sizes_of(of);
  const Instance instance(of, discovery.sizes);
  if (!instance.possible()) return discovery;
  for (const char letter : of.letters) {
    if (!sliceable(instance, letter)) continue;
    const auto found = ways(of, discovery.sizes, letter, kSeeds[0]);
    if (!found.empty() &&
        std::all_of(std::begin(kSeeds), std::end(kSeeds), [&](std::uint64_t seed) {
          return ways(of, discovery.sizes, letter, seed) == found;
        }))
      discovery.local[letter] = found;
  }
  for (std::size_t i = 0; i < instance.operands(); ++i)
    discovery.linear.push_back(instance.operand(i) != nullptr && is_linear(instance, i, rule));
  return discovery;
}

std::vector<std::string> missed(const Case& of) {
  if (of.gathers || of.compare != Compare::values) return {};
  const Sizes sizes = sizes_of(of);
  const Instance instance(of, sizes);
  if (!instance.possible()) return {};
  const auto rule = bound_rule(instance, instance.values(kSeeds[0]));
  if (!rule) return {};
  const Discovery discovery = discover(of, &*rule);
  std::vector<std::string> found;
  for (const auto& [letter, outputs] : discovery.local) {
    const auto dims = dims_of(instance, letter);
    if (has_way(*rule, dims)) continue;
    std::vector<std::string> names;
    for (const auto& [i, d] : dims) names.push_back(text(instance.name(i), " dim ", d));
    found.push_back(join(names) + ": " + join(outputs));
  }
  for (std::size_t i = 0; i < instance.operands(); ++i) {
    if (discovery.linear[i] && !rule->each[i] && !rule->joint[i])
      found.push_back(instance.name(i) + ": linear");
  }
  return found;
}

}  // namespace meshtorch::conformance
