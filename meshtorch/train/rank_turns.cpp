// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_turns.h>

#include <algorithm>
#include <deque>
#include <thread>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// Ends a rank whose call failed elsewhere. Autograd's engine carries std::exceptions only.
class RankUnwound : public std::exception {
 public:
  const char* what() const noexcept override { return "another rank failed"; }
};

}  // namespace

struct RankTurns::Task {
  std::function<void()> run;
  bool done = false;
};

// Threads that are kept: to make one, with all that libtorch has in each, takes longer than many ops.
class RankTurns::Workers {
 public:
  // Never destroyed: a rank may end the program.
  static Workers& get() {
    static auto& workers = *new Workers;
    return workers;
  }

  std::shared_ptr<Task> start(std::function<void()> run) {
    auto task = std::make_shared<Task>(Task{std::move(run)});
    const std::lock_guard lock(mutex_);
    if (open_.size() >= idle_) std::thread([this] { work(); }).detach();
    open_.push_back(task);
    work_.notify_one();
    return task;
  }

  void join(const Task& task) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return task.done; });
  }

 private:
  [[noreturn]] void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      work_.wait(lock, [&] { return !open_.empty(); });
      --idle_;
      const std::shared_ptr<Task> task = std::move(open_.front());
      open_.pop_front();
      lock.unlock();
      task->run();
      task->run = nullptr;
      lock.lock();
      task->done = true;
      finished_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, finished_;
  std::deque<std::shared_ptr<Task>> open_;
  std::size_t idle_ = 0;
};

RankTurns::RankTurns(Options options) : options_(std::move(options)), turn_(options_.names.size()) {
  for (std::size_t rank = 0; rank < options_.names.size(); ++rank)
    threads_.push_back(std::make_unique<Thread>());
}

RankTurns::~RankTurns() = default;

bool RankTurns::all_done() const {
  return std::ranges::all_of(threads_, [](const auto& thread) { return thread->done; });
}

void RankTurns::run(const std::function<void(std::size_t rank)>& body) {
  body_ = &body;
  try {
    while (!all_done()) {
      run_round();
      for (const auto& thread : threads_) {
        if (thread->error) std::rethrow_exception(thread->error);
      }
      serve();
    }
  } catch (...) {
    unwind();
    throw;
  }
  for (const auto& thread : threads_) Workers::get().join(*thread->task);
}

// From this rank on, the first that is not done; how many there are: none.
std::size_t RankTurns::next_after(std::size_t rank) const {
  while (rank < threads_.size() && threads_[rank]->done) ++rank;
  return rank;
}

void RankTurns::begin_turn(std::size_t rank) {
  Thread& thread = *threads_[rank];
  // It waits for its turn.
  if (thread.task == nullptr) thread.task = Workers::get().start([this, rank] { run_rank(rank); });
  if (options_.before_turn) options_.before_turn(rank);
}

// Whose turn is next; begun.
std::size_t RankTurns::end_turn(std::size_t rank) {
  if (stopping_) return threads_.size();
  try {
    if (options_.after_turn) options_.after_turn(rank);
    const std::size_t next = threads_[rank]->error ? threads_.size() : next_after(rank + 1);
    if (next < threads_.size()) begin_turn(next);
    return next;
  } catch (...) {
    threads_[rank]->error = std::current_exception();
    return threads_.size();
  }
}

// Holding the mutex.
void RankTurns::wake(std::size_t rank) {
  turn_ = rank;
  (rank == threads_.size() ? back_ : threads_[rank]->wake).notify_one();
}

void RankTurns::run_round() {
  const std::size_t first = next_after(0);
  begin_turn(first);
  std::unique_lock lock(mutex_);
  wake(first);
  back_.wait(lock, [&] { return turn_ == threads_.size(); });
}

void RankTurns::run_rank(std::size_t rank) {
  Thread& thread = *threads_[rank];
  {
    std::unique_lock lock(mutex_);  // what was written before the turn is seen
    thread.wake.wait(lock, [&] { return turn_ == rank; });
  }
  try {
    if (!stopping_) (*body_)(rank);
  } catch (...) {
    thread.error = std::current_exception();
  }
  thread.done = true;
  const std::size_t next = end_turn(rank);
  const std::lock_guard lock(mutex_);
  wake(next);
}

void RankTurns::meet(std::size_t rank, Meeting& meeting) {
  if (stopping_) throw RankUnwound();
  Thread& thread = *threads_[rank];
  thread.waiting = &meeting;
  thread.last = meeting.what;
  const std::size_t next = end_turn(rank);
  std::unique_lock lock(mutex_);
  wake(next);
  thread.wake.wait(lock, [&] { return turn_ == rank; });
  thread.waiting = nullptr;
  if (stopping_) throw RankUnwound();
}

void RankTurns::serve() {
  if (all_done()) return;
  check_same();
  std::vector<Meeting*> meetings;
  for (const auto& thread : threads_) meetings.push_back(thread->waiting);
  options_.serve(meetings);
}

std::string RankTurns::did(std::size_t rank) const {
  const Thread& thread = *threads_[rank];
  if (!thread.done) return "asked for " + thread.last;
  return thread.last.empty() ? "returned and asked for nothing"
                             : "returned, after it had asked for " + thread.last;
}

void RankTurns::check_same() const {
  const auto asks = [](const auto& thread) { return !thread->done; };
  const auto first =
      static_cast<std::size_t>(std::ranges::find_if(threads_, asks) - threads_.begin());
  for (std::size_t rank = 0; rank < threads_.size(); ++rank) {
    if (!threads_[rank]->done && threads_[rank]->last == threads_[first]->last) continue;
    const auto [a, b] = std::minmax(rank, first);
    fail({.op = options_.op,
          .where = "rank (" + options_.names[b] + ")",
          .what = did(b) + ", rank (" + options_.names[a] + ") " + did(a),
          .remedy =
              "let every rank call the same collectives in one order, on tensors of one shape "
              "and dtype"});
  }
}

void RankTurns::unwind() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (std::size_t rank = 0; rank < threads_.size(); ++rank) {
    Thread& thread = *threads_[rank];
    if (thread.task == nullptr) continue;
    if (!thread.done) {
      std::unique_lock lock(mutex_);
      wake(rank);
      back_.wait(lock, [&] { return turn_ == threads_.size(); });
    }
    Workers::get().join(*thread.task);
  }
}

}  // namespace meshtorch
