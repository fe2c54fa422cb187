// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_turns.h>

#include <gtest/gtest.h>

#include <stdexcept>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

// Ranks that sum what each gives.
struct Sum : RankTurns::Meeting {
  int value = 0;
};

class Ranks {
 public:
  explicit Ranks(std::size_t n) : turns(options(n)) {}

  int sum(std::size_t rank, int value, const std::string& what = "sum") {
    Sum sum;
    sum.what = what;
    sum.value = value;
    turns.meet(rank, sum);
    return sum.value;
  }

  std::string message(const std::function<void(std::size_t)>& body) {
    try {
      turns.run(body);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  std::string turns_taken;
  RankTurns turns;

 private:
  RankTurns::Options options(std::size_t n) {
    RankTurns::Options options{.op = "test", .serve = [](const auto& meetings) {
                                 int total = 0;
                                 for (auto* m : meetings) total += static_cast<Sum*>(m)->value;
                                 for (auto* m : meetings) static_cast<Sum*>(m)->value = total;
                               }};
    for (std::size_t rank = 0; rank < n; ++rank) options.names.push_back(std::to_string(rank));
    options.before_turn = [this](std::size_t rank) { turns_taken += "(" + std::to_string(rank); };
    options.after_turn = [this](std::size_t) { turns_taken += ")"; };
    return options;
  }
};

TEST(RankTurns, OneRankRunsAtATimeInOrder) {
  Ranks ranks(3);
  std::vector<int> shared;  // no lock
  std::vector<int> sums(3);
  ranks.turns.run([&](std::size_t rank) {
    shared.push_back(static_cast<int>(rank));
    sums[rank] = ranks.sum(rank, static_cast<int>(rank) + 1);
    shared.push_back(10 * sums[rank]);
    sums[rank] = ranks.sum(rank, sums[rank]);
  });
  EXPECT_EQ(shared, (std::vector<int>{0, 1, 2, 60, 60, 60}));
  EXPECT_EQ(sums, (std::vector<int>{18, 18, 18}));
  EXPECT_EQ(ranks.turns_taken, "(0)(1)(2)(0)(1)(2)(0)(1)(2)");
}

TEST(RankTurns, RanksThatAskForDifferentThingsAreNamed) {
  Ranks ranks(3);
  int unwound = 0;
  EXPECT_EQ(
      ranks.message([&](std::size_t rank) {
        struct Count {
          int& n;
          ~Count() { ++n; }
        } count{unwound};
        ranks.sum(rank, 1);
        ranks.sum(rank, 1, rank == 1 ? "product" : "sum");
      }),
      "[test] rank (1): asked for product, rank (0) asked for sum; let every rank call the same "
      "collectives in one order, on tensors of one shape and dtype");
  EXPECT_EQ(unwound, 3);
}

TEST(RankTurns, OneThatReturnsWhileOthersWaitIsNamed) {
  Ranks ranks(2);
  EXPECT_EQ(
      ranks.message([&](std::size_t rank) {
        if (rank == 0) ranks.sum(rank, 1);
      }),
      "[test] rank (1): returned and asked for nothing, rank (0) asked for sum; let every rank "
      "call the same collectives in one order, on tensors of one shape and dtype");
}

TEST(RankTurns, WhatOneThrowsEndsAll) {
  Ranks ranks(3);
  std::vector<std::string> caught(3);
  EXPECT_EQ(ranks.message([&](std::size_t rank) {
    if (rank == 1) throw std::runtime_error("mine");
    for (int i = 0; i < 3; ++i) {
      try {
        ranks.sum(rank, 1);
      } catch (const std::exception& error) {
        caught[rank] += error.what();
      }
    }
  }),
            "mine");
  const std::string ended = "another rank failed";
  EXPECT_EQ(caught, (std::vector<std::string>{ended + ended + ended, "", ""}));
}

TEST(RankTurns, WhatServeThrowsEndsAll) {
  RankTurns turns({.op = "test", .names = {"0", "1"}, .serve = [](const auto&) {
                     throw std::runtime_error("no network");
                   }});
  EXPECT_THROW(turns.run([&](std::size_t rank) {
    RankTurns::Meeting meeting{.what = "sum"};
    turns.meet(rank, meeting);
  }),
               std::runtime_error);
}

}  // namespace
}  // namespace meshtorch
