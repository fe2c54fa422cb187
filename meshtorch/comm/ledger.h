// SPDX-License-Identifier: Apache-2.0
//
// The ledger: one entry for every collective that moved data, in program order. Programs read it to
// prove what a step costs; tests compare it with closed formulas. It grows until cleared: a program of
// many steps calls clear() once a step. A collective is entered when it is begun.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace meshtorch {

enum class Collective { all_gather, all_reduce, reduce_scatter, all_to_all, broadcast, permute };

// Why a collective happened.
enum class Origin {
  asked,      // the program said so: reshard, full, device_put, item, an optimizer step
  algorithm,  // a parallel algorithm needs it: the sum after a sharded contraction, global statistics
  implied,    // an operand was moved because the op has no way to use it where it was
};

struct LedgerEntry {
  Collective kind;
  std::string axes;        // "dp", "dp+tp"
  std::int64_t bytes = 0;  // sent by the device that sends most
  std::int64_t wire = 0;   // of all of them, sent by this process to others
  int tensors = 1;         // coalesced into this collective
  std::string op;          // "aten::add.Tensor", "reshard"
  std::string scope;       // named_scope path, "train/microbatch"
  Origin origin = Origin::implied;
  double waited = 0;  // seconds in which the program did nothing but wait for it
};

std::string_view name(Collective kind);
std::string_view name(Origin origin);

class Ledger {
 public:
  using Filter = std::function<bool(const LedgerEntry&)>;

  // Gives the entry's number, which finish() takes when the collective is done; an entry that was cleared
  // meanwhile is not written.
  std::int64_t record(LedgerEntry entry);
  void finish(std::int64_t number, std::int64_t wire, double waited);
  void clear();

  const std::vector<LedgerEntry>& entries() const { return entries_; }
  std::int64_t count(const Filter& filter) const;
  std::int64_t bytes(const Filter& filter) const;
  std::int64_t wire(const Filter& filter) const;
  double waited(const Filter& filter) const;

  // A table with one line per (kind, axes, op, scope, origin): count, tensors, bytes per device, and
  // where there are several processes the bytes that this one sent to others.
  std::string to_string() const;

 private:
  std::vector<LedgerEntry> entries_;
  std::int64_t cleared_ = 0;  // entries that were
};

}  // namespace meshtorch
