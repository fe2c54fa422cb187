// SPDX-License-Identifier: Apache-2.0
//
// That all processes run the same program. Every collective, and everything else that each process must
// do alike, has a place in program order and adds to a digest of the program so far. Every message
// begins with both, so processes that differ find out at their next exchange, whatever it was that
// differed; and with a digest of the shapes that follow, which may differ between groups but not between
// the two sides of a message. A process that waits tells the others after a second where it waits; one that finds a
// difference, waits too long or fails tells the others that too, with the last things it did; then each
// process throws an Error that says who differs, and where.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <meshtorch/comm/distributed/report.h>
#include <meshtorch/comm/distributed/transport.h>

namespace meshtorch {

class Session {
 public:
  // `timeout` in seconds: how long a collective may wait for another process. `number` tells this session
  // from others over the same transport, whose notices may still be under way. `awaited`: whether the
  // program waits for what is exchanged (poll.h).
  Session(Transport& transport, double timeout, std::uint64_t number, std::function<bool()> awaited)
      : transport_(transport), timeout_(timeout), number_(number), awaited_(std::move(awaited)) {}

  // Takes the next place. `value` joins the digest beside the text.
  Ticket enter(std::string what, std::uint64_t value = 0);

  // Exchanges parcels, each preceded by the place of this process. Throws Error as above.
  void exchange(const Ticket& ticket, std::vector<Parcel> parcels);

  // A further round of the same collective with processes that the first one found right, of sizes that
  // follow from what was compared there: without headers.
  void exchange_more(const Ticket& ticket, const std::vector<Parcel>& parcels);

  // Tells the others that this process fails with `why`. What is in flight ends with an Error.
  void abandon(const std::string& why) noexcept;

  // Why the processes fell apart; empty while they have not.
  std::string failure() const;

 private:
  using Clock = std::chrono::steady_clock;

  void verify(const Ticket& ticket, const Parcel& parcel, std::uint64_t shapes);
  void watch(const Ticket& ticket, Clock::time_point begin, bool& told);
  void listen(const Ticket& ticket);
  void compare(const Ticket& ticket, std::uint64_t sequence, std::uint64_t digest);
  [[noreturn]] void fall_apart(const Ticket& ticket, Report::Kind kind, const std::string& why);
  Report own_report(Report::Kind kind, const std::string& why) const;
  void take_report(int peer, const std::string& notice);
  void collect_reports();
  void tell_all(const std::string& notice) noexcept;

  Transport& transport_;
  const double timeout_;
  const std::uint64_t number_;
  const std::function<bool()> awaited_;
  mutable std::mutex mutex_;  // of the following
  std::uint64_t sequence_ = 0;
  std::uint64_t digest_ = 0;
  Events events_;  // the latest
  std::string failure_;
  std::map<int, Report> reports_;  // by process
};

}  // namespace meshtorch
