// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

#include <meshtorch/base/progress.h>

namespace meshtorch {
namespace {

class ProgressTest : public testing::Test {
 protected:
  ProgressOptions options(std::int64_t steps, bool terminal) {
    return {.steps = steps, .terminal = terminal, .clock = [this] { return time_; }};
  }
  double time_ = 100;
  std::ostringstream out_;
};

TEST(FormatDuration, MinutesAndHours) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(-1), "0:00");
}

TEST_F(ProgressTest, PlainLines) {
  Progress progress(options(100, false), out_);
  for (int step = 1; step <= 100; ++step) {
    time_ += 0.5;
    progress.update(step, 2.5, 1024);
    if (step == 6) {
      EXPECT_EQ(out_.str(),
                "step 1/100  loss 2.5000  2,048 tokens/s  0:50 left\n"
                "step 5/100  loss 2.5000  2,048 tokens/s  0:48 left\n");
    }
  }
  const std::string lines = out_.str();
  EXPECT_EQ(std::ranges::count(lines, '\n'), 21);
  EXPECT_TRUE(out_.str().ends_with("step 100/100  loss 2.5000  2,048 tokens/s  0:00 left\n"));
}

TEST_F(ProgressTest, TerminalRewritesOneLine) {
  Progress progress(options(4, true), out_);
  time_ += 1;
  progress.update(1, 3.25, 10);
  EXPECT_EQ(out_.str(), "\r[=====>              ] 1/4  loss 3.2500  10 tokens/s  0:03 left\x1b[K");
  out_.str("");
  progress.note("validation 3.1");
  EXPECT_EQ(out_.str(), "\r\x1b[Kvalidation 3.1\n");
  out_.str("");
  time_ += 1;
  progress.update(4, 3, 10);
  EXPECT_EQ(out_.str(),
            "\r[====================] 4/4  loss 3.0000  10 tokens/s  0:00 left\x1b[K\n");
}

TEST_F(ProgressTest, FirstStepIsForgotten) {
  Progress progress(options(10, false), out_);
  time_ += 60;
  progress.update(1, 1, 100);
  time_ += 1;
  progress.update(2, 1, 100);
  EXPECT_DOUBLE_EQ(progress.tokens_per_second(), 100);
}

TEST_F(ProgressTest, PausedTimeIsInNoRate) {
  Progress progress(options(10, false), out_);
  time_ += 1;
  progress.update(1, 1, 100);
  progress.pause();
  time_ += 50;
  progress.resume();
  time_ += 1;
  progress.update(2, 1, 100);
  EXPECT_DOUBLE_EQ(progress.tokens_per_second(), 100);
}

}  // namespace
}  // namespace meshtorch
