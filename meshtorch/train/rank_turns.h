// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of which exactly one runs at a time. A rank keeps its turn until it asks for
// something that all must ask for (meet) or is done, and hands its turn to the next one. When all wait,
// the thread that called run() serves what they asked for, and they go on. So a program of ranks runs in
// one order, whatever the machine does, and what the ranks share needs no lock. Internal to local_map.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace meshtorch {

class RankTurns {
 public:
  // What a rank asks for.
  struct Meeting {
    std::string what;  // in words: must be the same on every rank
  };

  struct Options {
    std::string op;                  // who speaks in messages
    std::vector<std::string> names;  // of the ranks: "dp=0, tp=1"
    // In the thread that called run().
    std::function<void(const std::vector<Meeting*>&)> serve;  // by rank
    // In any of the threads.
    std::function<void(std::size_t rank)> before_turn, after_turn;
  };

  explicit RankTurns(Options options);
  ~RankTurns();
  RankTurns(const RankTurns&) = delete;
  RankTurns& operator=(const RankTurns&) = delete;

  // Runs body(rank) for each rank, once, and returns when all are done. What a rank, or serve, throws
  // ends all ranks (in those that wait, meet throws) and is thrown here; none is left running. (Their
  // threads are kept for later calls.) Throws Error where ranks ask for different things, or one is done
  // while another waits.
  void run(const std::function<void(std::size_t rank)>& body);

  // In a rank's thread: returns when the meeting was served.
  void meet(std::size_t rank, Meeting& meeting);

 private:
  struct Task;  // rank_turns.cpp
  struct Thread {
    std::shared_ptr<Task> task;  // null: not begun
    std::condition_variable wake;
    Meeting* waiting = nullptr;
    std::string last;  // what it asked for last
    bool done = false;
    std::exception_ptr error;
  };
  class Workers;

  bool all_done() const;
  std::size_t next_after(std::size_t rank) const;
  void begin_turn(std::size_t rank);
  std::size_t end_turn(std::size_t rank);
  void wake(std::size_t rank);
  void run_round();
  void run_rank(std::size_t rank);
  void serve();
  void check_same() const;
  std::string did(std::size_t rank) const;
  void unwind() noexcept;

  const Options options_;
  const std::function<void(std::size_t)>* body_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::mutex mutex_;
  std::condition_variable back_;  // the turn came back
  std::size_t turn_;              // a rank, or how many there are: run()'s own
  bool stopping_ = false;
};

}  // namespace meshtorch
