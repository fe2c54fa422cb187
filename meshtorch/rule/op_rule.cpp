// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/rule/op_rule.h>

#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// One dim of the notation: "1", "...", or the letters and stars of one dim, major to minor.
using DimText = std::string;
using OperandText = std::vector<DimText>;

constexpr const char* kEllipsis = "...";

OperandText dims_of(std::string_view text) {
  OperandText dims;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '.') {
      dims.emplace_back(kEllipsis);
      i += 3;
    } else if (text[i] == '(') {
      const std::size_t end = text.find(')', i);
      dims.emplace_back(text.substr(i + 1, end - i - 1));
      i = end + 1;
    } else {
      dims.emplace_back(text.substr(i++, 1));
    }
  }
  return dims;
}

std::vector<std::string_view> pieces_of(std::string_view list) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t comma = list.find(',');
    pieces.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return pieces;
    list.remove_prefix(comma + 1);
  }
}

std::vector<bool> mark(std::string_view marks, std::string_view name, std::size_t count) {
  std::size_t at = marks.find(name);
  if (at == std::string_view::npos) return std::vector<bool>(count, false);
  at += name.size();
  if (at >= marks.size() || marks[at] != '(') return std::vector<bool>(count, true);
  std::vector<bool> marked(count, false);
  int index = 0;
  for (char c = ','; c != ')'; c = marks[++at]) {
    index = rule_text::is_digit(c) ? 10 * index + (c - '0') : 0;
    if (rule_text::is_digit(c) && !rule_text::is_digit(marks[at + 1])) marked[index] = true;
  }
  return marked;
}

struct Notation {
  std::vector<OperandText> operands;
  std::vector<OperandText> outputs;
  std::vector<std::string> apart;  // per output, the letters behind its /
  std::string_view marks;
};

Notation split(std::string_view text) {
  const std::size_t semicolon = text.find(';');
  const std::string_view dims = text.substr(0, semicolon);
  const std::size_t arrow = dims.find("->");
  Notation notation;
  for (const std::string_view piece : pieces_of(dims.substr(0, arrow)))
    notation.operands.push_back(dims_of(piece));
  for (const std::string_view piece : pieces_of(dims.substr(arrow + 2))) {
    const std::size_t slash = piece.find('/');
    notation.outputs.push_back(dims_of(piece.substr(0, slash)));
    notation.apart.emplace_back(slash == std::string_view::npos ? "" : piece.substr(slash + 1));
  }
  if (semicolon != std::string_view::npos) notation.marks = text.substr(semicolon + 1);
  return notation;
}

bool has_ellipsis(const OperandText& dims) {
  return std::find(dims.begin(), dims.end(), kEllipsis) != dims.end();
}

// Binds one notation to shapes: finds every factor's size, then writes every operand in factors.
class Binder {
 public:
  Binder(std::string_view name, std::string_view text) : notation_(split(text)) {
    rule_.name = name;
    rule_.text = text;
  }

  OpRule bind(const std::vector<std::optional<Shape>>& operands,
              const std::vector<Shape>& outputs) {
    if (operands.empty() && is_empty_list(notation_.operands)) notation_.operands.clear();
    check_count("operands", notation_.operands.size(), operands.size());
    if (!outputs.empty()) check_count("outputs", notation_.outputs.size(), outputs.size());
    collect(operands, outputs);
    count_ellipsis_dims();
    for (auto& bound : bound_) spread_ellipsis(bound);
    for (auto& bound : bound_) take_sizes(bound);
    while (solve_groups()) {
    }
    for (const auto& bound : bound_) write(bound);
    write_apart();
    write_marks();
    return std::move(rule_);
  }

 private:
  struct Bound {
    std::string where;
    OperandText dims;
    std::optional<Shape> shape;  // nullopt: an output whose shape is not known
    bool output = false;
    bool absent = false;
    std::vector<DimFactors> factors = {};  // the dims' names as factors, before broadcasting
  };

  [[noreturn]] void fail_at(const std::string& where, const std::string& what,
                            const std::string& remedy = "") const {
    fail({rule_.name, where, text(what, " in rule \"", rule_.text, "\""), remedy});
  }

  static bool is_empty_list(const std::vector<OperandText>& list) {
    return list.size() == 1 && list[0].empty();
  }

  void check_count(const char* what, std::size_t expected, std::size_t got) const {
    if (expected != got) fail_at("", text("got ", got, " ", what, ", expected ", expected));
  }

