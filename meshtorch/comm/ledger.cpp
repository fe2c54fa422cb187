// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/ledger.h>

#include <iomanip>
#include <map>
#include <sstream>
#include <tuple>

namespace meshtorch {

std::string_view name(Collective kind) {
  switch (kind) {
    case Collective::all_gather:
      return "all-gather";
    case Collective::all_reduce:
      return "all-reduce";
    case Collective::reduce_scatter:
      return "reduce-scatter";
    case Collective::all_to_all:
      return "all-to-all";
    case Collective::broadcast:
      return "broadcast";
    case Collective::permute:
      return "permute";
  }
  return "?";
}

std::string_view name(Origin origin) {
  switch (origin) {
    case Origin::asked:
      return "asked";
    case Origin::algorithm:
      return "algorithm";
    case Origin::implied:
      return "implied";
  }
  return "?";
}

std::int64_t Ledger::record(LedgerEntry entry) {
  entries_.push_back(std::move(entry));
  return cleared_ + static_cast<std::int64_t>(entries_.size()) - 1;
}

void Ledger::finish(std::int64_t number, std::int64_t wire, double waited) {
  if (number < cleared_) return;
  LedgerEntry& entry = entries_.at(static_cast<std::size_t>(number - cleared_));
  entry.wire = wire;
  entry.waited += waited;
}

void Ledger::clear() {
  cleared_ += static_cast<std::int64_t>(entries_.size());
  entries_.clear();
}

std::int64_t Ledger::count(const Filter& filter) const {
  std::int64_t total = 0;
  for (const auto& entry : entries_) total += filter(entry);
  return total;
}

std::int64_t Ledger::bytes(const Filter& filter) const {
  std::int64_t total = 0;
  for (const auto& entry : entries_) total += filter(entry) ? entry.bytes : 0;
  return total;
}

std::int64_t Ledger::wire(const Filter& filter) const {
  std::int64_t total = 0;
  for (const auto& entry : entries_) total += filter(entry) ? entry.wire : 0;
  return total;
}

double Ledger::waited(const Filter& filter) const {
  double total = 0;
  for (const auto& entry : entries_) total += filter(entry) ? entry.waited : 0;
  return total;
}

std::string Ledger::to_string() const {
  struct Sum {
    std::int64_t count = 0, tensors = 0, bytes = 0, wire = 0;
  };
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::vector<Key> order;
  std::map<Key, Sum> sums;
  for (const auto& entry : entries_) {
    Key key{std::string(name(entry.kind)), entry.axes, entry.op, entry.scope,
            std::string(name(entry.origin))};
    auto [found, fresh] = sums.try_emplace(key);
    if (fresh) order.push_back(key);
    found->second.count += 1;
    found->second.tensors += entry.tensors;
    found->second.bytes += entry.bytes;
    found->second.wire += entry.wire;
  }
  const bool crosses = wire([](const LedgerEntry&) { return true; }) > 0;
  std::ostringstream out;
  auto row = [&](const auto& kind, const auto& axes, const auto& count, const auto& tensors,
                 const auto& bytes, const auto& wire, const auto& origin, const auto& op,
                 const auto& scope) {
    out << std::left << std::setw(15) << kind << std::setw(8) << axes << std::right << std::setw(6)
        << count << std::setw(9) << tensors << std::setw(14) << bytes;
    if (crosses) out << std::setw(14) << wire;
    out << "  " << std::left << std::setw(10) << origin << std::setw(36) << op << scope << "\n";
  };
  row("collective", "axes", "count", "tensors", "bytes/device", "bytes/wire", "origin", "op",
      "scope");
  for (const auto& key : order) {
    const auto& [kind, axes, op, scope, origin] = key;
    const Sum& sum = sums.at(key);
    row(kind, axes, sum.count, sum.tensors, sum.bytes, sum.wire, origin, op, scope);
  }
  return std::move(out).str();
}

}  // namespace meshtorch
