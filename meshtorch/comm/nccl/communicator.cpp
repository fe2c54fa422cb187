// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/distributed.h>
#include <meshtorch/comm/environment.h>
#include <meshtorch/comm/mpi/mpi.h>
#include <meshtorch/comm/nccl/nccl.h>

namespace meshtorch {

std::unique_ptr<Communicator> make_nccl_communicator(const CommunicatorOptions& options) {
  if (read_environment().processes == 1) return make_local_communicator(options.devices);
  return make_distributed_communicator(make_nccl_transport(join_mpi()),
                                       {.devices = options.devices, .timeout = options.timeout});
}

}  // namespace meshtorch
