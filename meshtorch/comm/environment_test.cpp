// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/environment.h>

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_environment([&](const char* variable) -> const char* {
    const auto found = variables.find(variable);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string complaint(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "did not throw";
}

Variables operator+(Variables left, const Variables& right) {
  for (const auto& [variable, value] : right) left[variable] = value;
  return left;
}

testing::Matcher<LaunchEnvironment> is(ProcessManager manager, int processes, int process,
                                       int local_processes, int local_process) {
  return AllOf(testing::Field(&LaunchEnvironment::manager, manager),
               testing::Field(&LaunchEnvironment::processes, processes),
               testing::Field(&LaunchEnvironment::process, process),
               testing::Field(&LaunchEnvironment::local_processes, local_processes),
               testing::Field(&LaunchEnvironment::local_process, local_process));
}

// What `mpirun -n 4` of Open MPI 4.1 sets on the second of two machines, and the others likewise.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"PMIX_RANK", "3"},
                            {"PMIX_NAMESPACE", "1580531713"}};
const Variables kHydra = {{"PMI_FD", "8"},
                          {"PMI_RANK", "3"},
                          {"PMI_SIZE", "4"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"MPI_LOCALRANKID", "1"}};
const Variables kBatch = {{"SLURM_JOB_ID", "7"},
                          {"SLURM_NTASKS", "6"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "0"}};
const Variables kSrun =
    kBatch + Variables{{"SLURM_STEP_ID", "0"},        {"SLURM_STEPID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x2)"},
                       {"SLURM_NODEID", "1"},         {"SLURM_PROCID", "3"},
                       {"SLURM_LOCALID", "1"}};
const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"}};

TEST(Environment, OfNothingIsOneProcess) {
  EXPECT_THAT(read({}), is(ProcessManager::none, 1, 0, 1, 0));
  EXPECT_THAT(read({{"PATH", "/usr/bin"}, {"RANK", "senior"}}),
              is(ProcessManager::none, 1, 0, 1, 0));
}

TEST(Environment, OfOpenMpi) {
  EXPECT_THAT(read(kOpenMpi), is(ProcessManager::open_mpi, 4, 3, 2, 1));
}

TEST(Environment, OfHydra) {
  EXPECT_THAT(read(kHydra), is(ProcessManager::hydra, 4, 3, 2, 1));
  EXPECT_THAT(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), is(ProcessManager::hydra, 2, 1, 0, 0));
}

TEST(Environment, OfSrunWithAPmi) {
  EXPECT_THAT(read(kSrun + Variables{{"PMIX_RANK", "3"}}), is(ProcessManager::slurm, 6, 3, 2, 1));
  EXPECT_THAT(read(kSrun + Variables{{"PMI_FD", "9"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "6"}}),
              is(ProcessManager::slurm, 6, 3, 2, 1));
}

TEST(Environment, CountsTheTasksOfAMachineOfSlurm) {
  const Variables pmix = kSrun + Variables{{"PMIX_RANK", "3"}};
  const int expected[] = {2, 2, 1, 1, 0};
  for (int node = 0; node < 5; ++node) {
    const auto found = read(pmix + Variables{{"SLURM_NODEID", std::to_string(node)}});
    EXPECT_EQ(found.local_processes, expected[node]) << node;
  }
  EXPECT_EQ(read(pmix + Variables{{"SLURM_STEP_TASKS_PER_NODE", ""}}).local_processes, 0);
}

TEST(Environment, ABatchScriptIsOneProcess) {
  EXPECT_THAT(read(kBatch), is(ProcessManager::none, 1, 0, 1, 0));
  // The shell of salloc is a step of one task that keeps the job's SLURM_NTASKS.
  EXPECT_THAT(read(kBatch + Variables{{"SLURM_STEP_ID", "4294967290"},
                                      {"SLURM_STEP_NUM_TASKS", "1"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "1"}}),
              is(ProcessManager::none, 1, 0, 1, 0));
}

TEST(Environment, SrunWithoutAPmiIsAnError) {
  EXPECT_EQ(complaint(kSrun),
            "[launch] SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=6: srun started several tasks without a "
            "PMI: each would train alone; use `srun --mpi=pmix -n 6 program` (--mpi=pmi2 for "
            "MPICH), or `mpirun` in the batch script");
}

TEST(Environment, MpirunInsideASlurmJobIsMpirun) {
  EXPECT_THAT(read(kSrun + kOpenMpi), is(ProcessManager::open_mpi, 4, 3, 2, 1));
  EXPECT_THAT(read(kSrun + kHydra), is(ProcessManager::hydra, 4, 3, 2, 1));
  EXPECT_THAT(read(kBatch + kOpenMpi), is(ProcessManager::open_mpi, 4, 3, 2, 1));
}

