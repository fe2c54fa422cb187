// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <ostream>
#include <string_view>

#include <meshtorch/base/error.h>
#include <meshtorch/base/progress.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

constexpr int kBar = 20;
constexpr double kForget = 0.1;

double now() {
  using std::chrono::duration;
  return duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string bar(std::int64_t step, std::int64_t steps) {
  const auto full = static_cast<std::size_t>(steps > 0 ? step * kBar / steps : kBar);
  std::string cells(std::min<std::size_t>(full, kBar), '=');
  if (cells.size() < kBar) cells += '>';
  cells.resize(kBar, ' ');
  return "[" + cells + "] ";
}

}  // namespace

bool is_terminal(int file_descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(file_descriptor) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  std::ostringstream out;
  out << std::setfill('0');
  if (whole >= 3600) {
    out << whole / 3600 << ":" << std::setw(2) << whole / 60 % 60;
  } else {
    out << whole / 60;
  }
  out << ":" << std::setw(2) << whole % 60;
  return out.str();
}

Progress::Progress(ProgressOptions options, std::ostream& out)
    : options_(std::move(options)), out_(out) {
  if (!options_.clock) options_.clock = now;
  last_ = options_.clock();
}

void Progress::update(std::int64_t step, double loss, std::int64_t tokens) {
  const double time = options_.clock();
  // The very first step warms caches up; the second one replaces it.
  const double weight = step_ < 2 ? 1 : kForget;
  seconds_ += weight * (time - last_ - seconds_);
  tokens_ += weight * (static_cast<double>(tokens) - tokens_);
  last_ = time;
  ++step_;

  const std::string count = text(step, "/", options_.steps);
  if (options_.terminal) {
    out_ << "\r" << bar(step, options_.steps) << count;
  } else {
    const std::int64_t every =
        std::max<std::int64_t>(1, options_.steps / std::max<std::int64_t>(1, options_.plain_lines));
    if (step != 1 && step != options_.steps && step % every != 0) return;
    out_ << "step " << count;
  }
  std::ostringstream words;
  words << "  loss " << std::fixed << std::setprecision(4) << loss << "  "
        << with_commas(std::llround(tokens_per_second())) << " tokens/s  "
        << format_duration(seconds_ * static_cast<double>(options_.steps - step)) << " left";
  out_ << words.str();
  if (options_.terminal) out_ << "\x1b[K";
  line_open_ = options_.terminal && step != options_.steps;
  if (!line_open_) out_ << "\n";
  out_.flush();
}

void Progress::note(const std::string& line) {
  if (line_open_) out_ << "\r\x1b[K";
  line_open_ = false;
  out_ << line << "\n" << std::flush;
}

void Progress::pause() { paused_at_ = options_.clock(); }

void Progress::resume() { last_ += options_.clock() - paused_at_; }

}  // namespace meshtorch
