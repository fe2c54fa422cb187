// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/train.h>

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <optional>
#include <ostream>

#include <meshtorch/base/error.h>
#include <meshtorch/base/progress.h>
#include <meshtorch/base/table.h>
#include <meshtorch/checkpoint/module.h>
#include <meshtorch/cli/metrics.h>
#include <meshtorch/cli/report.h>
#include <meshtorch/comm/environment.h>
#include <meshtorch/meshtorch.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/trace.h>

namespace meshtorch {
namespace {

constexpr std::int64_t kQuickBatches = 8;  // of a validation on the way

TrainState make_state(const TrainOptions& options, const Mesh& mesh, Gpt model) {
  torch::optim::AdamWOptions adam(options.learning_rate);
  adam.betas({0.9, 0.95}).weight_decay(0.1);
  Zero<torch::optim::AdamW> optimizer(
      model->parameters(),
      {.axis = "dp", .stage = options.zero, .clip_norm = 1.0, .precision = options.precision},
      adam);
  if (options.sequence_parallel) constrain(*model, gpt_sequence_parallel());
  return {mesh, model, std::move(optimizer)};
}

// Nothing where a device's part of rows or of a sequence differs from another's.
std::optional<TensorParallelTraffic> expected_over_tp(const TrainOptions& options,
                                                      const Mesh& mesh) {
  const std::int64_t dp = mesh.axis_size("dp");
  if (options.sequence_parallel && options.model.length % mesh.axis_size("tp") != 0)
    return std::nullopt;
  MicrobatchShape shape{.length = options.model.length};
  if (options.precision) {
    shape.activation_size = static_cast<std::int64_t>(elementSize(options.precision->compute));
    shape.logit_size = static_cast<std::int64_t>(elementSize(options.precision->output));
  }
  TensorParallelTraffic all;
  const std::int64_t rows = (options.batch + options.microbatches - 1) / options.microbatches;
  for (std::int64_t begin = 0; begin < options.batch; begin += rows) {
    const std::int64_t mine = std::min(rows, options.batch - begin);
    if (mine % dp != 0) return std::nullopt;
    shape.rows = mine / dp;
    all += tensor_parallel_traffic(mesh, options.model, shape, options.sequence_parallel);
  }
  return all;
}

// What is seen of one step: the second, as the first one also makes what later ones reuse.
struct Observed {
  Schedule schedule;  // from right before it
  Ledger ledger;
  std::string memory, trace;  // table, file; empty: not asked for
};

StepMetrics observe(const TrainOptions& options, TrainStep& step, const RowSource& batch,
                    Observed& observed) {
  Runtime& runtime = Runtime::current();
  observed.schedule = schedule_of(step, options.sequence_parallel);
  if (options.memory) runtime.memory()->reset_peaks();
  std::optional<Trace> trace;
  if (!options.trace.empty()) trace.emplace();
  StepMetrics metrics = step(batch);
  if (trace) observed.trace = trace->save(options.trace);
  if (options.memory) observed.memory = runtime.memory()->to_string();
  observed.ledger = metrics.collectives;
  return metrics;
}

struct LoopResult {
  double last_loss = 0;
  double seconds = 0;
  Observed observed;
};

RowSource batch_of(const TrainOptions& options, const ByteText& text, std::int64_t step) {
  return {options.batch, [&options, &text, step](std::int64_t begin, std::int64_t end) {
            return text.train().batch(
                {.size = options.batch, .length = options.model.length, .seed = options.seed}, step,
                begin, end);
          }};
}

LoopResult run_steps(const TrainOptions& options, TrainState& state, TrainStep& train_step,
                     const ByteText& text, Metrics& metrics, Progress& progress) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  LoopResult loop;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    Runtime::current().ledger().clear();
    const double rate = learning_rate(options, step);
    for (auto& group : state.optimizer.param_groups()) group.options().set_lr(rate);
    const RowSource batch = batch_of(options, text, step);
    const StepMetrics result = step == std::min<std::int64_t>(2, options.steps)
                                   ? observe(options, train_step, batch, loop.observed)
                                   : train_step(batch);
    loop.last_loss = result.loss.value();
    progress.update(step, loop.last_loss, result.tokens);
    metrics.step(step, result, rate, progress.tokens_per_second());
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

void tell_outcome(std::ostream& out, const TrainOptions& options, const TrainOutcome& outcome,
                  const Observed& observed, const TrainState& state) {
  out << "trained in " << format_duration(outcome.seconds) << ", validation loss " << std::fixed
      << std::setprecision(4) << outcome.validation_loss << " nats per byte\n\n";
  const Expected expected{observed.schedule, expected_over_tp(options, state.mesh)};
  out << "communication of one step\n" << ledger_report(observed.ledger, expected) << "\n";
  out << "every collective of it\n" << observed.ledger.to_string() << "\n";
  if (options.memory) out << "memory in it, bytes\n" << observed.memory << "\n";
  const StateBytes bytes = state_bytes(state.optimizer);
  out << "optimizer state: " << with_commas(bytes.per_device) << " bytes per device, "
      << with_commas(bytes.unsharded) << " without sharding\n\n";
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
                   .mode = options.strict ? Mode::strict : Mode::automatic,
                   .memory = options.memory});
  const Mesh mesh = runtime.make_mesh(plan.axes());
  Gpt model(options.model);
  const MatchReport leaves = shard(*model, mesh, gpt_sharding());
  TrainState state = make_state(options, mesh, model);
  TrainStep step = make_step(state, options.microbatches);
  std::ostream& out = runtime.out(log);
  Metrics metrics(options.out, runtime.process() == 0);
  tell_setup(out, options, text, mesh, leaves);
  if (options.explain)
    out << "\n" << schedule_of(step, options.sequence_parallel).to_string() << "\n";

  Progress progress({.steps = options.steps, .terminal = terminal}, out);
  const LoopResult loop = run_steps(options, state, step, text, metrics, progress);
  TrainOutcome outcome{.train_loss = loop.last_loss,
                       .validation_loss = validate(state, text.validation(), options.batch),
                       .seconds = loop.seconds};
  metrics.validation(options.steps, outcome.validation_loss);
  metrics.draw();
  tell_outcome(out, options, outcome, loop.observed, state);
  if (options.sample > 0) {
    outcome.sample = generate(state, "", options.sample, options.seed);
    out << "sample\n" << outcome.sample << "\n\n";
  }
  const std::string weights = options.out + "/model.safetensors";
  save(*model, weights);
  for (const auto& path :
       {loop.observed.trace, metrics.lines_path(), metrics.chart_path(), weights})
    if (!path.empty()) out << "wrote " << path << "\n";
  return outcome;
}

}  // namespace meshtorch
