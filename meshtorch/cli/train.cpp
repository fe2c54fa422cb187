// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/train.h>

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <ostream>

#include <meshtorch/base/error.h>
#include <meshtorch/base/progress.h>
#include <meshtorch/base/table.h>
#include <meshtorch/checkpoint/module.h>
#include <meshtorch/cli/metrics.h>
#include <meshtorch/cli/report.h>
#include <meshtorch/comm/environment.h>
#include <meshtorch/meshtorch.h>

namespace meshtorch {
namespace {

constexpr std::int64_t kQuickBatches = 8;  // of a validation on the way

TrainState make_state(const TrainOptions& options, const Mesh& mesh, Gpt model) {
  torch::optim::AdamWOptions adam(options.learning_rate);
  adam.betas({0.9, 0.95}).weight_decay(0.1);
  Zero<torch::optim::AdamW> optimizer(
      model->parameters(), {.axis = "dp", .stage = options.zero, .clip_norm = 1.0}, adam);
  return {mesh, model, std::move(optimizer)};
}

// What the ledger of one step should say.
Expected expected_traffic(const TrainOptions& options, const Mesh& mesh,
                          const MatchReport& leaves) {
  Expected expected{.zero = zero_traffic(mesh, leaves.matches, "dp")};
  const std::int64_t rows = (options.batch + options.microbatches - 1) / options.microbatches;
  const std::int64_t dp = mesh.axis_size("dp");
  for (std::int64_t i = 0; i * rows < options.batch; ++i) {
    const std::int64_t mine = std::min(rows, options.batch - i * rows);
    const auto traffic = tensor_parallel_traffic(mesh, options.model, (mine + dp - 1) / dp,
                                                 options.model.length, "tp");
    for (auto [sum, part] : {std::pair{&expected.tensor_parallel.activations, traffic.activations},
                             std::pair{&expected.tensor_parallel.loss, traffic.loss}}) {
      sum->count += part.count;
      sum->bytes += part.bytes;
    }
  }
  return expected;
}

struct LoopResult {
  double last_loss = 0;
  double seconds = 0;
  Ledger second_step;  // the first one also makes what later ones reuse
};

LoopResult run_steps(const TrainOptions& options, TrainState& state, const ByteText& text,
                     Metrics& metrics, Progress& progress) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::int64_t tokens = options.batch * options.model.length;
  Ledger& ledger = Runtime::current().ledger();
  LoopResult loop;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    ledger.clear();
    const Batch batch = text.train().batch(
        {.size = options.batch, .length = options.model.length, .seed = options.seed}, step);
    const double rate = learning_rate(options, step);
    const StepResult result = train_step(state, batch, options.microbatches, rate);
    if (step <= 2) loop.second_step = ledger;
    progress.update(step, result.loss, tokens);
    metrics.step(step, result, rate, progress.tokens_per_second());
    loop.last_loss = result.loss;
    if (options.validate_every == 0 || step % options.validate_every != 0 || step == options.steps)
      continue;
    progress.pause();
    metrics.validation(step, validate(state, text.validation(), options.batch, kQuickBatches));
    progress.resume();
  }
  loop.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return loop;
}

void tell_setup(std::ostream& out, const TrainOptions& options, const ByteText& text,
                const Mesh& mesh, const MatchReport& leaves) {
  out << "mesh " << mesh << "\n" << mesh_grid(mesh) << "\n";
  out << "parameters: " << with_commas(parameter_count(options.model)) << "\n"
      << leaves.to_string() << "\n";
  out << "text " << options.data << ": " << with_commas(text.train().size())
      << " bytes to train on, " << with_commas(text.validation().size()) << " to validate with\n";
}

void tell_outcome(std::ostream& out, const TrainOutcome& outcome, const Expected& expected,
                  const Ledger& ledger, const StateBytes& state) {
  out << "trained in " << format_duration(outcome.seconds) << ", validation loss " << std::fixed
      << std::setprecision(4) << outcome.validation_loss << " nats per byte\n\n";
  out << "communication of one step\n" << ledger_report(ledger, expected) << "\n";
  out << "every collective of it\n" << ledger.to_string() << "\n";
  out << "optimizer state: " << with_commas(state.per_device) << " bytes per device, "
      << with_commas(state.unsharded) << " without sharding\n\n";
}

// The option's devices are those of all processes.
std::int64_t devices_here(const TrainOptions& options) {
  const int processes = read_environment().processes;
  if (options.devices % processes != 0) {
    fail({"train", "--devices", text(options.devices, " devices over ", processes, " processes"),
          text("use a multiple of ", processes)});
  }
  return options.devices / processes;
}

}  // namespace

TrainOutcome train(const TrainOptions& options, std::ostream& log, bool terminal) {
  const Mesh plan = checked_mesh(options);
  const ByteText text(options.data);
  Runtime runtime({.devices = devices_here(options),
                   .threads = options.threads,
                   .seed = options.seed,
                   .mode = options.strict ? Mode::strict : Mode::automatic});
  const Mesh mesh = runtime.make_mesh(plan.axes());
  Gpt model(options.model);
  const MatchReport leaves = shard(*model, mesh, gpt_sharding());
  TrainState state = make_state(options, mesh, model);
  std::ostream& out = runtime.out(log);
  Metrics metrics(options.out, runtime.process() == 0);
  tell_setup(out, options, text, mesh, leaves);

  Progress progress({.steps = options.steps, .terminal = terminal}, out);
  const LoopResult loop = run_steps(options, state, text, metrics, progress);
  TrainOutcome outcome{.train_loss = loop.last_loss,
                       .validation_loss = validate(state, text.validation(), options.batch),
                       .seconds = loop.seconds};
  metrics.validation(options.steps, outcome.validation_loss);
  metrics.draw();
  tell_outcome(out, outcome, expected_traffic(options, mesh, leaves), loop.second_step,
               state_bytes(state.optimizer));
  if (options.sample > 0) {
    outcome.sample = generate(state, "", options.sample, options.seed);
    out << "sample\n" << outcome.sample << "\n\n";
  }
  const std::string weights = options.out + "/model.safetensors";
  save(*model, weights);
  for (const auto& path : {metrics.lines_path(), metrics.chart_path(), weights})
    out << "wrote " << path << "\n";
  return outcome;
}

}  // namespace meshtorch
