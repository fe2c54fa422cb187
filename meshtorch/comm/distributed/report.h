// SPDX-License-Identifier: Apache-2.0
//
// What processes say to each other when they fall apart, and what follows from it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace meshtorch {

// A place in program order.
struct Ticket {
  std::uint64_t sequence = 0;
  std::uint64_t digest = 0;  // of the program up to and with it
  std::string what;
  std::uint64_t value = 0;  // that every process has there, beside the text
};

using Events = std::map<std::uint64_t, Ticket>;  // by sequence

struct Report {
  enum class Kind : char {
    failed = 'f',   // by itself: an exception left the program
    differs = 'd',  // it met a process that is at another place
    waited = 'w',   // longer than the time-out
    engine = 'e',   // the engine refused
    answers = 'a',  // another's report
  };
  Kind kind = Kind::answers;
  std::string why;
  Events events;  // the latest, the one it is at last

  std::string to_string() const;
  static Report parse(const std::string& text);
};

// Why `processes` processes fell apart, from the reports of those that gave one:
//   1. who failed by itself, and of what;
//   2. else the first place in the program at which two differ, and what each did there;
//   3. else who did not answer, and who is behind.
std::string diagnose(const std::map<int, Report>& reports, int processes);

}  // namespace meshtorch
