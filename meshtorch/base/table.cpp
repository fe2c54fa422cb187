// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

// Terminal cells of UTF-8 text, taking every character for one cell wide.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string pad(const std::string& cell, std::size_t to, Align align) {
  const std::string space(to - width(cell), ' ');
  return align == Align::left ? cell + space : space + cell;
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  if (row.size() != columns_.size()) {
    fail({"Table", text("row ", rows_.size()),
          text(row.size(), " cells, expected ", columns_.size()), "give one cell per column"});
  }
  rows_.push_back(std::move(row));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  std::vector<std::string> rules;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = width(columns_[c].title);
    for (const auto& row : rows_) widest = std::max(widest, width(row[c]));
    widths.push_back(widest);
    titles.push_back(columns_[c].title);
    rules.emplace_back(widest, '-');
  }
  std::string out;
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += (c == 0 ? "" : "  ") + pad(row[c], widths[c], columns_[c].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  print(titles);
  print(rules);
  for (const auto& row : rows_) print(row);
  return out;
}

std::string with_commas(long long number) {
  std::string digits = std::to_string(number);
  const int first = number < 0 ? 1 : 0;
  for (int i = static_cast<int>(digits.size()) - 3; i > first; i -= 3) digits.insert(i, ",");
  return digits;
}

}  // namespace meshtorch
