// SPDX-License-Identifier: Apache-2.0
//
// Which CUDA device a process drives.
#pragma once

#include <meshtorch/comm/environment.h>

namespace meshtorch {

// Of `visible` devices (CUDA_VISIBLE_DEVICES), the one with this process's number on its machine;
// the only one where the launcher shows each process its own. Throws Error where there is none, or
// the environment does not number the processes of a machine and several are visible.
int cuda_device_of(const LaunchEnvironment& environment, int visible);

}  // namespace meshtorch
