// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/display.h>

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/base/markup.h>
#include <meshtorch/base/table.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/state.h>
#include <meshtorch/tree/path.h>

namespace meshtorch {
namespace {

// "Linear" of "torch::nn::LinearImpl".
std::string type_of(const torch::nn::Module& module) {
  std::string name = module.name();
  const std::size_t scope = name.rfind("::", name.find('<'));
  if (scope != std::string::npos) name.erase(0, scope + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.erase(name.size() - 4);
  return name;
}

struct Bytes {
  std::int64_t whole = 0, device = 0;
  Bytes& operator+=(const Bytes& other) {
    whole += other.whole;
    device += other.device;
    return *this;
  }
};

Bytes bytes_of(const at::Tensor& tensor) {
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  Bytes bytes{.whole = tensor.numel() * item};
  if (is_sharded(tensor)) {
    const NamedSharding sharding = sharding_of(tensor);
    bytes.device = item * max_shard_numel(sharding.mesh, tensor.sizes().vec(),
                                          resolve(sharding.mesh, sharding.spec, tensor.dim()));
  }
  return bytes;
}

class Reader {
 public:
  explicit Reader(const torch::nn::Module& module) {
    for (const StateEntry& entry : State(module)) {
      if (entry.kind == Kind::random_state) continue;
      first_.emplace(entry.tensor.unsafeGetTensorImpl(), entry);
      if (is_sharded(entry.tensor)) meshes_.insert(sharding_of(entry.tensor).mesh.to_string());
    }
    read(module, "", 0);
  }

  Display display() && {
    std::int64_t parameters = 0;
    for (const auto& [handle, entry] : first_)
      parameters += entry.kind == Kind::parameter ? entry.tensor.numel() : 0;
    std::string summary = meshes_.empty() ? "" : "on " + join(meshes_) + ": ";
    summary += with_commas(parameters) + " parameters, " + with_commas(rows_[0].bytes) + " bytes";
    if (!meshes_.empty()) summary += ", " + with_commas(rows_[0].bytes_per_device) + " on a device";
    return {std::move(rows_), std::move(summary)};
  }

 private:
  using Tensors = std::map<const void*, Bytes>;  // each once

  Tensors read(const torch::nn::Module& module, const std::string& path, int depth) {
    const std::size_t row = rows_.size();
    const std::string name = path.substr(path.rfind('.') + 1);
    rows_.push_back({.depth = depth, .name = (name.empty() ? "" : name + ": ") + type_of(module)});
    Tensors inside;
    const auto add = [&](const auto& tensors) {
      for (const auto& item : tensors) {
        if (!item.value().defined()) continue;
        inside.emplace(item.value().unsafeGetTensorImpl(), bytes_of(item.value()));
        read(item.value(), item.key(), join_path(path, item.key()), depth + 1);
      }
    };
    add(module.named_parameters(/*recurse=*/false));
    add(module.named_buffers(/*recurse=*/false));
    for (const auto& child : module.named_children())
      inside.merge(read(*child.value(), join_path(path, child.key()), depth + 1));
    Bytes sum;
    for (const auto& [handle, bytes] : inside) sum += bytes;
    rows_[row].bytes = sum.whole;
    rows_[row].bytes_per_device = sum.device;
    return inside;
  }

  void read(const at::Tensor& tensor, const std::string& name, const std::string& path, int depth) {
    const StateEntry& entry = first_.at(tensor.unsafeGetTensorImpl());
    const bool frozen = entry.kind == Kind::parameter && !tensor.requires_grad();
    const Bytes bytes = bytes_of(tensor);
    rows_.push_back({.depth = depth,
                     .name = name,
                     .kind = (frozen ? "frozen " : "") + std::string(meshtorch::name(entry.kind)),
                     .shape = text("[", join(tensor.sizes()), "]"),
                     .dtype = c10::toString(tensor.scalar_type()),
                     .layout = layout_of(tensor),
                     .bytes = bytes.whole,
                     .bytes_per_device = bytes.device,
                     .note = entry.path == path ? "" : "tied to " + entry.path});
  }

  std::string layout_of(const at::Tensor& tensor) const {
    if (!is_sharded(tensor)) return "plain";
    const NamedSharding sharding = sharding_of(tensor);
    return meshes_.size() == 1 ? sharding.spec.to_string() : sharding.to_string();
  }

  std::map<const void*, StateEntry> first_;
  std::set<std::string> meshes_;
  std::vector<DisplayRow> rows_;
};

std::string per_device(const DisplayRow& row) {
  return row.bytes_per_device == 0 && row.bytes > 0 ? "-" : with_commas(row.bytes_per_device);
}

constexpr char kStyle[] = R"(
body { font: 14px/1.6 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
h1 { font-size: 1.3em; margin: 0; }
p { color: #555; margin: .2em 0 1.2em; }
.row { display: grid; gap: 1em; padding: 0 .4em;
  grid-template-columns: minmax(20em, 2fr) 9em 8em 5em minmax(7em, 1fr) 8em 8em 6em minmax(0, 1fr); }
.head { font-weight: 600; border-bottom: 1px solid #999; position: sticky; top: 0; background: #fff; }
summary { cursor: pointer; list-style: none; font-weight: 600; }
summary .name::before { content: "\25b8"; margin-left: -1em; display: inline-block; width: 1em; }
details[open] > summary .name::before { content: "\25be"; }
.row:not(.head):hover { background: #eef3fa; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { align-self: center; height: .6em; background: #a6cee3; min-width: 1px; }
code { font-family: ui-monospace, monospace; }
)";

std::string cell(const std::string& words, const std::string& kind = "") {
  return "<span" + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">" + escape_markup(words) +
         "</span>";
}

std::string html_row(const DisplayRow& row, std::int64_t all) {
  const double share =
      all == 0 ? 0 : 100.0 * static_cast<double>(row.bytes) / static_cast<double>(all);
  return text("<div class=\"row\"><span class=\"name\" style=\"padding-left:",
              1.2 * (row.depth + 1), "em\">", escape_markup(row.name), "</span>") +
         cell(row.kind) + cell(row.shape) + cell(row.dtype) + "<code>" + escape_markup(row.layout) +
         "</code>" + cell(with_commas(row.bytes), "number") + cell(per_device(row), "number") +
         text("<div class=\"bar\" style=\"width:", share, "%\"></div>") + cell(row.note) +
         "</div>\n";
}

}  // namespace

std::string Display::to_string() const {
  Table table({{"module"},
               {"kind"},
               {"shape"},
               {"dtype"},
               {"layout"},
               {"bytes", Align::right},
               {"per device", Align::right},
               {"note"}});
  for (const DisplayRow& row : rows_) {
    const std::string indent(2 * static_cast<std::size_t>(row.depth), ' ');
    table.add({indent + row.name, row.kind, row.shape, row.dtype, row.layout,
               with_commas(row.bytes), per_device(row), row.note});
  }
  return table.to_string() + summary_ + "\n";
}

std::string Display::to_html() const {
  const std::string title = escape_markup(rows_.at(0).name);
  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
                    title + "</title>\n<style>" + kStyle + "</style></head>\n<body>\n<h1>" + title +
                    "</h1>\n<p>" + escape_markup(summary_) + "</p>\n<div class=\"row head\">";
  for (const char* column : {"module", "kind", "shape", "dtype", "layout"}) out += cell(column);
  for (const char* column : {"bytes", "per device"}) out += cell(column, "number");
  for (const char* column : {"share", "note"}) out += cell(column);
  out += "</div>\n";
  int open = 0;  // <details>: one for each module that we are inside of
  for (const DisplayRow& row : rows_) {
    for (; open > row.depth; --open) out += "</details>\n";
    const std::string line = html_row(row, rows_[0].bytes);
    out += row.is_module() ? "<details open><summary>" + line + "</summary>\n" : line;
    if (row.is_module()) ++open;
  }
  for (; open > 0; --open) out += "</details>\n";
  return out + "</body></html>\n";
}

std::ostream& operator<<(std::ostream& out, const Display& display) {
  return out << display.to_string();
}

Display display(const torch::nn::Module& module) { return Reader(module).display(); }

}  // namespace meshtorch
