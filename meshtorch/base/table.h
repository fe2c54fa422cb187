// SPDX-License-Identifier: Apache-2.0
//
// A table in monospace text, for reports that people read:
//
//   Table table({{"path"}, {"bytes", Align::right}});
//   table.add({"layers.0.weight", "4096"});
//
//   path             bytes
//   ---------------  -----
//   layers.0.weight   4096
//
// Columns are as wide as their widest cell, two spaces apart; no line ends in spaces.
#pragma once

#include <string>
#include <vector>

namespace meshtorch {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Throws Error where the row has not one cell per column.
  void add(std::vector<std::string> row);

  std::size_t size() const { return rows_.size(); }
  std::string to_string() const;  // every line ends in a newline

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 1234567 -> "1,234,567".
std::string with_commas(long long number);

}  // namespace meshtorch
