// SPDX-License-Identifier: Apache-2.0
//
// Jobs whose last process does something else than the others (disagree.cpp): each must end soon, with
// a status, and every process that can still speak must say what happened, and to whom.
#include <cstdlib>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

#include "job.h"

namespace meshtorch {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double kGrace = 20;  // seconds for starting and ending, on a busy machine

struct Case {
  const char* kind;
  const char* others;  // what a message must say that all but the last did
  const char* last;    // what the last did
};

std::ostream& operator<<(std::ostream& out, const Case& value) { return out << value.kind; }

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.kind;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string others_of(int processes) {
  std::string names = "process 0";
  if (processes > 2) names = "processes 0";
  for (int process = 1; process < processes - 1; ++process) names += text(", ", process);
  return names;
}

Outcome run(const std::string& kind, int processes, double timeout = 60, int steps = 3) {
  Job job({.processes = processes, .arguments = {kind, std::to_string(steps)}, .timeout = timeout});
  Outcome outcome = job.finish(timeout + kGrace);
  EXPECT_GT(outcome.status, 0) << outcome.all();
  EXPECT_TRUE(job.left_over().empty());
  return outcome;
}

// Every process gives the same account.
void expect_difference(const Case& expected, int processes, int steps = 3) {
  const Outcome outcome = run(expected.kind, processes, 60, steps);
  const int last = processes - 1;
  for (int rank = 0; rank < processes; ++rank) {
    const std::string said = outcome.err_of(rank);
    EXPECT_THAT(said, HasSubstr(text("[communicator] process ", rank, " of ", processes)));
    EXPECT_THAT(said, HasSubstr("the processes differ at place "));
    EXPECT_THAT(said, HasSubstr(text(others_of(processes), ": ", expected.others)));
    EXPECT_THAT(said, HasSubstr(text(" process ", last, ": ", expected.last)));
    EXPECT_THAT(said, Not(HasSubstr(" failed: ")));
    EXPECT_THAT(said, Not(HasSubstr("does not answer")));
    EXPECT_THAT(said, Not(HasSubstr("is behind")));
  }
}

class Differences : public testing::TestWithParam<Case> {};

TEST_P(Differences, AreNamedByBoth) { expect_difference(GetParam(), 2); }

class DifferencesOfThree : public testing::TestWithParam<Case> {};

TEST_P(DifferencesOfThree, AreNamedByAll) { expect_difference(GetParam(), 3); }

// More has happened than a report holds.
TEST(Differences, AfterAWhile) {
  expect_difference({"collective", "all-gather over dp", "all-to-all over dp"}, 2, 60);
}

INSTANTIATE_TEST_SUITE_P(
    Collectives, Differences,
    testing::Values(Case{"collective", "all-gather over dp", "all-to-all over dp"},
                    Case{"axis", "all-gather over dp", "all-gather over tp"},
                    Case{"reduction-axes", "all-reduce over dp of", "all-reduce over dp+tp of"},
                    Case{"dim",
                         "reduce-scatter over dp of (dp=2, tp=2), reshard, Float of 2 dims, dim 0",
                         "reduce-scatter over dp of (dp=2, tp=2), reshard, Float of 2 dims, dim 1"},
                    Case{"dtype", "all-gather over dp of (dp=2, tp=2), reshard, Float",
                         "all-gather over dp of (dp=2, tp=2), reshard, Double"},
                    Case{"op", "all-reduce over dp of (dp=2, tp=2), aten::relu",
                         "all-reduce over dp of (dp=2, tp=2), aten::exp"},
                    Case{"scope", "all-gather over dp of (dp=2, tp=2), full in train,",
                         "all-gather over dp of (dp=2, tp=2), full in evaluate,"},
                    Case{"order",
                         "all-gather over dp of (dp=2, tp=2), full, Float of 2 dims, dim 0",
                         "all-gather over dp of (dp=2, tp=2), full, Float of 2 dims, dim 1"},
                    Case{"one-more", "device_put of Float[12, 8] to P(dp)", "all-to-all over dp"},
                    Case{"one-fewer", "all-to-all over dp", "device_put of Float[12, 8] to P(dp)"},
                    Case{"unread", "all-reduce over dp of (dp=2, tp=2), Float",
                         "broadcast over dp of (dp=2, tp=2), Float"},
                    Case{"reduction", "all-reduce over dp of (dp=2, tp=2), Float of 1 dims;",
                         "all-reduce over dp of (dp=2, tp=2), Float of 1 dims, max;"},
                    Case{"one-reads", "device_put of Float[12, 8] to P(dp)",
                         "all-reduce over dp of (dp=2, tp=2), aten::_local_scalar_dense"},
                    Case{"no-backward", "all-reduce over dp of (dp=2, tp=2), aten::add_",
                         "device_put of Float[12, 8] to P(dp)"},
                    Case{"return", "device_put of Float[12, 8] to P(dp)", "the end of the Runtime"},
                    Case{"inside-runtime-error", "device_put of Float[12, 8] to P(dp)",
                         "the end of the Runtime"},
                    Case{"uncaught-collective", "all-gather over dp", "all-to-all over dp"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Inputs, Differences,
    testing::Values(Case{"shape", "device_put of Float[12, 8] to P(dp)",
                         "device_put of Float[12, 6] to P(dp)"},
                    Case{"values", "device_put of Float[12] to P(dp) on (dp=2, tp=2), checksum",
                         "device_put of Float[12] to P(dp) on (dp=2, tp=2), checksum"},
                    Case{"spec", "device_put of Float[12, 8] to P(dp)",
                         "device_put of Float[12, 8] to P(-, dp)"},
                    Case{"parts-shape", "device_put of parts of Float[12, 8]",
                         "device_put of parts of Float[24, 8]"},
                    Case{"generator", "device_put of Float[12] to P(dp) on (dp=2, tp=2), checksum",
                         "device_put of Float[12] to P(dp) on (dp=2, tp=2), checksum"},
                    Case{"microbatches", "device_put of Long[6]", "device_put of Long[4]"},
                    Case{"mesh-shape", "device_put of Float[12, 8] to P(dp) on (dp=2, tp=2)",
                         "device_put of Float[12, 8] to P(dp) on (dp=2)"},
                    Case{"mesh-names", "device_put of Float[12, 8] to P(dp) on (dp=2, tp=2)",
                         "device_put of Float[12, 8] to P(data) on (data=2, tp=2)"},
                    Case{"mesh-order", "device_put of Float[12, 8] to P(dp) on (dp=2, tp=2)",
                         "device_put of Float[12, 8] to P(tp) on (tp=2, dp=2)"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Options, Differences,
    testing::Values(
        Case{"devices", "Runtime of 2 devices a process", "Runtime of 3 devices a process"},
        Case{"mode", "Runtime: mode automatic", "Runtime: mode strict"},
        Case{"threads", "Runtime: mode automatic, threads 1", "Runtime: mode automatic, threads 2"},
        Case{"seed-option", "manual_seed of 0", "manual_seed of 5"},
        Case{"seed", "manual_seed of 7", "manual_seed of 8"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Some, DifferencesOfThree,
    testing::Values(Case{"collective", "all-gather over dp", "all-to-all over dp"},
                    Case{"devices", "Runtime of 2 devices a process",
                         "Runtime of 3 devices a process"},
                    Case{"one-more", "device_put of Float[12, 8] to P(dp)", "all-to-all over dp"},
                    Case{"return", "device_put of Float[12, 8] to P(dp)", "the end of the Runtime"},
                    Case{"seed", "manual_seed of 7", "manual_seed of 8"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(Draws, Differences,
                         testing::Values(Case{"draw", "device_put of Float[12, 8] to P(dp)",
                                              "a random draw"}),
                         case_name);

// Sizes that may differ between groups are no part of the program: the two sides of a message say both.
TEST(Shards, OfOtherShapes) {
  const Outcome outcome = run("shape-of-shards", 2);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string said = outcome.err_of(rank);
    EXPECT_THAT(said, HasSubstr("(all-gather over dp of (dp=2, tp=2), reshard,"));
    EXPECT_THAT(said, HasSubstr("process 0 expected [6, 4] Float"));
    EXPECT_THAT(said, HasSubstr("process 1 expected [6, 2] Float"));
  }
}

TEST(Parts, OfOtherValues) {
  const Outcome outcome = run("parts-values", 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(outcome.err_of(rank),
                HasSubstr("[device_put] part: processes that hold the same elements of [12] gave "
                          "different values; read the same rows on each"));
  }
}

// What the last process says of its own failure, and what the others hear of it.
struct Failure {
  const char* kind;
  const char* own;
  const char* heard;
  int status;  // of the job
  int processes = 2;
};

std::ostream& operator<<(std::ostream& out, const Failure& value) { return out << value.kind; }

class Failures : public testing::TestWithParam<Failure> {};

TEST_P(Failures, ReachTheOthers) {
  const auto& [kind, own, heard, status, processes] = GetParam();
  const Outcome outcome = run(kind, processes);
  const int last = processes - 1;
  EXPECT_EQ(outcome.status, status) << outcome.all();  // of the one that failed
  EXPECT_THAT(outcome.err.back(), StartsWith(text("[launch] rank ", last, ": ")));
  EXPECT_THAT(outcome.err_of(last), HasSubstr(own));
  for (int rank = 0; rank < last; ++rank) {
    const std::string said = outcome.err_of(rank);
    EXPECT_THAT(said, HasSubstr(text("[communicator] process ", rank, " of ", processes)));
    EXPECT_THAT(said, HasSubstr(text("process ", last, " failed: ", heard, "\n")));
    EXPECT_THAT(said, Not(HasSubstr("differ at")));
    EXPECT_THAT(said, Not(HasSubstr("does not answer")));
  }
}

constexpr const char* kMisuse =
    "[reshard] x dim 0: axis \"nowhere\" is not an axis of mesh (dp=2, tp=2); use one of: dp, tp";
constexpr const char* kFile = "the file is gone";
constexpr const char* kExit = "the program called exit() with its Runtime alive";
constexpr const char* kOther = "terminated by an exception that is no std::exception";
constexpr const char* kThreads =
    "[Runtime] threads: got -1, expected at least 1, or 0 for an equal share; give the number of "
    "threads of an op";
constexpr const char* kLatestThreads =
    "an exception left the program; its latest error: [Runtime] threads: got -1, expected at least "
    "1, "
    "or 0 for an equal share; give the number of threads of an op";
constexpr int kAborted = 128 + 6;
constexpr const char* kCaught = "an exception left the program";
constexpr const char* kLatest =
    "an exception left the program; its latest error: [reshard] x dim 0: axis \"nowhere\" is not "
    "an "
    "axis of mesh (dp=2, tp=2); use one of: dp, tp";

INSTANTIATE_TEST_SUITE_P(
    Of, Failures,
    testing::Values(Failure{"uncaught-error", kMisuse, kMisuse, kAborted},
                    Failure{"uncaught-runtime-error", kFile, kFile, kAborted},
                    Failure{"uncaught-runtime-error", kFile, kFile, kAborted, 3},
                    Failure{"other-exception", kOther, kOther, kAborted},
                    Failure{"error", kMisuse, kLatest, 3},
                    Failure{"bad-threads", kThreads, kLatestThreads, 3},
                    Failure{"runtime-error", kFile, kCaught, 3},
                    Failure{"stale-failure", kFile, kLatest, 3}, Failure{"exit", "", kExit, 1},
                    Failure{"exit-7", "", kExit, 7}, Failure{"exit-7", "", kExit, 7, 3}),
    [](const auto& info) {
      return case_name({{info.param.kind, "", ""}, info.index}) + "_of_" +
             std::to_string(info.param.processes);
    });

TEST(Failures, OfTorchComeWithItsMessage) {
  const Outcome outcome = run("uncaught-torch-error", 2);
  EXPECT_THAT(outcome.err_of(1), HasSubstr("inconsistent tensor size"));
  EXPECT_THAT(outcome.err_of(0), HasSubstr("process 1 failed: inconsistent tensor size"));
}

TEST(Failures, AfterAWhile) {
  EXPECT_THAT(run("uncaught-error", 2, 60, 60).err_of(0),
              HasSubstr(text("process 1 failed: ", kMisuse, "\n")));
}

TEST(Failures, BeforeThereIsARuntime) {
  const Outcome outcome = run("before", 2);
  EXPECT_EQ(outcome.err_of(1), text(kFile, "\n"));
  EXPECT_EQ(outcome.err.back(),
            "[launch] rank 1: exited with status 3; all processes of the job were ended");
}

// One that does not answer: nobody can know why, only who.
void expect_time_out(const std::string& kind, int processes) {
  constexpr double kTimeout = 2;
  const Outcome outcome = run(kind, processes, kTimeout);
  EXPECT_GT(outcome.seconds, kTimeout);
  for (int rank = 0; rank < processes - 1; ++rank) {
    const std::string said = outcome.err_of(rank);
    EXPECT_THAT(said, HasSubstr("waited 2 s for the others (the time-out)"));
    EXPECT_THAT(said, HasSubstr(text("process ", processes - 1, " does not answer: dead, stuck")));
    EXPECT_THAT(said, HasSubstr(text("process ", rank, " of ", processes, ", at place ")));
    EXPECT_THAT(said, HasSubstr("(all-gather over dp"));
    EXPECT_THAT(said, Not(HasSubstr("differ at")));
  }
  EXPECT_EQ(outcome.err_of(processes - 1), "");
}

TEST(TimeOut, OfOneThatStalls) { expect_time_out("stall", 2); }
TEST(TimeOut, OfOneOfThreeThatStalls) { expect_time_out("stall", 3); }
TEST(TimeOut, OfOneThatIsStopped) { expect_time_out("stopped", 2); }

// Deaths are the launcher's to tell: the others are ended at once.
void expect_death(const std::string& kind, int status, const std::string& how) {
  const Outcome outcome = run(kind, 2);
  EXPECT_EQ(outcome.status, status) << outcome.all();
  EXPECT_THAT(outcome.err.back(), testing::StrEq("[launch] rank 1: was ended by " + how +
                                                 "; all processes of the job were ended"));
}

TEST(Death, ByAbort) { expect_death("abort", 128 + 6, "signal 6 (Aborted)"); }
TEST(Death, ByACrash) { expect_death("crash", 128 + 11, "signal 11 (Segmentation fault)"); }
TEST(Death, ByKill) { expect_death("killed", 128 + 9, "signal 9 (Killed)"); }

// Neither its exit handlers nor MPI's end ran: mpirun notices.
TEST(Death, ByAQuickExit) {
  EXPECT_THAT(run("quick-exit", 2).all(), HasSubstr("process rank 1 with PID"));
}

TEST(Agreement, EndsWell) {
  Job job({.processes = 3, .arguments = {"train", "5"}});
  const Outcome outcome = job.finish(60);
  EXPECT_EQ(outcome.status, 0) << outcome.all();
  EXPECT_TRUE(outcome.err.empty()) << outcome.all();
}

}  // namespace
}  // namespace meshtorch
