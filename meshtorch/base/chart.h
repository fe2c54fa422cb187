// SPDX-License-Identifier: Apache-2.0
//
// A chart as a value and its picture as SVG text: lines for curves, points for data. For the loss
// curve of a run and the fit of a regression; it is no plotting library.
//
//   Chart chart{.title = "loss", .x_label = "step", .y_label = "nats per byte"};
//   chart.series.push_back({.name = "train", .x = steps, .y = losses});
//   write_svg(chart, "out/loss.svg");
#pragma once

#include <string>
#include <vector>

namespace meshtorch {

enum class Mark { line, points };

struct Series {
  std::string name;  // in the legend; empty: not there
  std::vector<double> x;
  std::vector<double> y;  // as many as x; values that are not finite are gaps in a line
  Mark mark = Mark::line;
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  int width = 720;  // pixels
  int height = 440;
};

// The picture. Throws Error where a series has more x than y values or the reverse, or where there
// is no finite point at all.
std::string to_svg(const Chart& chart);

// Writes it, and the folders above the file. Throws Error where that fails.
void write_svg(const Chart& chart, const std::string& path);

// Round values inside [low, high], both ends allowed, at steps of 1, 2 or 5 times a power of ten:
// the finest that gives at most `at_most` of them (at least 2). Expects low < high.
std::vector<double> ticks(double low, double high, int at_most);

}  // namespace meshtorch
