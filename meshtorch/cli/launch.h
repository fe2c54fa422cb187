// SPDX-License-Identifier: Apache-2.0
//
// `meshtorch launch -n P -- program arguments...`: P processes of a program on this machine, as one
// MPI job.
//
// - The lines they print come out whole, tagged by rank: `[1] loss 2.3`, each on its own stream.
//   Standard input is rank 0's where it is no terminal; only the program reads it.
// - Each gets its share of the cores as OMP_NUM_THREADS.
// - SIGINT, SIGTERM and SIGHUP are passed on; a second one ends the job.
// - The first that fails ends all: SIGTERM, and SIGKILL 0.8 s later.
// - No process is left behind, however the job, mpirun or the launcher ends.
//
// mpirun does not start the program but a helper of this same executable (launch_rank.h), which is
// how the launcher knows each process's own streams and its own end.
#pragma once

#include <string>
#include <vector>

namespace meshtorch {

struct LaunchOptions {
  int processes = 0;
  std::vector<std::string> program;  // and its arguments
  int threads = 0;      // OMP_NUM_THREADS of each; 0: what the environment says, else its share
  std::string mpiexec;  // empty: that of the MPI the project was built with, else that in PATH
};

// Cuts off what follows the first "--" of `arguments` and returns it.
std::vector<std::string> split_program(std::vector<std::string>& arguments);

// What one of `processes` that share `cores` should use: at least 1.
int threads_of_process(int cores, int processes);

// Runs the job to its end. Returns 0, or of the first process that failed its status (128 + its
// signal), having said so on standard error: "[launch] rank 1: exited with status 3; ...". Throws
// Error before anything is started: fewer than 1 process, no program, no such program, no mpirun.
//
// The executable must answer to `launch-rank ADDRESS -- program...` with run_rank.
int launch(const LaunchOptions& options);

}  // namespace meshtorch
