// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/nccl/device.h>

#include <gmock/gmock.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

LaunchEnvironment local(int process, int processes) {
  return {.processes = 8,
          .process = 4 + process,
          .local_processes = processes,
          .local_process = process};
}

std::string refusal(const LaunchEnvironment& environment, int visible) {
  try {
    cuda_device_of(environment, visible);
  } catch (const Error& error) {
    return error.what();
  }
  return "did not throw";
}

TEST(CudaDevice, IsTheOneOfTheLocalNumber) {
  EXPECT_EQ(cuda_device_of({}, 4), 0);
  for (int process = 0; process < 4; ++process)
    EXPECT_EQ(cuda_device_of(local(process, 4), 4), process);
}

TEST(CudaDevice, IsTheOnlyOneThatTheLauncherShows) {
  EXPECT_EQ(cuda_device_of(local(3, 4), 1), 0);
  EXPECT_EQ(cuda_device_of(local(0, 0), 1), 0);
}

TEST(CudaDevice, RefusesWhereThereIsNone) {
  EXPECT_EQ(
      refusal(local(1, 4), 0),
      "[nccl] process 5: sees no CUDA device; look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
      "make_communicator");
}

TEST(CudaDevice, RefusesToGuess) {
  EXPECT_EQ(refusal(local(0, 0), 2),
            "[nccl] process 4: cannot tell which of 2 CUDA devices is its own; set "
            "CUDA_VISIBLE_DEVICES to one device for each process");
}

TEST(CudaDevice, RefusesToShare) {
  EXPECT_EQ(
      refusal(local(2, 4), 2),
      "[nccl] process 6: has no CUDA device of its own: number 2 of 4 processes on this machine, "
      "which shows 2; start one process for each device");
}

}  // namespace
}  // namespace meshtorch
