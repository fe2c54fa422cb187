// SPDX-License-Identifier: Apache-2.0
//
// What the environment says about how this process was launched: by which process manager, and as
// which of how many processes. It is read before MPI_Init, so that processes that MPI could not
// join stop with a message instead of training apart, each as the only one of its world.
//
//   auto environment = read_environment();       // throws where MPI would make N worlds of one
//   MPI_Init(...);
//   check_world(environment, rank, size, "MPICH 4.0.2");
#pragma once

#include <functional>
#include <string_view>

namespace meshtorch {

enum class ProcessManager {
  none,      // started by hand, or by something that MPI does not know
  open_mpi,  // mpirun of Open MPI: OMPI_COMM_WORLD_* and PMIX_RANK
  hydra,     // mpiexec of MPICH and its kin: PMI_RANK, PMI_SIZE, MPI_LOCAL*
  slurm,     // srun with a PMI: SLURM_STEP_*, and PMI_RANK (pmi2) or PMIX_RANK (pmix)
};

std::string_view name(ProcessManager manager);  // "mpirun of Open MPI"

struct LaunchEnvironment {
  ProcessManager manager = ProcessManager::none;
  int processes = 1;  // of the job
  int process = 0;    // this one's number, what MPI will call its rank
  // Of this machine; 0 processes where the environment does not say.
  int local_processes = 1;
  int local_process = 0;
};

// Cores that this process may use.
int cores_of_process();

using Getenv = std::function<const char*(const char*)>;  // as std::getenv

// Reads the environment through `get`. Throws Error where
// - numbers are malformed, out of range or incomplete;
// - RANK and WORLD_SIZE (torchrun) speak of several processes and no process manager that MPI can
//   join does, or one does with another number of processes (with the same number, the manager's
//   rank counts and RANK does not);
// - srun started several tasks without a PMI. A batch script, or the shell of salloc, is one
//   process, however many tasks were allocated: only srun sets SLURM_STEP_NUM_TASKS.
LaunchEnvironment read_environment(const Getenv& get);
LaunchEnvironment read_environment();  // this process's

// To be called once MPI has told its rank and size. Throws Error if a process manager started
// another number of processes than MPI counts: the program was then linked with one MPI
// (`mpi_library`, "MPICH 4.0.2") and launched by another's mpirun.
void check_world(const LaunchEnvironment& environment, int mpi_rank, int mpi_size,
                 std::string_view mpi_library);

}  // namespace meshtorch
