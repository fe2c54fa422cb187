// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string_view>

#include <torch/version.h>
#include <CLI/CLI.hpp>

#include <meshtorch/base/error.h>
#include <meshtorch/base/progress.h>
#include <meshtorch/cli/launch.h>
#include <meshtorch/cli/launch_rank.h>
#include <meshtorch/cli/train.h>
#include <meshtorch/data/files.h>

namespace mt = meshtorch;

namespace {

constexpr int kBadInput = 1;
constexpr int kBadUsage = 2;

void add_train_options(CLI::App& app, mt::TrainOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--devices", options.devices, "virtual devices, of all processes together");
  app.add_option("--mesh", options.mesh, "axes and sizes, major to minor; dp and tp are needed");
  app.add_option("--microbatches", options.microbatches, "of a step");
  app.add_option("--zero", options.zero,
                 "stage: 0 replicated, 1 optimizer state, 2 gradients too, 3 parameters too");
  app.add_option_function<std::string>(
      "--precision",
      [&options](const std::string& text) { options.precision = mt::Precision::parse(text); },
      "dtypes, as in params=float32,compute=bfloat16,output=float32 (weights are saved in "
      "compute's)");
  app.add_flag("--sequence-parallel", options.sequence_parallel,
               "cut activations between products over tp");
  app.add_option("--width", options.model.width, "of the model");
  app.add_option("--layers", options.model.layers, "of the model");
  app.add_option("--heads", options.model.heads, "of a layer");
  app.add_option("--length", options.model.length, "tokens of a window");
  app.add_option("--dropout", options.model.dropout, "probability");
  app.add_option("--batch", options.batch, "windows of a step");
  app.add_option("--lr", options.learning_rate, "peak of the learning rate");
  app.add_option("--steps", options.steps, "of training");
  app.add_option("--data", options.data, "text file, bytes are tokens (default: king_james.txt)");
  app.add_option("--seed", options.seed, "of weights, batches, dropout and sample");
  app.add_option("--out", options.out, "folder for metrics, loss curve and weights");
  app.add_option("--sample", options.sample, "bytes to generate at the end");
  app.add_option("--validate-every", options.validate_every,
                 "steps between quick validations, 0: none");
  app.add_flag("--strict", options.strict, "an implied gather is an error");
  app.add_flag("--explain", options.explain, "print what a step will communicate");
  app.add_option("--trace", options.trace,
                 "file for a trace of the second step (Perfetto opens it)");
  app.add_flag("--memory", options.memory, "print what the devices held in the second step");
  app.add_option("--threads", options.threads,
                 "of a kernel; 0: all cores, which helps large models only");
}

int run_train(mt::TrainOptions options) {
  if (options.data.empty()) options.data = mt::data_file("king_james.txt");
  mt::train(options, std::cout, mt::is_terminal(STDOUT_FILENO));
  return 0;
}

void add_launch_options(CLI::App& app, mt::LaunchOptions& options) {
  app.footer("The program and its arguments follow \"--\": meshtorch launch -n 4 -- program x y");
  app.add_option("-n", options.processes, "processes")->required();
  app.add_option(
      "--threads", options.threads,
      "OMP_NUM_THREADS of a process (default: as it is set, else its share of the cores)");
  app.add_option("--mpiexec", options.mpiexec,
                 "to start them with (default: that of the MPI this was built with)");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Named sharding for libtorch", "meshtorch");
  app.require_subcommand(1);
  mt::TrainOptions options;
  CLI::App* train =
      app.add_subcommand("train", "train a GPT on a text, on a mesh of virtual devices");
  add_train_options(*train, options);
  mt::LaunchOptions job;
  CLI::App* launch = app.add_subcommand("launch", "run a program as several processes");
  add_launch_options(*launch, job);
  std::string launcher;
  CLI::App* rank = app.add_subcommand("launch-rank", "what `launch` has mpirun start")->group("");
  rank->add_option("launcher", launcher, "its address")->required();
  app.add_subcommand("version", "print the version")->callback([] {
    std::cout << "meshtorch " MESHTORCH_VERSION ", libtorch " TORCH_VERSION "\n";
  });
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (argc > 1 && std::string_view(argv[1]).starts_with("launch"))
    job.program = mt::split_program(arguments);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
    if (launch->parsed()) return mt::launch(job);
    if (rank->parsed()) return mt::run_rank(launcher, job.program);
    return train->parsed() ? run_train(options) : 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  } catch (const mt::Error& error) {
    std::cerr << error.what() << "\n";
    return kBadInput;
  }
}
