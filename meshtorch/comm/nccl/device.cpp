// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/nccl/device.h>

#include <meshtorch/base/error.h>

namespace meshtorch {

int cuda_device_of(const LaunchEnvironment& environment, int visible) {
  if (visible == 1) return 0;
  const auto refuse = [&](const std::string& what, const char* remedy) {
    fail({.op = "nccl",
          .where = text("process ", environment.process),
          .what = what,
          .remedy = remedy});
  };
  if (visible == 0) {
    refuse("sees no CUDA device",
           "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use make_communicator");
  }
  if (environment.local_processes == 0) {
    refuse(text("cannot tell which of ", visible, " CUDA devices is its own"),
           "set CUDA_VISIBLE_DEVICES to one device for each process");
  }
  if (environment.local_process >= visible) {
    refuse(text("has no CUDA device of its own: number ", environment.local_process, " of ",
                environment.local_processes, " processes on this machine, which shows ", visible),
           "start one process for each device");
  }
  return environment.local_process;
}

}  // namespace meshtorch
