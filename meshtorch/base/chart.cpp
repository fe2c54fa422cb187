// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>

#include <meshtorch/base/chart.h>
#include <meshtorch/base/error.h>
#include <meshtorch/base/markup.h>

namespace meshtorch {
namespace {

// Okabe and Ito's colours, which people with any colour vision can tell apart.
constexpr std::array<const char*, 6> kColors = {"#0072b2", "#d55e00", "#009e73",
                                                "#cc79a7", "#e69f00", "#56b4e9"};
constexpr int kLeft = 64;
constexpr int kRight = 20;
constexpr int kTop = 40;
constexpr int kBottom = 52;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // A little air on both sides, and some width where all values are equal.
  Range padded(double share) const {
    const double span = high - low;
    if (span == 0) {
      const double air = low == 0 ? 1 : std::abs(low) / 2;
      return {low - air, high + air};
    }
    return {low - share * span, high + share * span};
  }
};

bool finite(const Series& series, std::size_t i) {
  return std::isfinite(series.x[i]) && std::isfinite(series.y[i]);
}

class Picture {
 public:
  explicit Picture(const Chart& chart) : chart_(chart) {
    Range x;
    Range y;
    for (const Series& series : chart.series) {
      check(series);
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        if (!finite(series, i)) continue;
        x.include(series.x[i]);
        y.include(series.y[i]);
      }
    }
    if (x.low > x.high) {
      fail({"to_svg", "\"" + chart.title + "\"", "no finite point to show",
            "add a series with at least one point"});
    }
    x_ = x.padded(0);
    y_ = y.padded(0.05);
  }

  std::string draw() {
    out_ << std::fixed << std::setprecision(1);
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << chart_.width << "\" height=\""
         << chart_.height << "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    write(chart_.width / 2.0, 24, "middle", chart_.title, " font-size=\"15\"");
    draw_axes();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) draw_series(i);
    draw_legend();
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  static void check(const Series& series) {
    if (series.x.size() == series.y.size()) return;
    fail({"to_svg", "series \"" + series.name + "\"",
          text(series.x.size(), " x values, ", series.y.size(), " y values"),
          "give as many of one as of the other"});
  }

  double right() const { return chart_.width - kRight; }
  double bottom() const { return chart_.height - kBottom; }
  double px(double x) const {
    return kLeft + (x - x_.low) / (x_.high - x_.low) * (right() - kLeft);
  }
  double py(double y) const {
    return bottom() - (y - y_.low) / (y_.high - y_.low) * (bottom() - kTop);
  }

  void write(double x, double y, const char* anchor, const std::string& words,
             const std::string& more = "") {
    if (words.empty()) return;
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\"" << more
         << ">" << escape_markup(words) << "</text>\n";
  }

  void line(double x1, double y1, double x2, double y2, const char* color) {
    out_ << "<line x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\"" << y2
         << "\" stroke=\"" << color << "\"/>\n";
  }

  void draw_axes() {
    for (const double tick : ticks(y_.low, y_.high, 7)) {
      line(kLeft, py(tick), right(), py(tick), "#e5e5e5");
      write(kLeft - 8, py(tick) + 4, "end", text(tick));
    }
    for (const double tick : ticks(x_.low, x_.high, 9)) {
      line(px(tick), bottom(), px(tick), bottom() + 5, "#333");
      write(px(tick), bottom() + 20, "middle", text(tick));
    }
    line(kLeft, bottom(), right(), bottom(), "#333");
    line(kLeft, kTop, kLeft, bottom(), "#333");
    write((kLeft + right()) / 2, chart_.height - 10, "middle", chart_.x_label);
    const double middle = (kTop + bottom()) / 2;
    write(16, middle, "middle", chart_.y_label, text(" transform=\"rotate(-90 16 ", middle, ")\""));
  }

  void draw_series(std::size_t index) {
    const Series& series = chart_.series[index];
    const char* color = kColors[index % kColors.size()];
    if (series.mark == Mark::points) {
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        if (!finite(series, i)) continue;
        out_ << "<circle cx=\"" << px(series.x[i]) << "\" cy=\"" << py(series.y[i])
             << "\" r=\"2.0\" fill=\"" << color << "\" fill-opacity=\"0.5\"/>\n";
      }
      return;
    }
    bool open = false;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!finite(series, i)) {
        if (open) out_ << "\"/>\n";
        open = false;
        continue;
      }
      if (!open) {
        out_ << "<polyline fill=\"none\" stroke=\"" << color
             << "\" stroke-width=\"1.8\" stroke-linejoin=\"round\" stroke-linecap=\"round\" "
                "points=\"";
      }
      out_ << (open ? " " : "") << px(series.x[i]) << "," << py(series.y[i]);
      open = true;
    }
    if (open) out_ << "\"/>\n";
  }

  void draw_legend() {
    double y = kTop + 12;
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      if (chart_.series[i].name.empty()) continue;
      out_ << "<rect x=\"" << right() - 14 << "\" y=\"" << y - 9
           << "\" width=\"10.0\" height=\"10.0\" fill=\"" << kColors[i % kColors.size()]
           << "\"/>\n";
      write(right() - 20, y, "end", chart_.series[i].name);
      y += 18;
    }
  }

  const Chart& chart_;
  Range x_;
  Range y_;
  std::ostringstream out_;
};

}  // namespace

std::vector<double> ticks(double low, double high, int at_most) {
  at_most = std::max(at_most, 2);
  const double span = high - low;
  // Start well below the answer; each round takes the next coarser step of 1, 2, 5.
  double power = std::pow(10.0, std::floor(std::log10(span / at_most)) - 1);
  for (;; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double step = factor * power;
      const double slack = 1e-9 * span;  // an end that is a tick up to rounding
      const auto first = static_cast<long long>(std::ceil((low - slack) / step));
      const auto last = static_cast<long long>(std::floor((high + slack) / step));
      if (last - first + 1 > at_most) continue;
      std::vector<double> values;
      for (long long i = first; i <= last; ++i) values.push_back(static_cast<double>(i) * step);
      return values;
    }
  }
}

std::string to_svg(const Chart& chart) { return Picture(chart).draw(); }

void write_svg(const Chart& chart, const std::string& path) {
  const std::string svg = to_svg(chart);
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  std::ofstream file(path);
  file << svg;
  file.close();
  if (!file) {
    fail({"write_svg", path, "cannot write the file",
          "check that its folder exists and is writable"});
  }
}

}  // namespace meshtorch
