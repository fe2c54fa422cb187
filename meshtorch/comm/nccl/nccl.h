// SPDX-License-Identifier: Apache-2.0
//
// NCCL as the engine of CUDA tensors: nccl.cpp where CMake found NCCL, the CUDA runtime and a
// libtorch with CUDA, no_nccl.cpp where not. Compiled, and not yet run on a GPU (docs/nccl.md).
//
//   auto communicator = make_nccl_communicator({.devices = 1, .timeout = 600});
//
// A process drives one CUDA device (device.h says which); its `devices` are virtual ones of it.
// NCCL only moves bytes between processes. Sums are taken on the device by at::add in the one fixed
// tree that every backend shares (communicator.h), not by ncclAllReduce, whose order depends on the
// machine: the same bits on every device and for any number of processes.
#pragma once

#include <memory>
#include <string>

#include <meshtorch/comm/distributed/transport.h>

namespace meshtorch {

// The NCCL that the library was built with, "NCCL 2.30.7"; empty without one.
std::string nccl_library();

// CPU tensors, headers and sizes among them, and notices go through `host`; CUDA tensors through
// NCCL, on a stream of its own, in order with the stream that is current where exchange() is
// called. NCCL connects the processes in the first exchange.
//
// Makes the device of this process current in the calling thread. Throws Error: no NCCL in this
// build; no CUDA device; none of this process's own. exchange() throws Error for a tensor on
// another CUDA device, and TransportError for what NCCL or CUDA reports, also of what went wrong
// meanwhile in the background.
std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport> host);

// As make_communicator, with NCCL over MPI where there are several processes; where there is one,
// collectives are memory operations on its device. Throws Error as above.
std::unique_ptr<Communicator> make_nccl_communicator(const CommunicatorOptions& options);

}  // namespace meshtorch
