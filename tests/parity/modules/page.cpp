// SPDX-License-Identifier: Apache-2.0
#include "page.h"

#include <array>
#include <map>

#include <meshtorch/base/error.h>

#include "run.h"

namespace meshtorch::modules {
namespace {

constexpr char kHead[] =
    "# The modules of torch::nn, sharded\n\n"
    "Written by `script/coverage` from `tests/parity/modules`; do not edit. Every class of "
    "libtorch's\n"
    "module headers has a row. Its outputs, gradients and buffers equal those of plain libtorch, "
    "or\n"
    "for modules that draw random numbers those of a mesh of one device, in training and in\n"
    "evaluation, with the batch over 2 and 4 devices, even and uneven, and with every parameter\n"
    "layout below.\n\n"
    "Named here is what moved on two devices, in training: collectives that an algorithm needs "
    "(the\n"
    "sum after a sharded contraction, statistics of the global batch), and **in bold** what a "
    "better\n"
    "rule would avoid: operands gathered for an op that cannot use them where they lie. `-`: "
    "nothing\n"
    "moved.\n\n"
    "- **batch**: the batch dim of all inputs over `dp`, parameters replicated. Gradients of "
    "parameters\n"
    "  stay unreduced; the optimizer's reduction is not counted.\n"
    "- **parameter dims**: each dim of each parameter over `tp`, one at a time, inputs "
    "replicated:\n"
    "  those that are used where they lie, and those gathered.\n"
    "- **layouts** (second table of a family): dims that belong together, with the input as "
    "named.\n";

std::string list(const std::vector<std::string>& items, const std::string& none) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + item;
  return text.empty() ? none : text;
}

bool any_implied(const Outcome& outcome) {
  return std::ranges::any_of(outcome.forward, implied) ||
         std::ranges::any_of(outcome.backward, implied);
}

// "`weight` 0, 1; `bias` 0" of the dims that are used where they lie, and of those that are not.
std::pair<std::string, std::string> parameter_dims(const Row& row) {
  if (!row.each_parameter) return {"those of its parts", ""};
  std::array<std::string, 2> cells;  // in place, gathered
  for (const auto& item : row.make().module->named_parameters()) {
    std::array<std::vector<std::string>, 2> dims;
    for (std::int64_t dim = 0; dim < item.value().dim(); ++dim) {
      if (item.value().size(dim) < 2) continue;
      std::vector<DimSpec> spec(dim);
      spec.push_back({"tp"});
      const Layout layout{
          item.key() + " " + std::to_string(dim), {{"^" + item.key() + "$", P::from(spec)}}, {}};
      dims[any_implied(expect_parity(row, {{{"tp", 2}}}, true, layout))].push_back(
          std::to_string(dim));
    }
    for (int i = 0; i < 2; ++i) {
      if (dims[i].empty()) continue;
      cells[i] += (cells[i].empty() ? "`" : "; `") + item.key() + "` " + list(dims[i], "");
    }
  }
  const auto or_none = [](const std::string& cell) { return cell.empty() ? "-" : cell; };
  return {or_none(cells[0]), or_none(cells[1])};
}

// Lines of a table; rows that differ in the second column alone are one line.
class Lines {
 public:
  void add(const std::string& module, const std::string& options, const std::string& rest) {
    if (!lines_.empty() && lines_.back().module == module && lines_.back().rest == rest) {
      lines_.back().options.push_back(options.empty() ? "default" : options);
    } else {
      lines_.push_back({module, {options.empty() ? "default" : options}, rest});
    }
  }

  std::string to_string() const {
    std::string text;
    for (const auto& line : lines_) {
      const bool plain = line.options == std::vector<std::string>{"default"};
      std::string options;
      for (const auto& option : line.options) options += (options.empty() ? "" : "; ") + option;
      text += "| " + line.module + " | " + (plain ? "" : options) + " | " + line.rest + " |\n";
    }
    return text;
  }

 private:
  struct Line {
    std::string module;
    std::vector<std::string> options;
    std::string rest;
  };
  std::vector<Line> lines_;
};

}  // namespace

std::string page() {
  std::string text = kHead;
  for (const auto& [family, rows] : table()) {
    Lines batch, layouts;
    for (const auto& row : rows) {
      const auto got = expect_parity(row, {{{"dp", 2}}}, true);
      const auto [in_place, gathered] = parameter_dims(row);
      batch.add(row.module, row.options,
                list(got.forward, "-") + " | " + list(got.backward, "-") + " | " + in_place +
                    " | " + gathered);
      for (const auto& layout : row.layouts) {
        const auto moved = expect_parity(row, {{{"tp", 2}}}, true, layout);
        layouts.add(row.module, (row.options.empty() ? "" : row.options + ": ") + layout.name,
                    list(moved.forward, "-") + " | " + list(moved.backward, "-"));
      }
    }
    text += "\n## " + family +
            "\n\n| module | built with | batch: forward | backward | parameter dims in place | "
            "gathered |\n|---|---|---|---|---|---|\n" +
            batch.to_string();
    if (!layouts.to_string().empty()) {
      text +=
          "\n| module | layout | forward | backward |\n|---|---|---|---|\n" + layouts.to_string();
    }
  }
  return text;
}

}  // namespace meshtorch::modules
