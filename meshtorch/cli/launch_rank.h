// SPDX-License-Identifier: Apache-2.0
//
// The helper that `meshtorch launch` has mpirun start in place of each rank's program. It starts
// the program with the streams that the launcher hands it, passes signals on, tells how the program
// ended, and sees to it that nothing of it is left when the launcher, mpirun or the job has ended.
#pragma once

#include <string>
#include <vector>

namespace meshtorch {

// `address` as of LaunchListener. Returns 0: how the program ended is told to the launcher, which
// ends the job, and mpirun is not made to. Throws Error: no launcher at `address`.
int run_rank(const std::string& address, const std::vector<std::string>& program);

}  // namespace meshtorch
