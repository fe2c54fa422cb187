// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/launch.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <meshtorch/base/error.h>
#include <meshtorch/cli/launch_job.h>
#include <meshtorch/cli/mpiexec.h>
#include <meshtorch/cli/subprocess.h>
#include <meshtorch/comm/environment.h>

#ifndef MESHTORCH_MPIEXEC
#define MESHTORCH_MPIEXEC ""
#endif

namespace meshtorch {
namespace {

void check(const LaunchOptions& options) {
  if (options.processes < 1)
    fail({.op = "launch",
          .where = "-n",
          .what = text("got ", options.processes, ", expected at least 1 process"),
          .remedy = "say `meshtorch launch -n 4 -- program arguments`"});
  if (options.threads < 0)
    fail({.op = "launch",
          .where = "--threads",
          .what = text("got ", options.threads, ", expected at least 1"),
          .remedy = "leave it out for a share of the cores"});
  if (options.program.empty())
    fail({.op = "launch",
          .where = "program",
          .what = "there is none",
          .remedy = "say `meshtorch launch -n 4 -- program arguments`"});
  if (!find_program(options.program[0]))
    fail({.op = "launch",
          .where = options.program[0],
          .what = "there is no such program, or it may not be executed",
          .remedy = "check PATH and the file's permissions"});
}

void set_threads(const LaunchOptions& options) {
  const int threads =
      options.threads ? options.threads : threads_of_process(cores_of_process(), options.processes);
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), options.threads > 0);
}

// Else a pipe would take their place.
void open_standard_streams() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
    if (fd < 0) return;
  }
}

}  // namespace

std::vector<std::string> split_program(std::vector<std::string>& arguments) {
  const auto cut = std::find(arguments.begin(), arguments.end(), "--");
  if (cut == arguments.end()) return {};
  std::vector<std::string> program(cut + 1, arguments.end());
  arguments.erase(cut, arguments.end());
  return program;
}

int threads_of_process(int cores, int processes) { return std::max(1, cores / processes); }

int launch(const LaunchOptions& options) {
  open_standard_streams();
  check(options);
  const Mpiexec mpiexec = find_mpiexec(options.mpiexec, MESHTORCH_MPIEXEC);
  set_threads(options);
  keep_to_this_machine(mpiexec.kind);
  return run_job(mpiexec_command(mpiexec, options.processes, geteuid() == 0), options.processes,
                 options.program);
}

}  // namespace meshtorch
