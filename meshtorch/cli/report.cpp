// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/report.h>

#include <algorithm>
#include <iomanip>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

std::string place(const Mesh& mesh, std::int64_t position) {
  const auto coordinates = mesh.coordinates(position);
  std::vector<std::string> parts;
  for (int axis = 0; axis + 1 < mesh.rank(); ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    parts.push_back(text(mesh.axes()[at].name, "=", coordinates[at]));
  }
  return join(parts);
}

bool in_microbatch(const LedgerEntry& entry) {
  return entry.scope.find("microbatch") != std::string::npos;
}
bool in_zero(const LedgerEntry& entry) {
  return entry.op.starts_with("Zero::") && entry.op != "Zero::clip";
}

Ledger::Filter zero_of(Collective kind) {
  return [kind](const LedgerEntry& entry) { return in_zero(entry) && entry.kind == kind; };
}

// Over tp the loss moves one number a token; everything else moves whole rows of activations.
bool tensor_parallel(const LedgerEntry& entry) {
  return in_microbatch(entry) && entry.axes == "tp";
}

std::string ratio(std::int64_t got, std::int64_t expected) {
  if (expected == 0) return got == 0 ? "1.000" : "-";
  return text(std::fixed, std::setprecision(3),
              static_cast<double>(got) / static_cast<double>(expected));
}

}  // namespace

std::string mesh_grid(const Mesh& mesh) {
  const int last = mesh.rank() - 1;
  std::vector<Column> columns{{""}};
  for (std::int64_t i = 0; i < mesh.axis_size(last); ++i) {
    columns.push_back(
        {text(mesh.axes()[static_cast<std::size_t>(last)].name, "=", i), Align::right});
  }
  Table table(columns);
  std::vector<std::string> row;
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    if (row.empty()) row.push_back(place(mesh, position));
    row.push_back(std::to_string(mesh.devices()[static_cast<std::size_t>(position)]));
    if (row.size() == columns.size()) table.add(std::exchange(row, {}));
  }
  return table.to_string();
}

StateBytes state_bytes(Zero<torch::optim::AdamW>& optimizer) {
  StateBytes bytes;
  std::vector<std::int64_t> held;
  for (auto& [parameter, state] : optimizer.state()) {
    auto& moments = static_cast<torch::optim::AdamWParamState&>(*state);
    for (const auto& tensor : {moments.exp_avg(), moments.exp_avg_sq()}) {
      bytes.unsharded += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
      const auto shards = addressable_shards(tensor);
      held.resize(std::max(held.size(), shards.size()));
      for (std::size_t d = 0; d < shards.size(); ++d)
        held[d] += static_cast<std::int64_t>(shards[d].data.nbytes());
    }
  }
  if (!held.empty()) bytes.per_device = *std::max_element(held.begin(), held.end());
  return bytes;
}

std::string ledger_report(const Ledger& ledger, const Expected& expected) {
  Table table({{"collective"},
               {"count", Align::right},
               {"formula", Align::right},
               {"bytes/device", Align::right},
               {"formula", Align::right},
               {"ratio", Align::right}});
  const auto row = [&](const std::string& title, const Ledger::Filter& filter,
                       const Traffic& traffic) {
    const std::int64_t bytes = ledger.bytes(filter);
    table.add({title, with_commas(ledger.count(filter)), with_commas(traffic.count),
               with_commas(bytes), with_commas(traffic.bytes), ratio(bytes, traffic.bytes)});
  };
  const auto& [zero, tp] = expected;
  row("dp reduce-scatter, gradients", zero_of(Collective::reduce_scatter), zero.reduce_scatter);
  row("dp all-gather, parameters", zero_of(Collective::all_gather), zero.all_gather);
  row(text("dp all-reduce, ", zero.whole_leaves, " leaves too small to shard"),
      zero_of(Collective::all_reduce), zero.all_reduce);
  row("tp all-reduce, layers, embedding, loss", tensor_parallel,
      {tp.activations.count + tp.loss.count, tp.activations.bytes + tp.loss.bytes});
  const auto inside = ledger.count(
      [](const LedgerEntry& entry) { return in_microbatch(entry) && entry.axes != "tp"; });
  return table.to_string() +
         "inside the microbatch loop, over dp: " + (inside == 0 ? "none" : with_commas(inside)) +
         "\n";
}

}  // namespace meshtorch
