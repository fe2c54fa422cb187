// SPDX-License-Identifier: Apache-2.0
//
// Trace: what a stretch of the program did and when, as a file for a trace viewer: Perfetto,
// chrome://tracing and all that read Google's Trace Event Format.
//
//   mt::Trace trace;
//   step();
//   trace.save("trace.json");  // on several processes trace.0.json, trace.1.json, ...
//
// One lane for the program (scopes, and waits inside them), one for each device (ops), one track for
// each sort of collective, from start to done, and one counter for each device's memory (docs/trace.md).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace meshtorch {

struct TraceOptions {
  // Ops, collectives, waits, scopes and samples of memory kept; later ones are counted and left out,
  // and the file says how many. A million are about 150 MB of file.
  std::size_t max_events = 1'000'000;
};

// Records while it lives. Made by the program; fed by the library, from any thread, with what it has to
// say while active() is not null. Whatever feeds it must have stopped before it ends.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // Throws Error where another one lives.
  explicit Trace(TraceOptions options = {});
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // The one that lives, or null: nothing to do.
  static Trace* active() noexcept { return active_.load(std::memory_order_acquire); }

  // What began before the trace did, begins with it.

  // On the lane of a device, by its global number.
  void op(const std::string& name, std::int64_t device, Time begin, Time end);

  // On the program's lane.
  void scope(const std::string& name, Time begin, Time end);

  // From when it was started to when the program knew that it was done, which for one that was begun ahead
  // is where it was waited for; any number may be in flight. Gives its number, which
  // is no other collective's, nor of another trace; to give a number that this trace does not know to
  // the next two is no error and does nothing. One without an end is shown up to the end of the file,
  // and marked.
  std::int64_t collective_begin(const std::string& what, const std::string& axes,
                                std::int64_t bytes, int tensors, const std::string& scope,
                                Time when = Clock::now());
  void collective_end(std::int64_t id, Time when = Clock::now());
  // The program did nothing but wait for it: on the program's lane, and summed with the collective.
  void waited(std::int64_t id, Time begin, Time end);

  // Bytes that live on a device now, by their use; a use that is not named has none.
  void memory(std::int64_t device,
              const std::vector<std::pair<std::string, std::int64_t>>& bytes_by_use,
              Time when = Clock::now());

  std::size_t events() const;   // kept
  std::size_t dropped() const;  // beyond TraceOptions::max_events

  // The file: events by time, in microseconds of steady_clock, which the processes of one machine share.
  // No lane has two slices that overlap and do not nest, as the format demands: what several threads did
  // at a time is on further lanes, "device 3 (2)". Text that is not UTF-8 is shown with U+FFFD.
  std::string to_json() const;

  // Writes it at once or not at all, makes the folder, and gives the path: on process 2 of several
  // "runs/trace.json" is "runs/trace.2.json". Throws Error where it cannot be written.
  std::string save(const std::string& path) const;

 private:
  struct Records;

  static inline std::atomic<Trace*> active_{nullptr};
  std::unique_ptr<Records> records_;
};

// Joins what save(path) wrote on each of `processes` processes of one machine into `path`: one picture
// of them all. For one process, once all have saved. Throws Error where a file is missing or is not a
// trace, and where `path` cannot be written.
void merge_traces(const std::string& path, int processes);

}  // namespace meshtorch
