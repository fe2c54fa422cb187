// SPDX-License-Identifier: Apache-2.0
//
// What a module is made of and where it lies, as a table for a terminal or a page for a browser:
//
//   std::cout << mt::display(*model);
//
//   module               kind       shape     dtype  layout    bytes  per device  note
//   -------------------  ---------  --------  -----  --------  -----  ----------  ---------------------
//   Gpt                                                        9,120       4,704
//     tokens: Embedding                                        5,088       2,592
//       weight           parameter  [53, 24]  Float  P(tp)     5,088       2,592
//     head: Linear                                             5,088       2,592
//       weight           parameter  [53, 24]  Float  P(tp)     5,088       2,592  tied to tokens.weight
//     ...
//   on (dp=4, tp=2): 2,280 parameters, 9,120 bytes, 4,704 on a device
//
// Bytes are those of the whole tensor, and of the largest part that a device holds; a module's are the sums
// over what is in it, a tied tensor once. A plain tensor is on no device.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace meshtorch {

// A module, or one of its tensors.
struct DisplayRow {
  int depth = 0;
  std::string name;    // a module's with its type: "tokens: Embedding"
  std::string kind;    // of a tensor: "parameter", "frozen parameter", "buffer", "batch statistic"
  std::string shape;   // "[53, 24]"
  std::string dtype;   // "Float"
  std::string layout;  // "P(tp)", "plain"; with its mesh where the module lies on several
  std::int64_t bytes = 0;
  std::int64_t bytes_per_device = 0;
  std::string note;  // "tied to tokens.weight"

  bool is_module() const { return kind.empty(); }
};

// As it was when display() was called.
class Display {
 public:
  Display(std::vector<DisplayRow> rows, std::string summary)
      : rows_(std::move(rows)), summary_(std::move(summary)) {}

  // In order: a module, its parameters, its buffers, then its children. The first is the whole.
  const std::vector<DisplayRow>& rows() const { return rows_; }
  const std::string& summary() const { return summary_; }

  std::string to_string() const;
  // A page that needs nothing else: the same table, modules that fold, bars for the bytes.
  std::string to_html() const;

 private:
  std::vector<DisplayRow> rows_;
  std::string summary_;
};

std::ostream& operator<<(std::ostream& out, const Display& display);

Display display(const torch::nn::Module& module);

}  // namespace meshtorch
