// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/loss_scale.h>

#include <algorithm>
#include <cmath>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// NaN is in no range.
void check(const char* what, double got, bool good, const char* expected) {
  if (good && std::isfinite(got)) return;
  fail({.op = "LossScale",
        .where = what,
        .what = text("got ", got, ", expected ", expected),
        .remedy = "see LossScaleOptions for what works as a rule"});
}

void check(const LossScaleOptions& options) {
  check("smallest", options.smallest, options.smallest > 0, "a finite number above 0");
  check("largest", options.largest, options.largest >= options.smallest,
        "a finite number, at least smallest");
  check("init", options.init, options.init >= options.smallest && options.init <= options.largest,
        "a number from smallest to largest");
  check("growth", options.growth, options.growth > 1, "a finite number above 1");
  check("backoff", options.backoff, options.backoff > 0 && options.backoff < 1,
        "a number between 0 and 1");
  check("interval", static_cast<double>(options.interval), options.interval >= 1, "at least 1");
}

}  // namespace

LossScale::LossScale(LossScaleOptions options) : options_(options) {
  check(options_);
  state_.scale = options_.init;
}

void LossScale::update(bool finite) {
  if (finite && ++state_.good_steps < options_.interval) return;
  const double scale = state_.scale * (finite ? options_.growth : options_.backoff);
  state_ = {.scale = std::clamp(scale, options_.smallest, options_.largest), .good_steps = 0};
}

void LossScale::set_state(const State& state) {
  check("state scale", state.scale,
        state.scale >= options_.smallest && state.scale <= options_.largest,
        "a number from smallest to largest of the options");
  check("state good_steps", static_cast<double>(state.good_steps),
        state.good_steps >= 0 && state.good_steps < options_.interval,
        "from 0 to interval - 1 of the options");
  state_ = state;
}

}  // namespace meshtorch
