// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/options.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

[[noreturn]] void refuse(const std::string& option, std::string what, std::string remedy) {
  fail({"train", "--" + option, std::move(what), std::move(remedy)});
}

void check_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least) {
    refuse(option, text("got ", value, ", expected at least ", least), "use a larger number");
  }
}

void check_zero(int stage) {
  if (stage >= 0 && stage <= 3) return;
  refuse("zero", text("got ", stage, ", expected 0 to 3"),
         "0: replicated, 1: optimizer state, 2: gradients too, 3: parameters too");
}

void check_second_step(const TrainOptions& options) {
  if (options.steps >= 2 || (options.trace.empty() && !options.memory)) return;
  refuse(options.memory ? "memory" : "trace", "is of the second step, and there is one",
         "use --steps 2 or more");
}

void check_sizes(const TrainOptions& options) {
  check_least("devices", options.devices, 1);
  check_least("microbatches", options.microbatches, 1);
  check_least("batch", options.batch, 1);
  check_least("steps", options.steps, 1);
  check_least("sample", options.sample, 0);
  check_least("validate-every", options.validate_every, 0);
  check_least("threads", options.threads, 0);
  check_least("heads", options.model.heads, 1);
  if (!(options.learning_rate > 0 && std::isfinite(options.learning_rate))) {
    refuse("lr", text("got ", options.learning_rate, ", expected a positive number"), "try 0.003");
  }
  if (options.batch < options.microbatches) {
    refuse("batch",
           text(options.batch, " windows do not make ", options.microbatches, " microbatches"),
           "use a larger batch or fewer microbatches");
  }
}

}  // namespace

Mesh checked_mesh(const TrainOptions& options) {
  check_sizes(options);
  check_zero(options.zero);
  check_second_step(options);
  Mesh mesh = Mesh::parse(options.mesh);
  for (const char* axis : {"dp", "tp"}) {
    if (mesh.find_axis(axis) < 0) {
      refuse("mesh", text("no axis ", axis, " in ", mesh), text("add ", axis, "=1 not to use it"));
    }
  }
  if (mesh.size() > options.devices) {
    refuse("mesh", text(mesh, " needs ", mesh.size(), " devices, got ", options.devices),
           text("use --devices ", mesh.size(), " or a smaller mesh"));
  }
  check_tensor_parallel(options.model, mesh.axis_size("tp"));
  return mesh;
}

double learning_rate(const TrainOptions& options, std::int64_t step) {
  constexpr double kLast = 0.05;
  const auto warmup = std::max<std::int64_t>(1, options.steps / 20);
  if (step < warmup) {
    return options.learning_rate * static_cast<double>(step) / static_cast<double>(warmup);
  }
  const auto span = static_cast<double>(std::max<std::int64_t>(1, options.steps - warmup));
  const double progress = static_cast<double>(step - warmup) / span;
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return options.learning_rate * (kLast + (1 - kLast) * cosine);
}

}  // namespace meshtorch
