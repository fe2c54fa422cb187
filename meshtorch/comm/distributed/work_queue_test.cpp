// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/work_queue.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;

using Job = std::shared_ptr<WorkQueue::Job>;

Job job(std::function<void()> body) { return std::make_shared<WorkQueue::Job>(std::move(body)); }

Job added(WorkQueue& queue, std::function<void()> body, bool now = false) {
  Job result = job(std::move(body));
  queue.add(result, now);
  return result;
}

bool done_soon(const WorkQueue& queue, const Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  while (!queue.done(*job)) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(30)) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string complaint(WorkQueue& queue, const Job& job) {
  try {
    queue.wait(*job);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "did not throw";
}

// Both ways, some waited for at once, waited for in any order.
TEST(WorkQueue, RunsManyJobsInTheirOrderOneAtATime) {
  for (const bool background : {true, false}) {
    constexpr int kJobs = 2000;
    WorkQueue queue(background);
    std::vector<int> order;  // written without a lock: jobs do not overlap
    std::vector<Job> jobs;
    for (int i = 0; i < kJobs; ++i) {
      jobs.push_back(added(
          queue, [&order, i] { order.push_back(i); }, i % 7 == 0));
      if (i % 50 == 49) queue.wait(*jobs[static_cast<std::size_t>(i * 37 % (i + 1))]);
    }
    for (int i = kJobs; i-- > 0;) queue.wait(*jobs[static_cast<std::size_t>(i)]);
    ASSERT_EQ(order.size(), kJobs);
    for (int i = 0; i < kJobs; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(WorkQueue, RunsWhatNobodyWaitsFor) {
  WorkQueue queue(true);
  std::thread::id ran;
  const Job one = added(queue, [&] { ran = std::this_thread::get_id(); });
  EXPECT_TRUE(done_soon(queue, one));
  queue.wait(*one);
  EXPECT_NE(ran, std::this_thread::get_id());
  // Once more after the thread went back to sleep.
  EXPECT_TRUE(done_soon(queue, added(queue, [] {})));
}

TEST(WorkQueue, WithoutBackgroundJobsRunInTheThreadThatWaits) {
  std::vector<std::thread::id> ran;  // the queue's end adds one
  WorkQueue queue(false);
  const auto note = [&ran] { ran.push_back(std::this_thread::get_id()); };
  const Job first = added(queue, note), second = added(queue, note), third = added(queue, note);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(queue.done(*first));
  queue.wait(*second);
  EXPECT_TRUE(queue.done(*first));
  EXPECT_FALSE(queue.done(*third));
  EXPECT_THAT(ran, ElementsAre(std::this_thread::get_id(), std::this_thread::get_id()));
}

// `now` wakes nobody: the one who waits takes it.
TEST(WorkQueue, TheWaitingThreadTakesJobs) {
  WorkQueue queue(true);
  std::thread::id ran;
  const Job one = added(
      queue, [&] { ran = std::this_thread::get_id(); }, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(queue.done(*one));
  queue.wait(*one);
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(WorkQueue, WaitsForAJobThatTheOtherThreadIsAt) {
  WorkQueue queue(true);
  std::promise<void> started, go;
  std::atomic<bool> ended = false;
  const Job long_one = added(queue, [&] {
    started.set_value();
    go.get_future().wait();
    ended = true;
  });
  const Job behind = added(
      queue, [] {}, true);
  started.get_future().wait();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    go.set_value();
  });
  queue.wait(*behind);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(queue.done(*long_one));
  other.join();
}

TEST(WorkQueue, ThrowsWhatTheJobThrewAtEveryWait) {
  for (const bool background : {true, false}) {
    WorkQueue queue(background);
    const Job bad = added(queue, [] { throw std::runtime_error("no way"); });
    bool ran = false;
    const Job good = added(queue, [&ran] { ran = true; });
    queue.wait(*good);
    EXPECT_TRUE(ran) << "the queue goes on";
    EXPECT_EQ(complaint(queue, bad), "no way");
    EXPECT_EQ(complaint(queue, bad), "no way");
    EXPECT_TRUE(queue.done(*bad));
  }
}

TEST(WorkQueue, SeveralThreadsMayWait) {
  WorkQueue queue(true);
  constexpr int kThreads = 4, kJobs = 200;
  std::atomic<int> ran = 0;
  std::vector<Job> jobs;
  for (int i = 0; i < kJobs; ++i) jobs.push_back(added(queue, [&ran] { ++ran; }));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kJobs; ++i)
        queue.wait(*jobs[static_cast<std::size_t>((i * (2 * t + 1)) % kJobs)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, kJobs);
}

TEST(WorkQueue, DrainsAndRunsWhatIsLeftAtItsEnd) {
  for (const bool background : {true, false}) {
    int ran = 0;
    {
      WorkQueue queue(background);
      for (int i = 0; i < 100; ++i)
        added(
            queue, [&ran] { ++ran; }, i % 2 == 0);
      queue.drain();
      EXPECT_EQ(ran, 100);
      for (int i = 0; i < 100; ++i)
        added(
            queue, [&ran] { ++ran; }, i % 2 == 0);
    }
    EXPECT_EQ(ran, 200);
  }
}

// Whoever waits for a job waits for those before it too.
TEST(WorkQueue, TellsAJobWhetherSomebodyWaits) {
  WorkQueue queue(true);
  std::promise<bool> at_first;
  bool later = false;
  const Job aside = added(queue, [&] {
    at_first.set_value(queue.awaited());
    const auto begin = std::chrono::steady_clock::now();
    while (!(later = queue.awaited()) &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(30))
      std::this_thread::yield();
  });
  bool behind_it = false;
  const Job behind = added(
      queue, [&] { behind_it = queue.awaited(); }, true);
  EXPECT_FALSE(at_first.get_future().get()) << "the program does something else";
  queue.wait(*behind);
  EXPECT_TRUE(later);
  EXPECT_TRUE(behind_it) << "in the waiting thread";
}

// What a job holds is not kept as long as its handle is.
TEST(WorkQueue, LetsGoOfWhatADoneJobHeld) {
  WorkQueue queue(true);
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  const Job one = added(queue, [held = std::move(held)] {});
  queue.wait(*one);
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace meshtorch
