// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/mpiexec.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Mpiexec, KindByVersion) {
  EXPECT_EQ(mpiexec_kind("mpirun (Open MPI) 4.1.4\n\nReport bugs to"), MpiexecKind::open_mpi);
  EXPECT_EQ(mpiexec_kind("mpiexec (OpenRTE) 4.0.3\n"), MpiexecKind::open_mpi);
  EXPECT_EQ(mpiexec_kind("HYDRA build details:\n    Version:  4.0.2\n"), MpiexecKind::hydra);
  EXPECT_EQ(mpiexec_kind("slurm 23.11\n"), MpiexecKind::other);
}

TEST(Mpiexec, CommandByKind) {
  EXPECT_THAT(mpiexec_command({"mpirun", MpiexecKind::open_mpi}, 3, true),
              ElementsAre("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                          "-n", "3"));
  EXPECT_THAT(mpiexec_command({"mpirun", MpiexecKind::open_mpi}, 3, false),
              ElementsAre("mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3"));
  EXPECT_THAT(
      mpiexec_command({"mpiexec", MpiexecKind::hydra}, 3, true),
      ElementsAre("mpiexec", "-rmk", "user", "-launcher", "fork", "-bind-to", "none", "-n", "3"));
  EXPECT_THAT(mpiexec_command({"mpiexec", MpiexecKind::other}, 3, true),
              ElementsAre("mpiexec", "-n", "3"));
}

TEST(Mpiexec, TheWantedOneGoesFirst) {
  EXPECT_THAT(find_mpiexec("true", "false").path, HasSubstr("/true"));
  EXPECT_THAT(find_mpiexec("", "false").path, HasSubstr("/false"));
  EXPECT_EQ(find_mpiexec("true", "").kind, MpiexecKind::other);
}

TEST(Mpiexec, OneThatIsNotThereIsAnError) {
  try {
    find_mpiexec("no-such-mpiexec", "");
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[launch] no-such-mpiexec: there is no such program; install the MPI that "
                 "meshtorch was built with, or name another mpirun by --mpiexec");
  }
}

}  // namespace
}  // namespace meshtorch
