// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/base/error.h>
#include <meshtorch/comm/nccl/nccl.h>

namespace meshtorch {

std::string nccl_library() { return ""; }

std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport> /*host*/) {
  fail({.op = "nccl",
        .where = "",
        .what = "meshtorch was built without NCCL",
        .remedy =
            "build it with a libtorch that has CUDA, the CUDA toolkit and NCCL (docs/nccl.md), or "
            "use make_communicator with CPU tensors"});
}

}  // namespace meshtorch
