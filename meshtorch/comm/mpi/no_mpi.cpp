// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/base/error.h>
#include <meshtorch/comm/mpi/mpi.h>

namespace meshtorch {

std::string mpi_library() { return ""; }

std::unique_ptr<Transport> join_mpi() {
  fail(
      {.op = "Runtime",
       .where = "",
       .what = "this program was started as several processes, and meshtorch was built without MPI",
       .remedy = "install one (apt-get install libopenmpi-dev openmpi-bin) and build anew, or "
                 "start one process with virtual devices"});
}

}  // namespace meshtorch
