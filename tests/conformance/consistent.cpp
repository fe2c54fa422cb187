// SPDX-License-Identifier: Apache-2.0
#include "consistent.h"

#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/decision.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch::conformance {
namespace {

// A use of one mesh axis: a factor, or an operand that stays unreduced (-1: the joint ones do).
struct Use {
  enum class Kind { factor, pass } kind;
  int index;
};

int dim_with(const OperandFactors& dims, int factor) {
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (std::find(dims[d].begin(), dims[d].end(), factor) != dims[d].end())
      return static_cast<int>(d);
  }
  return -1;
}

// The factor leads its dim: everything major to it has size one.
bool leads(const OpRule& rule, const OperandFactors& dims, int factor) {
  const int dim = dim_with(dims, factor);
  if (dim < 0) return true;
  for (const int f : dims[static_cast<std::size_t>(dim)]) {
    if (f == factor) return true;
    if (rule.factors[static_cast<std::size_t>(f)].size != 1) return false;
  }
  return true;
}

class Consistency {
 public:
  Consistency(const OpRule& rule, const Mesh& mesh, const Tensors& operands)
      : rule_(rule), mesh_(mesh), operands_(operands) {}

  std::vector<Use> uses() const {
    std::vector<Use> found;
    for (int f = 0; f < static_cast<int>(rule_.factors.size()); ++f) {
      if (usable(f)) found.push_back({Use::Kind::factor, f});
    }
    bool each = false;
    bool joint = false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].defined() ||
          !(operands_[i].is_floating_point() || operands_[i].is_complex()))
        continue;
      joint |= rule_.joint[i];
      each |= rule_.each[i];
      if (rule_.each[i]) found.push_back({Use::Kind::pass, static_cast<int>(i)});
    }
    if (joint && !each && joint_sum()) found.push_back({Use::Kind::pass, -1});
    return found;
  }

  // With axis a used as uses[a]; nullopt where they do not go together.
  std::optional<Consistent> place(const std::vector<Use>& uses) const {
    Consistent result;
    for (const at::Tensor& x : operands_)
      result.placing.push_back({!x.defined(), Layout::replicated(x.defined() ? x.dim() : 0)});
    for (const OperandFactors& output : rule_.outputs)
      result.outputs.emplace_back(Layout::replicated(static_cast<std::int64_t>(output.size())));
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      const Use& use = uses[static_cast<std::size_t>(axis)];
      if (!(use.kind == Use::Kind::factor ? shard(result, axis, use.index, uses)
                                          : pass(result, axis, use.index)))
        return std::nullopt;
      result.why += text(result.why.empty() ? "" : ", ",
                         mesh_.axes()[static_cast<std::size_t>(axis)].name, ": ", name(use));
    }
    return result;
  }

 private:
  std::string name(const Use& use) const {
    if (use.kind == Use::Kind::factor)
      return "factor " + rule_.factors[static_cast<std::size_t>(use.index)].name;
    return use.index < 0 ? "joint operands unreduced" : text("operand ", use.index, " unreduced");
  }

  bool joint_sum() const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].defined() && rule_.joint[i] && !operands_[i].is_floating_point() &&
          !operands_[i].is_complex())
        return false;
    }
    return true;
  }

  bool usable(int f) const {
    const Factor& factor = rule_.factors[static_cast<std::size_t>(f)];
    if (factor.whole || factor.size == 0) return false;
    // An output apart from it is made on every device: each needs a part.
    if (apart_of_some(f) && factor.size % mesh_.size() != 0) return false;
    bool found = false;
    for (const auto& operand : rule_.operands) {
      if (!operand) continue;
      found |= dim_with(*operand, f) >= 0;
      if (!leads(rule_, *operand, f)) return false;
    }
    for (const OperandFactors& output : rule_.outputs) {
      if (!leads(rule_, output, f)) return false;
    }
    return found && !summand_is_torn(f);
  }

  bool apart_of_some(int f) const {
    return std::any_of(rule_.apart.begin(), rule_.apart.end(), [&](const auto& apart) {
      return std::find(apart.begin(), apart.end(), f) != apart.end();
    });
  }

  // A joint operand without the factor would count once in one output and often in another.
  bool summand_is_torn(int f) const {
    bool some = false;
    bool all = true;
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o) {
      const bool contracts = dim_with(rule_.outputs[o], f) < 0;
      all &= contracts;
      some |= contracts && !complete(o, f);
    }
    if (!some || all) return false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].defined() && rule_.joint[i] && dim_with(*rule_.operands[i], f) < 0)
        return true;
    }
    return false;
  }

  bool reduced(std::size_t output) const {
    return output < rule_.reduced.size() && rule_.reduced[output];
  }
  // Complete on every device where the factor is sharded and the output has it not.
  bool complete(std::size_t output, int f) const {
    if (reduced(output) || output >= rule_.apart.size()) return reduced(output);
    const std::vector<int>& apart = rule_.apart[output];
    return std::find(apart.begin(), apart.end(), f) != apart.end();
  }

  bool shard(Consistent& result, int axis, int f, const std::vector<Use>& uses) const {
    const Factor& factor = rule_.factors[static_cast<std::size_t>(f)];
    std::int64_t pieces = 1;
    for (std::size_t a = 0; a < uses.size(); ++a) {
      if (uses[a].kind == Use::Kind::factor && uses[a].index == f)
        pieces *= mesh_.axis_size(static_cast<int>(a));
    }
    if (factor.even && factor.size % pieces != 0) return false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const int dim = operands_[i].defined() ? dim_with(*rule_.operands[i], f) : -1;
      if (dim < 0) continue;
      AxisList& axes = result.placing[i].layout.dims[static_cast<std::size_t>(dim)];
      if (!axes.empty() && !same_factor(axes, f, uses)) return false;  // another factor of the dim
      axes.push_back(axis);
    }
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o) {
      if (!result.outputs[o]) continue;  // another axis made it unknown
      const int dim = dim_with(rule_.outputs[o], f);
      if (dim >= 0) {
        AxisList& axes = result.outputs[o]->dims[static_cast<std::size_t>(dim)];
        if (!axes.empty() && !same_factor(axes, f, uses)) return false;
        axes.push_back(axis);
      } else if (!complete(o, f)) {
        result.outputs[o]->unreduced.insert(axis);
      }
    }
    return true;
  }

  static bool same_factor(const AxisList& axes, int f, const std::vector<Use>& uses) {
    for (int a = 0; a < axes.size(); ++a) {
      if (uses[static_cast<std::size_t>(axes[a])].index != f) return false;
    }
    return true;
  }

  bool pass(Consistent& result, int axis, int through) const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!operands_[i].defined()) continue;
      if (!(rule_.joint[i] || static_cast<int>(i) == through)) continue;
      if (!(operands_[i].is_floating_point() || operands_[i].is_complex())) return false;
      result.placing[i].layout.unreduced.insert(axis);
    }
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o) {
      if (!reduced(o) && result.outputs[o]) result.outputs[o]->unreduced.insert(axis);
      // An output larger than the operand is reduced later at a higher price.
      if (!reduced(o)) known_by_size(result, o, through);
    }
    return true;
  }

  void known_by_size(Consistent& result, std::size_t o, int through) const {
    std::int64_t extent = 1;
    for (const DimFactors& dim : rule_.outputs[o]) {
      for (const int f : dim) extent *= rule_.factors[static_cast<std::size_t>(f)].size;
    }
    bool smaller = extent >= 0 && rule_.outputs.size() == 1 && mesh_.rank() == 1;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].defined() &&
          (static_cast<int>(i) == through || (through < 0 && rule_.joint[i])))
        smaller &= extent <= operands_[i].numel();
    }
    if (!smaller) result.outputs[o].reset();
  }

  const OpRule& rule_;
  const Mesh& mesh_;
  const Tensors& operands_;
};

}  // namespace

std::vector<Consistent> consistent_placings(const OpRule& rule, const Mesh& mesh,
                                            const Tensors& operands) {
  const Consistency consistency(rule, mesh, operands);
  const std::vector<Use> uses = consistency.uses();
  std::vector<Consistent> found;
  auto add = [&](const std::vector<Use>& chosen) {
    if (auto placed = consistency.place(chosen)) found.push_back(*std::move(placed));
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (mesh.rank() == 1) {
      add({uses[i]});
      continue;
    }
    // Each with itself and with the next one, in both orders.
    const Use& next = uses[(i + 1) % uses.size()];
    if (uses[i].kind == Use::Kind::factor) add({uses[i], uses[i]});
    if (uses.size() > 1) add({uses[i], next});
    if (uses.size() > 2) add({next, uses[i]});
  }
  return found;
}

std::optional<OpRule> bound_rule(const Instance& instance, const Tensors& operands) {
  const OpEntry* entry = Runtime::current().rules().find(instance.of().base());
  if (entry == nullptr) return std::nullopt;
  const OpInfo info = analyse(instance.of().handle);
  const torch::jit::Stack stack = instance.stack(operands);
  return entry->rule(op_call(Frame(info, stack.data())));
}

}  // namespace meshtorch::conformance