  void collect(const std::vector<std::optional<Shape>>& operands,
               const std::vector<Shape>& outputs) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const OperandText& dims = notation_.operands[i];
      const bool absent_text = dims == OperandText{"?"};
      if (absent_text && operands[i])
        fail_at(text("operand ", i), "got a tensor where none may be");
      bound_.push_back({text("operand ", i), dims, operands[i], false, !operands[i].has_value()});
    }
    for (std::size_t i = 0; i < notation_.outputs.size(); ++i) {
      const bool known = i < outputs.size();
      bound_.push_back({text("output ", i), notation_.outputs[i],
                        known ? std::optional(outputs[i]) : std::nullopt, true});
    }
    for (const auto& bound : bound_) check_rank(bound);
  }

  void check_rank(const Bound& bound) const {
    if (!bound.shape) return;
    const std::size_t rank = bound.shape->size();
    const std::size_t named = bound.dims.size() - has_ellipsis(bound.dims);
    if (has_ellipsis(bound.dims) ? rank < named : rank != named) {
      fail_at(bound.where, text("got rank ", rank, ", expected ",
                                has_ellipsis(bound.dims) ? "at least " : "", named));
    }
  }

  void count_ellipsis_dims() {
    for (const auto& bound : bound_) {
      if (!bound.shape || !has_ellipsis(bound.dims)) continue;
      ellipsis_dims_ = std::max(ellipsis_dims_, bound.shape->size() - (bound.dims.size() - 1));
    }
  }

  // Replaces "..." by names that no letter can be: ".0", ".1" for the dims aligned to the right.
  void spread_ellipsis(Bound& bound) {
    const auto at = std::find(bound.dims.begin(), bound.dims.end(), kEllipsis);
    if (at == bound.dims.end()) return;
    const std::size_t dims =
        bound.shape ? bound.shape->size() - (bound.dims.size() - 1) : ellipsis_dims_;
    OperandText names;
    for (std::size_t i = ellipsis_dims_ - dims; i < ellipsis_dims_; ++i) {
      names.push_back(text(".", i));
    }
    const auto next = bound.dims.erase(at);
    bound.dims.insert(next, names.begin(), names.end());
  }

  int factor(const std::string& name) {
    if (name == "*") {
      rule_.factors.push_back({name, -1, true, false});
      return static_cast<int>(rule_.factors.size()) - 1;
    }
    const auto [entry, added] = by_name_.try_emplace(name, static_cast<int>(rule_.factors.size()));
    if (added) rule_.factors.push_back({name, -1, false, false});
    return entry->second;
  }

  DimFactors factors_of(const DimText& dim) {
    if (dim == "1") return {};
    if (dim[0] == '.') return {factor(dim)};
    DimFactors factors;
    for (char c : dim) factors.push_back(factor(std::string(1, c)));
    return factors;
  }

  void take_sizes(Bound& bound) {
    if (bound.absent) return;
    for (std::size_t d = 0; d < bound.dims.size(); ++d) {
      bound.factors.push_back(factors_of(bound.dims[d]));
      const DimFactors& factors = bound.factors.back();
      if (factors.size() > 1) {
        for (int f : factors) rule_.factors[f].even = true;
      }
      if (!bound.shape) continue;
      if (bound.dims[d] == "1" && (*bound.shape)[d] != 1) {
        fail_at(text(bound.where, " dim ", d),
                text("got size ", (*bound.shape)[d], ", expected 1"));
      }
      if (factors.size() == 1) take_size(bound, d, factors[0]);
    }
  }

  void take_size(const Bound& bound, std::size_t d, int f) {
    const std::int64_t size = (*bound.shape)[d];
    if (size < 0) return;
    Factor& factor = rule_.factors[f];
    if (factor.size == -1 || factor.size == 1) {
      factor.size = size;
    } else if (size != 1 && size != factor.size) {
      fail_at(text(bound.where, " dim ", d),
              text("got size ", size, " for factor ", factor.name, ", expected ", factor.size));
    }
  }

  // Finds the sizes of group members that stand in no dim alone; true while there is progress.
  bool solve_groups() {
    bool progress = false;
    for (const auto& bound : bound_) {
      for (std::size_t d = 0; bound.shape && d < bound.factors.size(); ++d) {
        progress |= solve_group(bound.factors[d], (*bound.shape)[d]);
      }
    }
    return progress;
  }

  bool solve_group(const DimFactors& factors, std::int64_t size) {
    if (size < 0) return false;
    int unknown = -1;
    for (int f : factors) {
      if (rule_.factors[f].size >= 0) {
        if (rule_.factors[f].size > 0) size /= rule_.factors[f].size;
      } else if (unknown >= 0) {
        return false;
      } else {
        unknown = f;
      }
    }
    if (unknown >= 0) rule_.factors[unknown].size = size;
    return unknown >= 0;
  }

  void write(const Bound& bound) {
    if (bound.absent) {
      rule_.operands.push_back(std::nullopt);
      return;
    }
    OperandFactors factors = bound.factors;
    for (std::size_t d = 0; d < factors.size(); ++d) {
      const std::int64_t size = size_of(bound, d);
      if (!bound.shape) continue;
      const std::int64_t got = (*bound.shape)[d];
      if (got == 1 && size != 1) factors[d].clear();
      if (factors[d].size() > 1 && got >= 0 && got != size) {
        fail_at(text(bound.where, " dim ", d),
                text("got size ", got, " for group (", bound.dims[d], "), expected ", size));
      }
    }
    if (bound.output) {
      rule_.outputs.push_back(std::move(factors));
    } else {
      rule_.operands.push_back(std::move(factors));
    }
  }

  std::int64_t size_of(const Bound& bound, std::size_t d) const {
    std::int64_t size = 1;
    for (int f : bound.factors[d]) {
      const Factor& factor = rule_.factors[f];
      if (factor.size < 0 && !factor.whole) {
        fail_at(text(bound.where, " dim ", d), text("factor ", factor.name, " has no size"),
                "give the outputs' shapes");
      }
      size *= factor.size;
    }
    return size;
  }

  // Letters of absent operands bind to nothing.
  void write_apart() {
    for (std::size_t o = 0; o < notation_.apart.size(); ++o) {
      for (const char letter : notation_.apart[o]) {
        const auto found = by_name_.find(std::string(1, letter));
        if (found == by_name_.end()) continue;
        rule_.apart.resize(notation_.outputs.size());
        rule_.apart[o].push_back(found->second);
      }
    }
  }

  void write_marks() {
    rule_.joint = mark(notation_.marks, "joint", rule_.operands.size());
    rule_.each = mark(notation_.marks, "each", rule_.operands.size());
    rule_.reduced = mark(notation_.marks, "reduced", rule_.outputs.size());
  }

  Notation notation_;
  OpRule rule_;
  std::vector<Bound> bound_;
  std::size_t ellipsis_dims_ = 0;
  std::map<std::string, int> by_name_;
};

