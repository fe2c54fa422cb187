// SPDX-License-Identifier: Apache-2.0
//
// A random process of a training job is killed at a random moment, from its start to its end. The job
// must end soon, say who it was and of what, and leave nothing behind.
//
//   MESHTORCH_TEST_KILLS=50     how often, for each way to start a job
//   MESHTORCH_TEST_SEED=1234    of the moments; printed
#include <signal.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/cli/mpiexec.h>

#include "job.h"

namespace meshtorch {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kTimeout = 10;
constexpr double kGrace = 5;  // of the launcher and mpirun, on a busy machine

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Killing {
  JobOptions job;
  int rank = 0;
  double after = 0;  // seconds since the process is there
};

std::ostream& operator<<(std::ostream& out, const Killing& value) {
  return out << "rank " << value.rank << " of " << value.job.processes << " after " << value.after
             << " s";
}

pid_t wait_for(Job& job, int rank) {
  while (job.running()) {
    if (const auto pid = job.process(rank)) return *pid;
    sleep_for(0.005);
  }
  return 0;
}

class Kill : public testing::Test {
 protected:
  // Nothing: the process had ended before.
  std::optional<Outcome> execute(const Killing& killing) {
    Job job(killing.job);
    const pid_t victim = wait_for(job, killing.rank);
    if (victim == 0) return std::nullopt;
    sleep_for(killing.after);
    if (kill(victim, SIGKILL) != 0) return std::nullopt;
    const double killed = job.seconds();
    Outcome outcome = job.finish(killed + kTimeout + kGrace);
    if (outcome.status == 0) return std::nullopt;
    outcome.seconds -= killed;
    for (int i = 0; i < 100 && !job.left_over().empty(); ++i) sleep_for(0.01);
    EXPECT_TRUE(job.left_over().empty());
    return outcome;
  }

  // From when a process is there to its end, undisturbed.
  double length_of(const JobOptions& options) {
    Job job(options);
    wait_for(job, 0);
    const double begin = job.seconds();
    const Outcome outcome = job.finish(100);
    EXPECT_EQ(outcome.status, 0) << outcome.all();
    return outcome.seconds - begin;
  }

  template <class Check>
  void repeat(bool launch, Check check) {
    const std::uint64_t kills = number_of("MESHTORCH_TEST_KILLS", 5);
    const std::uint64_t seed = number_of("MESHTORCH_TEST_SEED", std::random_device{}());
    std::cout << "MESHTORCH_TEST_SEED=" << seed << std::endl;
    std::mt19937_64 random(seed);
    JobOptions job{.arguments = {"train", "40"}, .timeout = kTimeout, .launch = launch};
    const double length = length_of(job);
    std::uint64_t done = 0;
    for (std::uint64_t tries = 0; done < kills && tries < 3 * kills; ++tries) {
      job.processes = static_cast<int>(2 + random() % 3);
      const Killing killing{
          .job = job,
          .rank = static_cast<int>(random() % static_cast<std::uint64_t>(job.processes)),
          .after = std::uniform_real_distribution<double>(0, length * job.processes / 2)(random)};
      const auto outcome = execute(killing);
      if (!outcome) continue;
      ++done;
      std::cout << killing << ": ended in " << outcome->seconds << " s" << std::endl;
      SCOPED_TRACE(text(killing, "\n", outcome->all()));
      EXPECT_GT(outcome->status, 0);
      check(killing, *outcome);
    }
    EXPECT_EQ(done, kills);
  }
};

// Whoever says something of another process says it of the one that was killed.
void expect_no_other_blamed(const Killing& killing, const Outcome& outcome) {
  for (int other = 0; other < killing.job.processes; ++other) {
    if (other == killing.rank) continue;
    EXPECT_THAT(outcome.all(), Not(HasSubstr(text("process ", other, " failed"))));
    EXPECT_THAT(outcome.all(), Not(HasSubstr(text("process ", other, " does not answer"))));
    EXPECT_THAT(outcome.all(), Not(HasSubstr(text("rank ", other, ":"))));
  }
  EXPECT_THAT(outcome.all(), Not(HasSubstr("the processes differ")));
}

TEST_F(Kill, UnderLaunch) {
  repeat(true, [](const Killing& killing, const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 128 + SIGKILL);
    ASSERT_FALSE(outcome.err.empty());
    EXPECT_EQ(outcome.err.back(), text("[launch] rank ", killing.rank,
                                       ": was ended by signal 9 (Killed); all processes of the "
                                       "job were ended"));
    expect_no_other_blamed(killing, outcome);
  });
}

TEST_F(Kill, UnderPlainMpirun) {
  if (find_mpiexec("", MPIEXEC).kind != MpiexecKind::open_mpi)
    GTEST_SKIP() << "built with another MPI, whose mpiexec speaks otherwise";
  repeat(false, [](const Killing& killing, const Outcome& outcome) {
    EXPECT_THAT(outcome.all(), HasSubstr(text("process rank ", killing.rank, " with PID ")));
    EXPECT_THAT(outcome.all(), HasSubstr("exited on signal 9 (Killed)"));
    expect_no_other_blamed(killing, outcome);
  });
}

}  // namespace
}  // namespace meshtorch
