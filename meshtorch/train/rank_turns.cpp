// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_turns.h>

#include <algorithm>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// Ends a rank whose call failed elsewhere. Autograd's engine carries std::exceptions only.
class RankUnwound : public std::exception {
 public:
  const char* what() const noexcept override { return "another rank failed"; }
};

}  // namespace

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
      for (std::size_t rank = 0; rank < threads_.size(); ++rank) {
        if (!threads_[rank]->done) give_turn(rank);
        if (threads_[rank]->error) std::rethrow_exception(threads_[rank]->error);
      }
      serve();
    }
  } catch (...) {
    unwind();
    throw;
  }
  for (const auto& thread : threads_) thread->thread.join();
}

void RankTurns::give_turn(std::size_t rank) {
  Thread& thread = *threads_[rank];
  // It waits for its turn.
  if (!thread.thread.joinable()) thread.thread = std::thread([this, rank] { run_rank(rank); });
  if (options_.before_turn) options_.before_turn(rank);
  {
    std::unique_lock lock(mutex_);
    turn_ = rank;
    thread.wake.notify_one();
    back_.wait(lock, [&] { return turn_ == threads_.size(); });
  }
  if (options_.after_turn) options_.after_turn(rank);
}

void RankTurns::run_rank(std::size_t rank) {
  Thread& thread = *threads_[rank];
  {
    std::unique_lock lock(mutex_);  // what was written before the turn is seen
    thread.wake.wait(lock, [&] { return turn_ == rank; });
  }
  try {
    (*body_)(rank);
  } catch (...) {
    thread.error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  thread.done = true;
  turn_ = threads_.size();
  back_.notify_one();
}

void RankTurns::meet(std::size_t rank, Meeting& meeting) {
  Thread& thread = *threads_[rank];
  std::unique_lock lock(mutex_);
  if (!stopping_) {
    thread.waiting = &meeting;
    thread.last = meeting.what;
    turn_ = threads_.size();
    back_.notify_one();
    thread.wake.wait(lock, [&] { return turn_ == rank; });
    thread.waiting = nullptr;
  }
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
    if (!thread.thread.joinable()) continue;
    std::unique_lock lock(mutex_);
    if (!thread.done) {
      turn_ = rank;
      thread.wake.notify_one();
      back_.wait(lock, [&] { return thread.done; });
    }
    lock.unlock();
    thread.thread.join();
  }
}

}  // namespace meshtorch
