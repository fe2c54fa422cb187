// SPDX-License-Identifier: Apache-2.0
//
// The communicator of several processes, whatever moves their bytes.
#pragma once

#include <meshtorch/comm/distributed/transport.h>

namespace meshtorch {

struct DistributedOptions {
  std::int64_t devices = 1;  // of this process; the same on all
  double timeout = 600;      // seconds that a collective may wait for another process
};

// Throws Error on every process where they have different numbers of devices.
std::unique_ptr<Communicator> make_distributed_communicator(std::unique_ptr<Transport> transport,
                                                            const DistributedOptions& options);

}  // namespace meshtorch
