// SPDX-License-Identifier: Apache-2.0
//
// Progress of a training run: one line that is rewritten on a terminal, a plain line now and then
// in a file or a pipe.
//
//   [=========>          ] 120/250  loss 2.1340  8,123 tokens/s  1:23 left
//   step 120/250  loss 2.1340  8,123 tokens/s  1:23 left
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

namespace meshtorch {

// Is this file descriptor a terminal that understands cursor movement?
bool is_terminal(int file_descriptor);

// Seconds as "0:07", "12:34" or "1:02:03".
std::string format_duration(double seconds);

struct ProgressOptions {
  std::int64_t steps = 0;
  bool terminal = false;
  std::int64_t plain_lines =
      20;  // about so many plain lines in a run, the first and last step included
  std::function<double()> clock;  // seconds since any moment; empty: the steady clock
};

class Progress {
 public:
  Progress(ProgressOptions options, std::ostream& out);

  // Step `step` (1 .. steps) is done: its loss, and the tokens it took. Rates are averages over
  // about the last ten steps, so that a slow first one is soon forgotten.
  void update(std::int64_t step, double loss, std::int64_t tokens);

  // Prints a line of its own, above the line that is rewritten.
  void note(const std::string& line);

  // Time that passes between pause() and resume() (a validation, a checkpoint) is in no rate.
  void pause();
  void resume();

  double tokens_per_second() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

 private:
  ProgressOptions options_;
  std::ostream& out_;
  double last_ = 0;
  double paused_at_ = 0;
  double seconds_ = 0;  // per step
  double tokens_ = 0;   // per step
  std::int64_t step_ = 0;
  bool line_open_ = false;
};

}  // namespace meshtorch
