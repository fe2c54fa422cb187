// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/ops/view_factors.h>

#include <algorithm>
#include <numeric>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {
namespace {

class ViewFactors {
 public:
  ViewFactors(const Shape& from, const Shape& to)
      : from_{from, OperandFactors(from.size())}, to_{to, OperandFactors(to.size())} {}

  OpRule rule(const std::string& name) {
    if (numel(from_.shape) == 0) {
      match_leading();
    } else {
      match();
    }
    rule_.name = name;
    rule_.operands = {from_.factors};
    rule_.outputs = {to_.factors};
    rule_.joint = {false};
    rule_.each = {true};
    rule_.reduced = {false};
    for (const auto* side : {&from_, &to_}) mark_groups(side->factors);
    rule_.text = to_string(rule_);
    return std::move(rule_);
  }

 private:
  struct Side {
    Shape shape;
    OperandFactors factors;
    std::size_t dim = 0;
    std::int64_t left = -1;  // of the current dim, after the factors taken off it; -1: not begun

    bool done() const { return dim == shape.size(); }
    std::int64_t rest() const { return left < 0 ? shape[dim] : left; }
  };

  int add(std::int64_t size, bool whole) {
    rule_.factors.push_back(
        {whole ? "*" : std::to_string(rule_.factors.size()), size, whole, false});
    return static_cast<int>(rule_.factors.size()) - 1;
  }

  // Takes a major factor off the current dim, which ends when nothing is left of it.
  static void take(Side& side, int factor, std::int64_t size) {
    side.factors[side.dim].push_back(factor);
    side.left = side.rest() / size;
    if (side.left == 1) next(side);
  }

  static void next(Side& side) {
    ++side.dim;
    side.left = -1;
  }

  void share(std::int64_t size) {
    const int factor = add(size, false);
    take(from_, factor, size);
    take(to_, factor, size);
  }

  void match() {
    while (!from_.done() || !to_.done()) {
      const bool begun = from_.left >= 0 || to_.left >= 0;
      if (!from_.done() && !to_.done() && !begun && from_.rest() == to_.rest()) {
        share(from_.rest());
      } else if (!from_.done() && from_.left < 0 && from_.rest() == 1) {
        next(from_);
      } else if (!to_.done() && to_.left < 0 && to_.rest() == 1) {
        next(to_);
      } else if (const std::int64_t common = std::gcd(from_.rest(), to_.rest());
                 common == from_.rest() || common == to_.rest()) {
        share(common);
      } else {
        split(common);
      }
    }
  }

  // Neither dim divides the other: what they share goes on, the rest up to the next common boundary
  // is whole.
  void split(std::int64_t common) {
    if (common > 1) share(common);
    std::int64_t a = close(from_);
    std::int64_t b = close(to_);
    while (a != b) {
      if (a < b) {
        a *= close(from_);
      } else {
        b *= close(to_);
      }
    }
  }

  // Ends the current dim with a whole factor; its size.
  std::int64_t close(Side& side) {
    const std::int64_t size = side.rest();
    if (size > 1) side.factors[side.dim].push_back(add(size, true));
    next(side);
    return size;
  }

  void match_leading() {
    while (!from_.done() && !to_.done() && from_.rest() == to_.rest()) {
      const int factor = add(from_.rest(), false);
      from_.factors[from_.dim++].push_back(factor);
      to_.factors[to_.dim++].push_back(factor);
    }
    for (Side* side : {&from_, &to_}) {
      for (; !side->done(); ++side->dim) {
        side->factors[side->dim].push_back(add(side->shape[side->dim], true));
      }
    }
  }

  void mark_groups(const OperandFactors& dims) {
    for (const DimFactors& dim : dims) {
      for (int factor : dim) rule_.factors[factor].even |= dim.size() > 1;
    }
  }

  OpRule rule_;
  Side from_;
  Side to_;
};

}  // namespace

OpRule view_rule(const OpCall& call, const Shape& from, const Shape& to) {
  return ViewFactors(from, to).rule(call.name);
}

Shape resolve_size(const OpCall& call, const Shape& from, Shape to) {
  const std::int64_t total = numel(from);
  const auto open = std::find(to.begin(), to.end(), -1);
  if (open != to.end()) {
    *open = 1;
    const std::int64_t others = numel(to);
    *open = others == 0 ? 0 : total / others;
  }
  if (numel(to) != total) {
    fail({call.name, "size", text("got (", join(to), ") for ", total, " elements"), ""});
  }
  return to;
}

}  // namespace meshtorch
