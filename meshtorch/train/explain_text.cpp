// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/explain.h>

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

bool over(const PlannedCollective& one, const std::string& axis) {
  return ("+" + one.axes + "+").find("+" + axis + "+") != std::string::npos;
}

template <class Part>
std::int64_t sum(const Schedule& schedule, Part part) {
  std::int64_t total = 0;
  for (const Phase& phase : schedule.phases) {
    for (const PlannedCollective& one : phase.collectives)
      total += over(one, schedule.axis) ? part(one) : 0;
  }
  return total;
}

struct Row {
  std::int64_t count = 0, tensors = 0, bytes = 0;
  bool operator==(const Row&) const = default;
};

// By kind, axes and what goes on meanwhile.
using Rows = std::vector<std::pair<std::tuple<Collective, std::string, std::string>, Row>>;

Rows rows_of(const Phase& phase) {
  Rows rows;
  for (const PlannedCollective& one : phase.collectives) {
    const std::tuple key{one.kind, one.axes, one.meanwhile};
    auto found =
        std::find_if(rows.begin(), rows.end(), [&](auto& row) { return row.first == key; });
    if (found == rows.end()) found = rows.insert(rows.end(), {key, {}});
    ++found->second.count;
    found->second.tensors += one.tensors;
    found->second.bytes += one.bytes;
  }
  return rows;
}

// Microbatches that communicate alike, as one.
struct Passes {
  std::int64_t first, last;
  Phase forward, backward;
};

std::vector<Passes> passes_of(const Schedule& schedule) {
  std::vector<Passes> all;
  for (std::int64_t i = 0; i < schedule.microbatches; ++i) {
    const auto& forward = schedule.phases[static_cast<std::size_t>(2 * i)];
    const auto& backward = schedule.phases[static_cast<std::size_t>(2 * i + 1)];
    if (!all.empty() && rows_of(all.back().forward) == rows_of(forward) &&
        rows_of(all.back().backward) == rows_of(backward)) {
      all.back().last = i + 1;
    } else {
      all.push_back({i + 1, i + 1, forward, backward});
    }
  }
  return all;
}

void add(Table& table, const std::string& name, const Phase& phase) {
  const Rows rows = rows_of(phase);
  if (rows.empty()) table.add({name, "-", "", "", "", "", ""});
  for (const auto& [key, row] : rows) {
    const auto& [kind, axes, meanwhile] = key;
    table.add({&key == &rows.front().first ? name : "", std::string(meshtorch::name(kind)), axes,
               with_commas(row.count), with_commas(row.tensors), with_commas(row.bytes),
               meanwhile.empty() ? "waits" : meanwhile});
  }
}

void add(Table& table, const Passes& passes) {
  const bool one = passes.first == passes.last;
  const std::string name = one ? text("microbatch ", passes.first)
                               : text("microbatches ", passes.first, " to ", passes.last, ", each");
  if (passes.forward.collectives.empty() && passes.backward.collectives.empty())
    return add(table, name, passes.forward);
  const std::string bound = passes.forward.at_most ? ", at most" : "";
  add(table, name + ": forward" + bound, passes.forward);
  add(table, name + ": backward" + bound, passes.backward);
}

std::string phase_table(const Schedule& schedule) {
  Table table({{"phase"},
               {"collective"},
               {"axes"},
               {"count", Align::right},
               {"tensors", Align::right},
               {"bytes/device", Align::right},
               {"meanwhile"}});
  for (const Passes& passes : passes_of(schedule)) add(table, passes);
  for (auto i = static_cast<std::size_t>(2 * schedule.microbatches); i < schedule.phases.size();
       ++i)
    add(table, schedule.phases[i].name, schedule.phases[i]);
  return table.to_string();
}

std::string two_digits(double number) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << number;
  return std::move(out).str();
}

// "1.00 times that is sent"
std::string times_bound(const Schedule& schedule) {
  const std::int64_t bound = schedule.lower_bound();
  if (bound == 0) return "";
  const double times = static_cast<double>(schedule.bytes()) / static_cast<double>(bound);
  return text(schedule.at_most() ? "at most " : "", two_digits(times), " times that is sent");
}

