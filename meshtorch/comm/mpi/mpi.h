// SPDX-License-Identifier: Apache-2.0
//
// MPI as the engine: mpi.cpp where CMake found one (Open MPI, MPICH), no_mpi.cpp where not.
#pragma once

#include <memory>
#include <string>

#include <meshtorch/comm/distributed/transport.h>

namespace meshtorch {

// The MPI that the library was built with, "Open MPI v4.1.4"; empty without one.
std::string mpi_library();

// Joins the processes of this program. MPI is initialised at the first call, unless the program did it,
// and finalised when the program exits. Throws Error: no MPI in this build; the MPI of the launcher
// is not this one; the processes fell apart before.
std::unique_ptr<Transport> join_mpi();

}  // namespace meshtorch
