// SPDX-License-Identifier: Apache-2.0
//
// Dynamic loss scaling for float16 (Micikevicius et al., arXiv 1710.03740), by the rule of PyTorch's
// GradScaler: as large as gradients stay finite.
//
//   mt::LossScale scale;
//   (loss * scale.scale()).backward();
//   ... gradients / scale.scale(); are they finite? on every device? ...
//   if (finite) optimizer.step();
//   scale.update(finite);
//
// A value: copy it, store its state in a checkpoint, compare it.
#pragma once

#include <cstdint>

namespace meshtorch {

struct LossScaleOptions {
  double init = 65536;
  double growth = 2;
  double backoff = 0.5;
  std::int64_t interval = 2000;  // good steps in a row before it grows
  // The scale stays within, so it is never 0 and never infinite: by default the powers of two that are
  // normal float32 numbers.
  double smallest = 0x1p-126;
  double largest = 0x1p+127;
};

class LossScale {
 public:
  // What a checkpoint keeps.
  struct State {
    double scale = 0;
    std::int64_t good_steps = 0;  // in a row, since the scale changed
    bool operator==(const State&) const = default;
  };

  // Throws Error unless 0 < smallest <= init <= largest, all finite, growth > 1, 0 < backoff < 1,
  // interval >= 1.
  explicit LossScale(LossScaleOptions options = {});

  double scale() const { return state_.scale; }
  const LossScaleOptions& options() const { return options_; }

  // After a step. Not finite: scale * backoff, and counting starts anew. Finite for the interval-th time
  // in a row: scale * growth, likewise.
  void update(bool finite);

  const State& state() const { return state_; }
  // Throws Error on a scale outside the options' range and a count outside [0, interval).
  void set_state(const State& state);

 private:
  LossScaleOptions options_;
  State state_;
};

}  // namespace meshtorch
