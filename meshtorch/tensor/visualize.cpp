// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/visualize.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

// The pieces of one shown dim, in order; an absent one stands for those left out.
using Pieces = std::vector<std::optional<Interval>>;

struct Picture {
  std::vector<std::string> captions;
  Pieces rows, columns;                         // a vector has one row; a scalar one of both
  std::vector<std::vector<std::string>> cells;  // by row, column; "..." where left out
  bool row_labels = false, column_labels = false;
  std::string footer;
};

constexpr std::size_t kMostPieces = 16;

std::string dtype_name(const at::Tensor& x) {
  std::string name = c10::toString(x.scalar_type());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// The dims drawn: the first two sharded ones, then the first others.
std::vector<std::size_t> shown_dims(const Layout& layout) {
  std::vector<std::size_t> dims;
  for (const bool sharded : {true, false}) {
    for (std::size_t d = 0; d < layout.dims.size() && dims.size() < 2; ++d) {
      if (layout.dims[d].empty() != sharded) dims.push_back(d);
    }
  }
  std::ranges::sort(dims);
  return dims;
}

std::string slice_text(std::size_t rank, const std::vector<std::size_t>& shown) {
  std::vector<std::string> parts(rank, "0");
  for (const std::size_t d : shown) parts[d] = ":";
  return "[" + join(parts) + "]";
}

Pieces pieces_of(const Mesh& mesh, std::int64_t size, AxisList axes) {
  Pieces pieces;
  for (const std::int64_t position : mesh.group(0, axes)) {
    const Interval held = shard_interval(mesh, size, axes, position);
    if (held.size() > 0) pieces.push_back(held);
  }
  if (pieces.size() > kMostPieces) {
    pieces.erase(pieces.begin() + kMostPieces - 2, pieces.end() - 1);
    pieces.insert(pieces.end() - 1, std::nullopt);
  }
  return pieces;
}

std::string label(const std::optional<Interval>& piece) {
  return piece ? text(piece->begin, ":", piece->end) : "...";
}

// Devices by the summand they hold: "0,1+2,3".
class Holders {
 public:
  void add(std::int64_t summand, std::int64_t device) { devices_[summand].push_back(device); }
  bool empty() const { return devices_.empty(); }
  std::string to_string() const {
    std::vector<std::string> summands;
    for (const auto& [summand, devices] : devices_) summands.push_back(join(devices, ","));
    return join(summands, "+");
  }

 private:
  std::map<std::int64_t, std::vector<std::int64_t>> devices_;
};

AxisList list_of(AxisSet axes) {
  AxisList list;
  for (const int axis : axes) list.push_back(axis);
  return list;
}

Picture draw(const char* op, const at::Tensor& x) {
  if (!x.defined() || !is_sharded(x)) {
    fail({.op = op,
          .where = "x",
          .what = x.defined() ? "is a plain tensor, expected a sharded one"
                              : "is undefined, expected a sharded tensor",
          .remedy = "device_put it onto a mesh first"});
  }
  const NamedSharding sharding = sharding_of(x);
  const Mesh& mesh = sharding.mesh;
  const Shape shape = x.sizes().vec();
  const Layout layout = resolve(mesh, sharding.spec, x.dim());
  const auto shown = shown_dims(layout);
  const std::string kind = c10::DeviceTypeName(x.device().type());

  Picture picture;
  picture.captions.push_back(text(dtype_name(x), " [", join(shape), "], ", sharding));
  if (!layout.unreduced.empty()) {
    picture.captions.push_back("unreduced over " + join(sharding.spec.unreduced_axes()) +
                               ": + joins summands");
  }
  if (shape.size() > 2)
    picture.captions.push_back("shown: the slice " + slice_text(shape.size(), shown));

  const auto pieces = [&](std::size_t d) { return pieces_of(mesh, shape[d], layout.dims[d]); };
  picture.column_labels = !shown.empty();
  picture.row_labels = shown.size() > 1;
  picture.columns = shown.empty() ? Pieces{Interval{0, 1}} : pieces(shown.back());
  picture.rows = shown.size() < 2 ? Pieces{Interval{0, 1}} : pieces(shown.front());

  std::map<std::pair<std::int64_t, std::int64_t>, Holders> holders;  // by where the piece begins
  Holders none;
  for (std::int64_t p = 0; p < mesh.size(); ++p) {
    const std::int64_t device = mesh.devices()[static_cast<std::size_t>(p)];
    const Box box = shard_box(mesh, shape, layout, p);
    if (volume(box) == 0) {
      none.add(0, device);
      continue;
    }
    bool in_slice = true;
    for (std::size_t d = 0; d < box.size(); ++d) {
      in_slice = in_slice && (box[d].begin == 0 || std::ranges::find(shown, d) != shown.end());
    }
    if (!in_slice) continue;
    holders[{shown.size() < 2 ? 0 : box[shown.front()].begin,
             shown.empty() ? 0 : box[shown.back()].begin}]
        .add(mesh.group_rank(p, list_of(layout.unreduced)), device);
  }
  for (const auto& row : picture.rows) {
    auto& line = picture.cells.emplace_back();
    for (const auto& column : picture.columns) {
      line.push_back(row && column ? kind + " " + holders[{row->begin, column->begin}].to_string()
                                   : "...");
    }
  }
  if (!none.empty()) picture.footer = "no elements: " + kind + " " + none.to_string();
  return picture;
}

// Breaks after the separators of a cell's text so that lines have at most `width` characters where
// they can.
std::vector<std::string> wrap_cell(const std::string& cell, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < cell.size();) {
    const std::size_t end = std::min(cell.find_first_of(",+", begin), cell.size() - 1) + 1;
    const std::string token = cell.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + token.size() > width) lines.emplace_back();
    lines.back() += token;
    begin = end;
  }
  return lines;
}

