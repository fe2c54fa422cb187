// SPDX-License-Identifier: Apache-2.0
//
// The run of one job of `meshtorch launch` (launch.h), from the start of mpirun to the end of the
// last process.
#pragma once

#include <string>
#include <vector>

namespace meshtorch {

// `mpiexec` is the command up to the program. Blocks signals and makes this process the parent of
// orphans: it is the last thing that a process does. Returns its exit status.
int run_job(std::vector<std::string> mpiexec, int processes,
            const std::vector<std::string>& program);

}  // namespace meshtorch
