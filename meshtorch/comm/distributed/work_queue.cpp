// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/comm/distributed/work_queue.h>

namespace meshtorch {

WorkQueue::~WorkQueue() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::add(std::shared_ptr<Job> job, bool now) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (now || !background_) return;
    awake_ = true;
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

bool WorkQueue::done(const Job& job) const {
  const std::lock_guard lock(mutex_);
  return job.done_;
}

template <class Until>
void WorkQueue::wait_until(std::unique_lock<std::mutex>& lock, Until until) {
  ++waiting_;
  while (!until()) {
    if (busy_) {
      changed_.wait(lock);
    } else {
      run_next(lock);
    }
  }
  --waiting_;
}

void WorkQueue::wait(const Job& job) {
  std::unique_lock lock(mutex_);
  wait_until(lock, [&] { return job.done_; });
  if (job.error_) std::rethrow_exception(job.error_);
}

void WorkQueue::drain() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [this] { return !busy_ && jobs_.empty(); });
}

void WorkQueue::run_next(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  busy_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    job->body_();
  } catch (...) {
    error = std::current_exception();
  }
  job->body_ = nullptr;  // what it holds goes with it
  lock.lock();
  job->error_ = error;
  job->done_ = true;
  busy_ = false;
  changed_.notify_all();
}

void WorkQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ended_ || (awake_ && !busy_ && !jobs_.empty()); });
    if (ended_) return;
    aside_ = true;
    run_next(lock);
    aside_ = false;
    if (jobs_.empty()) awake_ = false;
  }
}

}  // namespace meshtorch