std::string centred(const std::string& word, std::size_t width) {
  const std::size_t space = width - std::min(width, word.size());
  return std::string(space / 2, ' ') + word + std::string(space - space / 2, ' ');
}

std::int64_t total(const Pieces& pieces) {
  std::int64_t sum = 0;
  for (const auto& piece : pieces) sum += piece ? piece->size() : 0;
  return sum;
}

std::size_t color_of(std::size_t row, std::size_t column, std::size_t columns, std::size_t colors) {
  return (row * (columns + (columns % colors == 0)) + column) % colors;  // neighbours differ
}

class TextTable {
 public:
  TextTable(const Picture& picture, VisualizeOptions options)
      : picture_(picture), options_(options) {
    if (picture.row_labels) {
      for (const auto& row : picture.rows) margin_ = std::max(margin_, label(row).size() + 1);
    }
    measure();
  }

  std::string to_string() const {
    std::string out;
    for (const auto& caption : picture_.captions) out += caption + "\n";
    if (!picture_.rows.empty() && !picture_.columns.empty()) out += table();
    if (!picture_.footer.empty()) out += picture_.footer + "\n";
    return out;
  }

 private:
  void measure() {
    const std::size_t columns = picture_.columns.size();
    const std::size_t borders = margin_ + columns + 1;
    const auto width = static_cast<std::size_t>(options_.width);
    const std::size_t room = width > borders ? width - borders : 0;
    lines_.resize(picture_.rows.size());
    for (std::size_t c = 0; c < columns; ++c) {
      const auto& piece = picture_.columns[c];
      std::size_t inner = piece ? room * static_cast<std::size_t>(piece->size()) /
                                      static_cast<std::size_t>(total(picture_.columns))
                                : 0;
      inner = std::max(inner, label(piece).size() + 1);
      for (std::size_t r = 0; r < picture_.rows.size(); ++r) {
        lines_[r].push_back(wrap_cell(picture_.cells[r][c], std::max<std::size_t>(inner, 9) - 2));
        for (const auto& line : lines_[r].back()) inner = std::max(inner, line.size() + 2);
      }
      widths_.push_back(inner);
    }
  }

  std::string rule(const char* left, const char* middle, const char* right) const {
    std::string out(margin_, ' ');
    for (std::size_t c = 0; c < widths_.size(); ++c) {
      out += c == 0 ? left : middle;
      for (std::size_t i = 0; i < widths_[c]; ++i) out += "─";
    }
    return out + right + "\n";
  }

  std::string header() const {
    std::string out(margin_, ' ');
    for (std::size_t c = 0; c < widths_.size(); ++c)
      out += " " + centred(label(picture_.columns[c]), widths_[c]);
    return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  }

  std::string row(std::size_t r) const {
    std::size_t height = 1;
    for (const auto& cell : lines_[r]) height = std::max(height, cell.size());
    std::string out;
    for (std::size_t h = 0; h < height; ++h) {
      const bool labelled = picture_.row_labels && h == (height - 1) / 2;
      const std::string name = labelled ? label(picture_.rows[r]) : "";
      out += margin_ == 0 ? "" : std::string(margin_ - 1 - name.size(), ' ') + name + " ";
      for (std::size_t c = 0; c < widths_.size(); ++c) {
        const std::size_t above = (height - lines_[r][c].size()) / 2;
        const bool written = h >= above && h - above < lines_[r][c].size();
        out += "│" + painted(centred(written ? lines_[r][c][h - above] : "", widths_[c]), r, c);
      }
      out += "│\n";
    }
    return out;
  }

  std::string painted(const std::string& words, std::size_t r, std::size_t c) const {
    static constexpr std::array kBackgrounds = {153, 222, 151, 217, 183, 180, 116, 229, 146, 210};
    if (!options_.color || picture_.cells[r][c] == "...") return words;
    return text("\x1b[30;48;5;", kBackgrounds[color_of(r, c, widths_.size(), kBackgrounds.size())],
                "m", words, "\x1b[0m");
  }

