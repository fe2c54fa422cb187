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
  return entry.scope == "microbatch" || entry.scope.starts_with("microbatch/");
}
bool in_zero(const LedgerEntry& entry) { return entry.op.starts_with("Zero::"); }

bool over(const std::string& axes, const std::string& axis) {
  return ("+" + axes + "+").find("+" + axis + "+") != std::string::npos;
}

Ledger::Filter of_zero(Collective kind, const std::string& axes) {
  return [=](const LedgerEntry& entry) {
    return in_zero(entry) && entry.kind == kind && entry.axes == axes;
  };
}

Ledger::Filter tensor_parallel(Collective kind) {
  return [=](const LedgerEntry& entry) {
    return in_microbatch(entry) && !in_zero(entry) && entry.axes == "tp" && entry.kind == kind;
  };
}

std::string thousandths(std::int64_t got, std::int64_t expected) {
  return text(std::fixed, std::setprecision(3),
              static_cast<double>(got) / static_cast<double>(expected));
}

class Comparison {
 public:
  explicit Comparison(const Ledger& ledger) : ledger_(ledger) {}

  // Nothing where nothing is expected and nothing happened.
  void add(const std::string& title, const Ledger::Filter& filter, const Traffic& expected,
           bool at_most = false) {
    const Traffic got{ledger_.count(filter), ledger_.bytes(filter)};
    if (got == Traffic{} && expected == Traffic{}) return;
    const std::string most = at_most ? "at most " : "";
    table_.add({title, with_commas(got.count), most + with_commas(expected.count),
                with_commas(got.bytes), most + with_commas(expected.bytes),
                at_most || expected.bytes == 0 ? "-" : thousandths(got.bytes, expected.bytes)});
  }
  std::string to_string() const { return table_.to_string(); }

 private:
  const Ledger& ledger_;
  Table table_{{{"collective"},
                {"count", Align::right},
                {"expected", Align::right},
                {"bytes/device", Align::right},
                {"expected", Align::right},
                {"ratio", Align::right}}};
};

// Of Zero, of one kind over the same axes.
struct ZeroRow {
  Collective kind;
  std::string axes;
  Traffic expected;
  bool at_most = false;
};

ZeroRow& row_of(std::vector<ZeroRow>& rows, Collective kind, const std::string& axes) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ZeroRow& row) {
    return row.kind == kind && row.axes == axes;
  });
  return found != rows.end() ? *found : rows.emplace_back(ZeroRow{kind, axes, {}});
}

// Those expected in order of time, then those that came unexpected.
std::vector<ZeroRow> zero_rows(const Ledger& ledger, const Schedule& schedule) {
  std::vector<ZeroRow> rows;
  for (const Phase& phase : schedule.phases) {
    for (const PlannedCollective& one : phase.collectives) {
      if (one.scalar) continue;
      ZeroRow& row = row_of(rows, one.kind, one.axes);
      row.expected += {1, one.bytes};
      row.at_most |= phase.at_most && one.kind == Collective::all_gather;
    }
  }
  for (const LedgerEntry& entry : ledger.entries())
    if (in_zero(entry)) row_of(rows, entry.kind, entry.axes);
  return rows;
}

std::string title_of(const ZeroRow& row, const Schedule& schedule) {
  const bool whole =
      row.kind == Collective::all_reduce && schedule.stage > 0 && over(row.axes, schedule.axis);
  return text(row.axes, " ", name(row.kind), ", ",
              row.kind == Collective::all_gather ? "parameters"
              : whole                            ? "gradients of leaves too small to shard"
                                                 : "gradients");
}

void add_zero(Comparison& comparison, const Ledger& ledger, const Schedule& schedule) {
  for (const ZeroRow& row : zero_rows(ledger, schedule))
    comparison.add(title_of(row, schedule), of_zero(row.kind, row.axes), row.expected, row.at_most);
}

void add_tensor_parallel(Comparison& comparison, const TensorParallelTraffic& traffic) {
  const bool sequence = traffic.reduce_scatter.count > 0;
  Traffic sums = traffic.all_reduce;
  sums += traffic.loss;
  comparison.add(sequence ? "tp all-reduce, loss" : "tp all-reduce, layers, embedding, loss",
                 tensor_parallel(Collective::all_reduce), sums);
  comparison.add("tp reduce-scatter, layers, embedding",
                 tensor_parallel(Collective::reduce_scatter), traffic.reduce_scatter);
  comparison.add("tp all-gather, layers, head", tensor_parallel(Collective::all_gather),
                 traffic.all_gather);
}

// Nothing where a collective over the axis also does something else.
std::string beside_the_bound(const Ledger& ledger, const Schedule& schedule) {
  const auto mixed = [&](const LedgerEntry& entry) {
    return in_zero(entry) && over(entry.axes, schedule.axis) && entry.axes != schedule.axis;
  };
  const std::int64_t bound = schedule.lower_bound();
  if (bound == 0 || ledger.count(mixed) > 0) return "";
  const std::int64_t bytes = ledger.bytes([&](const LedgerEntry& entry) {
    return in_zero(entry) && entry.axes == schedule.axis;
  }) - schedule.whole_bytes();
  return text("over ", schedule.axis, ", what is sharded: ", with_commas(bytes), " bytes/device, ",
              thousandths(bytes, bound), " times the least, ", with_commas(bound), "\n");
}

std::string inside_the_loop(const Ledger& ledger, const Schedule& schedule) {
  const auto inside = ledger.count(
      [](const LedgerEntry& entry) { return in_microbatch(entry) && entry.axes != "tp"; });
  // Stages 0 and 1 begin to reduce when gradients are final.
  const char* where = schedule.stage <= 1 ? ", in the last backward" : "";
  return "inside the microbatch loop, over dp: " +
         (inside == 0 ? "none" : with_commas(inside) + where) + "\n";
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

StateBytes state_bytes(const torch::optim::AdamW& optimizer) {
  StateBytes bytes;
  std::vector<std::int64_t> held;
  for (const auto& [parameter, state] : optimizer.state()) {
    const auto& moments = static_cast<const torch::optim::AdamWParamState&>(*state);
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
  Comparison comparison(ledger);
  add_zero(comparison, ledger, expected.zero);
  if (expected.tensor_parallel) add_tensor_parallel(comparison, *expected.tensor_parallel);
  const char* none = "over tp: no formula where rows or sequences are cut in uneven parts\n";
  return comparison.to_string() + (expected.tensor_parallel ? "" : none) +
         beside_the_bound(ledger, expected.zero) + inside_the_loop(ledger, expected.zero);
}

}  // namespace meshtorch
