// SPDX-License-Identifier: Apache-2.0
//
// Jobs in the order in which they came, one at a time: by a thread of the queue's own while the program
// does something else, or by the thread that waits for one, whichever comes first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace meshtorch {

class WorkQueue {
 public:
  class Job {
   public:
    explicit Job(std::function<void()> body) : body_(std::move(body)) {}

   private:
    friend class WorkQueue;
    std::function<void()> body_;
    bool done_ = false;
    std::exception_ptr error_;
  };

  // Without `background` jobs run when they are waited for, in the waiting thread.
  explicit WorkQueue(bool background) : background_(background) {}
  ~WorkQueue();  // runs what is left
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // `now`: somebody will wait for it at once, no thread need be woken.
  void add(std::shared_ptr<Job> job, bool now);
  bool done(const Job& job) const;
  // Returns when the job is done; throws what it threw.
  void wait(const Job& job);
  void drain();
  // Whether somebody does nothing but wait for the job that runs, or for one behind it: a waiting thread
  // runs it, or sleeps meanwhile. For the job itself to ask.
  bool awaited() const { return !aside_ || waiting_ > 0; }

 private:
  template <class Until>
  void wait_until(std::unique_lock<std::mutex>& lock, Until until);
  void run_next(std::unique_lock<std::mutex>& lock);
  void work();

  const bool background_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool busy_ = false;
  bool awake_ = false;  // the thread is to take jobs
  bool ended_ = false;
  std::atomic<bool> aside_ = false;  // the queue's own thread runs a job
  std::atomic<int> waiting_ = 0;     // threads in wait() or drain()
  std::thread thread_;
};

}  // namespace meshtorch