// Gives factors letters in the order in which they are printed.
class Printer {
 public:
  explicit Printer(const OpRule& rule) : rule_(rule), names_(rule.factors.size()) {}

  std::string print() {
    std::vector<std::string> operands;
    std::vector<std::string> outputs;
    for (const auto& operand : rule_.operands) operands.push_back(operand ? dims(*operand) : "?");
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o)
      outputs.push_back(dims(rule_.outputs[o]) + apart(o));
    const std::string marks =
        mark("joint", rule_.joint) + mark("each", rule_.each) + mark("reduced", rule_.reduced);
    return join(operands, ",") + "->" + join(outputs, ",") + (marks.empty() ? "" : ";") + marks;
  }

 private:
  std::string name(int f) {
    if (rule_.factors[f].whole) return "*";
    if (names_[f].empty()) {
      names_[f] = std::string(1, static_cast<char>(next_ < 26 ? 'a' + next_ : 'A' + next_ - 26));
      ++next_;
    }
    return names_[f];
  }

  std::string dims(const OperandFactors& operand) {
    std::string text;
    for (const DimFactors& factors : operand) {
      std::string names;
      for (int f : factors) names += name(f);
      text += factors.empty() ? "1" : factors.size() == 1 ? names : "(" + names + ")";
    }
    return text;
  }

  std::string apart(std::size_t output) {
    if (output >= rule_.apart.size() || rule_.apart[output].empty()) return "";
    std::string names = "/";
    for (const int f : rule_.apart[output]) names += name(f);
    return names;
  }

  static std::string mark(const char* name, const std::vector<bool>& marked) {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < marked.size(); ++i) {
      if (marked[i]) indices.push_back(i);
    }
    if (indices.empty()) return "";
    if (indices.size() == marked.size()) return text(" ", name);
    return text(" ", name, "(", join(indices, ","), ")");
  }

  const OpRule& rule_;
  std::vector<std::string> names_;
  int next_ = 0;
};

}  // namespace

OpRule parse_rule(std::string_view name, RuleText text,
                  const std::vector<std::optional<Shape>>& operands,
                  const std::vector<Shape>& outputs) {
  if (const char* problem = RuleText::check(text.view())) {
    fail({std::string(name), "", meshtorch::text(problem, " in rule \"", text.view(), "\""), ""});
  }
  return Binder(name, text.view()).bind(operands, outputs);
}

Shape output_extents(const OpRule& rule, std::size_t output) {
  Shape extents;
  for (const DimFactors& dim : rule.outputs[output]) {
    std::int64_t extent = 1;
    for (const int factor : dim) {
      const std::int64_t size = rule.factors[static_cast<std::size_t>(factor)].size;
      extent = extent < 0 || size < 0 ? -1 : extent * size;
    }
    extents.push_back(extent);
  }
  return extents;
}

std::string to_string(const OpRule& rule) { return Printer(rule).print(); }

}  // namespace meshtorch
