// SPDX-License-Identifier: Apache-2.0
//
// Jobs whose last process reads other data than it should (misread.cpp): none trains on, and every
// process says why.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

#include "job.h"

namespace meshtorch {
namespace {

using testing::HasSubstr;

Outcome run(const std::string& kind, int processes) {
  Job job({.processes = processes, .arguments = {kind}, .timeout = 60});
  Outcome outcome = job.finish(80);
  EXPECT_TRUE(job.left_over().empty());
  return outcome;
}

TEST(Misread, NothingIsFine) {
  for (const int processes : {2, 4}) {
    const Outcome outcome = run("nothing", processes);
    EXPECT_EQ(outcome.status, 0) << outcome.all();
    EXPECT_TRUE(outcome.err.empty()) << outcome.all();
    ASSERT_EQ(outcome.out.size(), 1u) << outcome.all();
    EXPECT_THAT(outcome.out[0], HasSubstr("[0] gradient "));
  }
}

constexpr const char* kDiffer =
    "[device_put] part: processes that hold the same elements of [4, 3] gave different values; "
    "read "
    "the same rows on each";

TEST(Misread, OtherValuesThanTheOtherReplica) {
  const Outcome outcome = run("other-inputs", 2);
  EXPECT_GT(outcome.status, 0);
  for (const int rank : {0, 1}) EXPECT_THAT(outcome.err_of(rank), HasSubstr(kDiffer));
}

// Two of the four hold the rows in question; the others hear of it.
TEST(Misread, ReachesTheProcessesWithOtherRows) {
  const Outcome outcome = run("other-inputs", 4);
  EXPECT_GT(outcome.status, 0);
  for (const int rank : {2, 3}) EXPECT_THAT(outcome.err_of(rank), HasSubstr(kDiffer));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(outcome.err_of(rank), HasSubstr("failed: "));
    EXPECT_THAT(outcome.err_of(rank), HasSubstr(kDiffer));
  }
}

TEST(Misread, OtherSizes) {
  const Outcome width = run("other-width", 2), rows = run("other-rows", 2);
  EXPECT_GT(width.status, 0);
  EXPECT_GT(rows.status, 0);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(width.err_of(rank), HasSubstr("process 0: device_put of parts of Float[4, 3]"));
    EXPECT_THAT(width.err_of(rank), HasSubstr("process 1: device_put of parts of Float[4, 2]"));
    EXPECT_THAT(rows.err_of(rank), HasSubstr("process 0: device_put of parts of Long[4]"));
    EXPECT_THAT(rows.err_of(rank), HasSubstr("process 1: device_put of parts of Long[3]"));
  }
}

TEST(Misread, AFileThatOneCannotRead) {
  const Outcome outcome = run("no-file", 2);
  EXPECT_GT(outcome.status, 0);
  EXPECT_THAT(outcome.err_of(1), HasSubstr("the file is gone"));
  EXPECT_THAT(outcome.err_of(0), HasSubstr("process 1 failed: "));
}

TEST(Misread, IsNotLookedForWhereNobodyAsks) {
  setenv("MISREAD_UNCHECKED", "1", 1);
  const Outcome outcome = run("other-inputs", 2);
  unsetenv("MISREAD_UNCHECKED");
  EXPECT_EQ(outcome.status, 0) << outcome.all();
}

}  // namespace
}  // namespace meshtorch
