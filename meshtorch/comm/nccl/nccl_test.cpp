// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/nccl/nccl.h>

#include <ATen/Context.h>
#include <gmock/gmock.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal() {
  try {
    make_nccl_transport(nullptr);
  } catch (const Error& error) {
    return error.what();
  }
  return "did not throw";
}

TEST(Nccl, SaysHowToGetItWhereItIsNotBuilt) {
  if (!nccl_library().empty()) GTEST_SKIP() << nccl_library();
  EXPECT_EQ(
      refusal(),
      "[nccl] meshtorch was built without NCCL; build it with a libtorch that has CUDA, the CUDA "
      "toolkit and NCCL (docs/nccl.md), or use make_communicator with CPU tensors");
}

TEST(Nccl, NeedsADevice) {
  if (nccl_library().empty()) GTEST_SKIP() << "built without NCCL";
  if (at::hasCUDA()) GTEST_SKIP() << "there is one";
  EXPECT_THAT(nccl_library(), StartsWith("NCCL 2."));
  EXPECT_THAT(refusal(), HasSubstr("sees no CUDA device"));
}

}  // namespace
}  // namespace meshtorch