TEST(Environment, TorchrunAloneIsAnError) {
  EXPECT_EQ(complaint(kTorchrun),
            "[launch] RANK=1, WORLD_SIZE=4: a launcher that is no process manager of MPI set them "
            "(torchrun does): each process would train alone; start it by `mpirun -n 4 program` or "
            "`meshtorch launch -n 4 -- program`, or unset both");
  EXPECT_THAT(complaint(kTorchrun + kSrun), HasSubstr("RANK=1, WORLD_SIZE=4"));
  EXPECT_THAT(complaint({{"WORLD_SIZE", "4"}}), HasSubstr("WORLD_SIZE: is set, RANK is not"));
}

TEST(Environment, TorchrunOfOneProcessIsFine) {
  const Variables one = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_THAT(read(one), is(ProcessManager::none, 1, 0, 1, 0));
  EXPECT_THAT(read(one + kOpenMpi), is(ProcessManager::open_mpi, 4, 3, 2, 1));
}

TEST(Environment, TheManagersRankCountsWhereTheSizesAgree) {
  EXPECT_THAT(read(kTorchrun + kOpenMpi), is(ProcessManager::open_mpi, 4, 3, 2, 1));
}

TEST(Environment, SizesThatDisagreeAreAnError) {
  EXPECT_THAT(complaint(kOpenMpi + Variables{{"RANK", "3"}, {"WORLD_SIZE", "8"}}),
              HasSubstr("RANK=3, WORLD_SIZE=8: but mpirun of Open MPI started 4 processes; start"));
  // `mpirun -n 1 torchrun --nproc-per-node 4`: four processes would be the one rank.
  EXPECT_THAT(complaint(kTorchrun + kHydra +
                        Variables{{"PMI_SIZE", "1"},
                                  {"PMI_RANK", "0"},
                                  {"MPI_LOCALNRANKS", "1"},
                                  {"MPI_LOCALRANKID", "0"}}),
              HasSubstr("but mpiexec of MPICH started 1 process;"));
}

TEST(Environment, OpenMpiWithoutItsManagerIsAnError) {
  Variables copied = kOpenMpi;
  copied.erase("PMIX_RANK");
  EXPECT_THAT(complaint(copied), HasSubstr("OMPI_COMM_WORLD_SIZE=4: there is no PMIX_RANK"));
}

TEST(Environment, MalformedNumbersAreErrors) {
  EXPECT_EQ(complaint(kOpenMpi + Variables{{"OMPI_COMM_WORLD_SIZE", "four"}}),
            "[launch] OMPI_COMM_WORLD_SIZE: got \"four\", expected a number of at least 1; unset "
            "it, or let the launcher set it");
  for (const char* value : {"", "4x", " 4", "0", "-1", "99999999999"}) {
    EXPECT_THAT(complaint({{"RANK", "0"}, {"WORLD_SIZE", value}}), HasSubstr("WORLD_SIZE: got \""))
        << value;
    EXPECT_THAT(complaint(kHydra + Variables{{"PMI_SIZE", value}}), HasSubstr("PMI_SIZE: got \""))
        << value;
  }
  EXPECT_THAT(complaint(kTorchrun + Variables{{"RANK", "-1"}}), HasSubstr("RANK: got \"-1\""));
}

TEST(Environment, RanksOutOfRangeAndHalvesOfPairsAreErrors) {
  EXPECT_EQ(complaint({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}),
            "[launch] PMI_RANK: got 2, expected less than PMI_SIZE=2; unset both, or let the "
            "launcher set them");
  EXPECT_EQ(complaint({{"PMI_RANK", "2"}}),
            "[launch] PMI_RANK: is set, PMI_SIZE is not; a launcher sets both; unset it");
  EXPECT_THAT(complaint(kOpenMpi + Variables{{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
              HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK: got 2, expected less than"));
  EXPECT_THAT(complaint(kTorchrun + Variables{{"RANK", "4"}}), HasSubstr("RANK: got 4, expected"));
}

std::string world_complaint(const LaunchEnvironment& environment, int rank, int size) {
  try {
    check_world(environment, rank, size, "MPICH 4.0.2");
  } catch (const Error& error) {
    return error.what();
  }
  return "did not throw";
}

TEST(CheckWorld, IsSilentWhereTheSizesAgreeOrNoOneSaysOne) {
  EXPECT_EQ(world_complaint(read(kOpenMpi), 3, 4), "did not throw");
  EXPECT_EQ(world_complaint(read({}), 0, 1), "did not throw");
  EXPECT_EQ(world_complaint(read({}), 1, 2), "did not throw");  // a manager not known here
}

TEST(CheckWorld, NamesBothMpis) {
  EXPECT_EQ(world_complaint(read(kOpenMpi), 0, 1),
            "[launch] process 3 of 4: was started by mpirun of Open MPI, but is linked with MPICH "
            "4.0.2, which counts it as rank 0 of 1; start it by the mpirun of the MPI it is linked "
            "with, or by `meshtorch launch -n P -- program`");
  EXPECT_THAT(world_complaint(read(kSrun + Variables{{"PMIX_RANK", "3"}}), 0, 1),
              AllOf(HasSubstr("process 3 of 6: was started by srun of Slurm"),
                    HasSubstr("try another PMI: `srun --mpi=pmix` or `--mpi=pmi2`")));
}

}  // namespace
}  // namespace meshtorch
