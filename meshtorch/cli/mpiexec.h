// SPDX-License-Identifier: Apache-2.0
//
// The mpiexec (or mpirun) that starts processes, and what it has to be told, by kind.
#pragma once

#include <string>
#include <vector>

namespace meshtorch {

enum class MpiexecKind { open_mpi, hydra, other };

struct Mpiexec {
  std::string path;
  MpiexecKind kind = MpiexecKind::other;
};

// By what `mpiexec --version` prints.
MpiexecKind mpiexec_kind(const std::string& version);

// `wanted`, or where it is empty `built_with`, or where that is empty mpiexec or mpirun in PATH; it
// is asked for its version. Throws Error: there is none.
Mpiexec find_mpiexec(const std::string& wanted, const std::string& built_with);

// The command up to the program: `processes` of them, on this machine, also where there are fewer
// cores and (`root`) where root runs them, bound to no core.
std::vector<std::string> mpiexec_command(const Mpiexec& mpiexec, int processes, bool root);

// Tells it by the environment to leave other machines of a batch job alone (Open MPI 4 and 5 have
// no common flag).
void keep_to_this_machine(MpiexecKind kind);

}  // namespace meshtorch