std::string total_table(const Schedule& schedule) {
  const std::string most = schedule.at_most() ? "at most " : "";
  Table table({{"over " + schedule.axis}, {"bytes/device", Align::right}, {""}});
  table.add({"gradients and parameters", most + with_commas(schedule.bytes()),
             text(most, two_digits(schedule.units()), " P (d-1)/d, of P = ",
                  with_commas(schedule.parameter_bytes), " bytes of parameters")});
  table.add({"  while the program computes", most + with_commas(schedule.overlapped_bytes()), ""});
  table.add({"  lower bound", with_commas(schedule.lower_bound()), times_bound(schedule)});
  table.add({"parameters left whole", with_commas(schedule.whole_bytes()),
             text(schedule.whole_leaves, " that the axis does not cut")});
  table.add({"numbers", with_commas(schedule.scalar_bytes()), "norm, loss"});
  return table.to_string();
}

std::string accumulator_table(const Schedule& schedule) {
  Table table({{"accumulator"},
               {"bytes/device", Align::right},
               {"collectives a step", Align::right},
               {"bytes sent a step", Align::right},
               {""}});
  for (const AccumulatorCost& cost : schedule.accumulators) {
    table.add({cost.reduce == Reduce::once ? "Reduce::once, unreduced on every device"
                                           : "Reduce::each, as the optimizer's shards",
               with_commas(cost.bytes), with_commas(cost.collectives), with_commas(cost.traffic),
               cost.chosen ? "chosen" : ""});
  }
  return table.to_string();
}

std::string memory_table(const StepMemory& memory) {
  const auto known = [](std::optional<std::int64_t> bytes, const char* otherwise) {
    return bytes ? with_commas(*bytes) : std::string(otherwise);
  };
  Table table({{"memory"}, {"bytes/device", Align::right}});
  table.add({"parameters", with_commas(memory.parameters)});
  table.add({"gathered parameters", known(memory.gathered, "unknown before the first step")});
  table.add({"gradients between microbatches", with_commas(memory.accumulator)});
  table.add({"gradients of the optimizer", with_commas(memory.gradients)});
  table.add({"shards that it updates", with_commas(memory.shards)});
  table.add({"state that it holds", known(memory.optimizer, "unknown")});
  return table.to_string();
}

}  // namespace

std::int64_t Schedule::bytes() const {
  return sum(*this, [](const auto& one) { return one.scalar ? 0 : one.bytes - one.whole; });
}

std::int64_t Schedule::overlapped_bytes() const {
  return sum(*this, [](const auto& one) {
    return one.scalar || one.meanwhile.empty() ? 0 : one.bytes - one.whole;
  });
}

std::int64_t Schedule::whole_bytes() const {
  return sum(*this, [](const auto& one) { return one.whole; });
}

std::int64_t Schedule::scalar_bytes() const {
  return sum(*this, [](const auto& one) { return one.scalar ? one.bytes : 0; });
}

std::int64_t Schedule::lower_bound() const {
  const std::int64_t d = batch.mesh.axis_size(axis);
  return (gradient_bytes + parameter_bytes) * (d - 1) / d;
}

double Schedule::units() const {
  const auto d = static_cast<double>(batch.mesh.axis_size(axis));
  if (d == 1 || parameter_bytes == 0) return 0;
  return static_cast<double>(bytes()) / (static_cast<double>(parameter_bytes) * (d - 1) / d);
}

bool Schedule::at_most() const {
  return std::any_of(phases.begin(), phases.end(), [](const Phase& p) { return p.at_most; });
}

std::string Schedule::to_string() const {
  const std::string title =
      text("ZeRO stage ", stage, " over ", axis, " of ", batch.mesh, ", ", microbatches,
           microbatches == 1 ? " microbatch of " : " microbatches of ", batch.spec, "\n\n");
  return title + phase_table(*this) + "\n" + total_table(*this) + "\n" + accumulator_table(*this) +
         "\n" + memory_table(memory);
}

}  // namespace meshtorch
