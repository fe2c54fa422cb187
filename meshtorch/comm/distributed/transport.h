// SPDX-License-Identifier: Apache-2.0
//
// What a backend of several processes brings: moving bytes between pairs of them. Everything else -
// the algorithms, their order, the detection of processes that disagree - is distributed.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <meshtorch/comm/communicator.h>
#include <meshtorch/comm/distributed/poll.h>

namespace meshtorch {

// What goes to one process and comes from it; contiguous tensors, in an order that both sides know.
struct Parcel {
  int peer = 0;
  Shards out;
  Shards in;                      // written
  std::uint64_t agreed = 0;       // a digest of what else both sides must have alike
  std::function<void()> arrived;  // to be called when the first of `in` is there: see exchange
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int process() const = 0;
  virtual int processes() const = 0;
  // Whether calls may come from several threads, one at a time.
  virtual bool any_thread() const = 0;
  // Whether the headers of an exchange go, and are compared, in one of their own before the rest: for an
  // engine that waits forever where another refuses.
  virtual bool headers_first() const { return false; }

  // Returns when all is sent and received; the first exchange of all is with every process. What
  // `waiting.idle` throws ends the exchange. Throws TransportError where the engine refuses. An engine
  // that writes past the end of what is shorter than the message, as Open MPI 4.1 does, lets nothing in
  // after a parcel's first tensor until its `arrived` has returned.
  virtual void exchange(const std::vector<Parcel>& parcels, const Waiting& waiting) = 0;

  // Notices, outside of the order of exchanges. `tell` returns at once, whether anybody hears or not.
  virtual void tell(int peer, const std::string& notice) noexcept = 0;
  // The oldest notice not yet heard, with its sender.
  virtual std::optional<std::pair<int, std::string>> hear() = 0;

  // The processes fell apart: there is nothing left to end in order. `by_itself`: this one failed, the
  // others hear of it.
  virtual void give_up(bool by_itself) noexcept = 0;
  // Before this process ends all the same: waits a moment for the others to say their last words. One
  // that failed by itself ends before the others do, as its status is the job's.
  virtual void leave() noexcept = 0;
};

class TransportError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace meshtorch