  std::string table() const {
    std::string out = picture_.column_labels ? header() : "";
    for (std::size_t r = 0; r < picture_.rows.size(); ++r) {
      out += r == 0 ? rule("┌", "┬", "┐") : rule("├", "┼", "┤");
      out += row(r);
    }
    return out + rule("└", "┴", "┘");
  }

  const Picture& picture_;
  VisualizeOptions options_;
  std::size_t margin_ = 0;
  std::vector<std::size_t> widths_;                           // of columns, without borders
  std::vector<std::vector<std::vector<std::string>>> lines_;  // of cells
};

// Where each piece begins and ends in pixels: in proportion, but wide enough to read.
std::vector<double> edges(const Pieces& pieces, double length, double least) {
  std::vector<double> at{0};
  for (const auto& piece : pieces) {
    const double share =
        piece ? static_cast<double>(piece->size()) / static_cast<double>(total(pieces)) : 0;
    at.push_back(at.back() + std::round(std::max(length * share, least)));
  }
  return at;
}

std::string svg_text(double x, double y, const char* anchor, const std::string& words) {
  return text("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">", words,
              "</text>\n");
}

// Pixels that this text takes at most, in the size we write it.
double width_of(const std::string& words) { return 8 * static_cast<double>(words.size()); }

std::string svg(const Picture& picture) {
  static constexpr std::array kFills = {"#a6cee3", "#fdd49e", "#b2dfb0", "#fbb4ae", "#decbe4",
                                        "#e5d8bd", "#a8ddd5", "#ffffb3", "#b3cde3", "#f4a582"};
  constexpr double kLine = 18, kPad = 12;
  double widest = 60, caption = 480;
  for (const auto& row : picture.cells) {
    for (const auto& cell : row) widest = std::max(widest, width_of(cell));
  }
  for (const auto& line : picture.captions) caption = std::max(caption, width_of(line));
  const auto x = edges(picture.columns, 480, widest + kPad);
  const auto y = edges(picture.rows, picture.row_labels ? 240 : 40, 32);
  const double left = kPad + (picture.row_labels ? 80 : 0);
  const double top = kPad + kLine * static_cast<double>(picture.captions.size() + 1) + kPad;
  const double bottom = top + y.back() + (picture.footer.empty() ? 0 : kLine + kPad);
  std::string out;
  double below = kPad + kLine / 2;
  for (const auto& caption : picture.captions) {
    out += svg_text(kPad, below + 4, "start", caption);
    below += kLine;
  }
  for (std::size_t c = 0; picture.column_labels && c < picture.columns.size(); ++c) {
    out += svg_text(left + (x[c] + x[c + 1]) / 2, top - 6, "middle", label(picture.columns[c]));
  }
  for (std::size_t r = 0; r < picture.rows.size(); ++r) {
    const double middle = top + (y[r] + y[r + 1]) / 2 + 4;
    if (picture.row_labels) out += svg_text(left - 8, middle, "end", label(picture.rows[r]));
    for (std::size_t c = 0; c < picture.columns.size(); ++c) {
      out += text("<rect x=\"", left + x[c], "\" y=\"", top + y[r], "\" width=\"", x[c + 1] - x[c],
                  "\" height=\"", y[r + 1] - y[r], "\" fill=\"",
                  picture.cells[r][c] == "..."
                      ? "none"
                      : kFills[color_of(r, c, picture.columns.size(), kFills.size())],
                  "\" stroke=\"#444\"/>\n");
      out += svg_text(left + (x[c] + x[c + 1]) / 2, middle, "middle", picture.cells[r][c]);
    }
  }
  if (!picture.footer.empty()) out += svg_text(kPad, bottom - 4, "start", picture.footer);
  return text("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
              std::max(left + x.back(), caption) + kPad, "\" height=\"", bottom + kPad,
              "\" font-family=\"sans-serif\" font-size=\"13\">\n"
              "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
              out, "</svg>\n");
}

}  // namespace

std::string sharding_text(const at::Tensor& x, VisualizeOptions options) {
  if (options.width < 1) {
    fail({.op = "sharding_text",
          .where = "width",
          .what = text("got ", options.width, ", expected at least 1"),
          .remedy = "give the terminal's width"});
  }
  const Picture picture = draw("sharding_text", x);
  return TextTable(picture, options).to_string();
}

std::string sharding_svg(const at::Tensor& x) { return svg(draw("sharding_svg", x)); }

void visualize_sharding(const at::Tensor& x) {
  const Picture picture = draw("visualize_sharding", x);
  Runtime::current().out() << TextTable(picture, {.color = isatty(STDOUT_FILENO) != 0}).to_string()
                           << std::flush;
}

}  // namespace meshtorch
