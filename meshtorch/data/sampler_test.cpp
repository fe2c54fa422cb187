// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/data/sampler.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>
#include <meshtorch/data/counter_random.h>

namespace meshtorch {
namespace {

using Indices = std::vector<std::int64_t>;

Indices list(const at::Tensor& indices) {
  const auto* data = indices.data_ptr<std::int64_t>();
  return {data, data + indices.numel()};
}

Indices counting(std::int64_t n) {
  Indices all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Indices order(std::uint64_t key, std::int64_t n) {
  Indices values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(permuted(key, i, n));
  return values;
}

Indices epoch_of(const Sampler& sampler, std::int64_t epoch) {
  Indices all;
  for (std::int64_t step = 0; step < sampler.steps(); ++step) {
    const Indices batch = list(sampler.indices(epoch * sampler.steps() + step));
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

// Pearson's statistic has the mean k - 1 and the variance 2 (k - 1) where all k outcomes are equally
// likely; five deviations.
template <class Outcome>
void expect_uniform(const std::map<Outcome, int>& counts, int outcomes, int draws,
                    const std::string& what) {
  const double expected = static_cast<double>(draws) / outcomes, freedom = outcomes - 1;
  double statistic = expected * (outcomes - static_cast<double>(counts.size()));
  for (const auto& [outcome, count] : counts)
    statistic += (count - expected) * (count - expected) / expected;
  EXPECT_NEAR(statistic, freedom, 5 * std::sqrt(2 * freedom)) << what;
}

TEST(Permuted, IsAPermutation) {
  std::vector<std::int64_t> sizes(200);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {255, 256, 257, 1023, 1024, 1025, 1797, 4095, 4097, 50257});
  for (const std::int64_t n : sizes) {
    for (const std::uint64_t key : {0u, 1u, 12345u}) {
      Indices values = order(key, n);
      std::sort(values.begin(), values.end());
      ASSERT_EQ(values, counting(n)) << n << " by key " << key;
    }
  }
}

// Computed from the header's description by a program of its own.
TEST(Permuted, Golden) {
  EXPECT_EQ(order(0, 10), (Indices{3, 8, 5, 4, 7, 0, 1, 6, 9, 2}));
  EXPECT_EQ(order(1, 10), (Indices{2, 4, 1, 3, 0, 6, 9, 5, 8, 7}));
  const auto start = [](std::uint64_t key, std::int64_t n) {
    return Indices{permuted(key, 0, n), permuted(key, 1, n), permuted(key, 2, n)};
  };
  EXPECT_EQ(start(42, 1797), (Indices{1187, 265, 7}));
  EXPECT_EQ(start(42, 1000000007), (Indices{392514275, 442150890, 365721436}));
  EXPECT_EQ(start(~std::uint64_t{0}, (std::int64_t{1} << 40) + 3),
            (Indices{371433177457, 18022048551, 200811361992}));
}

TEST(Permuted, EveryOrderOfAFewIsEquallyLikely) {
  constexpr int kDraws = 48000;
  int orders = 2;
  for (const std::int64_t n : {3, 4, 5}) {
    orders *= static_cast<int>(n);
    std::map<Indices, int> counts;
    for (std::uint64_t key = 0; key < kDraws; ++key) ++counts[order(key, n)];
    expect_uniform(counts, orders, kDraws, text(n, " elements"));
  }
}

TEST(Permuted, PlacesAndDistancesAreEquallyLikely) {
  constexpr int kDraws = 20000;
  for (const std::int64_t n : {33, 64, 100, 257}) {
    for (const std::int64_t i : {std::int64_t{0}, n / 2, n - 1}) {
      std::map<std::int64_t, int> places, distances;
      for (std::uint64_t key = 0; key < kDraws; ++key) {
        const std::int64_t place = permuted(key, i, n), next = permuted(key, (i + 1) % n, n);
        ++places[place];
        ++distances[(next - place + n) % n];
      }
      expect_uniform(places, static_cast<int>(n), kDraws, text("place of ", i, " of ", n));
      expect_uniform(distances, static_cast<int>(n) - 1, kDraws, text("after ", i, " of ", n));
    }
  }
}

// Of a random permutation the number of elements that stay is Poisson's: mean 1, variance 1.
TEST(Permuted, FixedPoints) {
  constexpr int kDraws = 2000, kElements = 1000;
  int fixed = 0;
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    for (std::int64_t i = 0; i < kElements; ++i) fixed += permuted(key, i, kElements) == i;
  }
  EXPECT_NEAR(fixed, kDraws, 5 * std::sqrt(kDraws));
}

TEST(Sampler, EveryEpochHasEachExampleOnceInAnotherOrder) {
  for (const std::int64_t examples : {1, 2, 7, 64, 65, 1797}) {
    for (const std::int64_t batch : {1, 2, 7, 64, 3000}) {
      const Sampler sampler({.examples = examples, .batch = batch, .seed = 3});
      ASSERT_EQ(sampler.steps(), (examples + batch - 1) / batch);
      Indices first = epoch_of(sampler, 0), fifth = epoch_of(sampler, 5);
      EXPECT_TRUE(examples < 64 || first != fifth) << examples;
      std::sort(first.begin(), first.end());
      std::sort(fifth.begin(), fifth.end());
      ASSERT_EQ(first, counting(examples));
      ASSERT_EQ(fifth, counting(examples));
    }
  }
}

TEST(Sampler, TheLastBatchIsShortOrLeftOut) {
  const Sampler keeps({.examples = 10, .batch = 4}),
      drops({.examples = 10, .batch = 4, .drop_last = true});
  EXPECT_EQ(keeps.steps(), 3);
  EXPECT_EQ(keeps.rows(2), 2);
  EXPECT_EQ(keeps.rows(3), 4);
  EXPECT_EQ(keeps.position(5).epoch, 1);
  EXPECT_EQ(keeps.position(5).step, 2);
  EXPECT_EQ(drops.steps(), 2);
  EXPECT_EQ(drops.position(5).epoch, 2);
  EXPECT_EQ(drops.position(5).step, 1);
  EXPECT_EQ(drops.rows(5), 4);
  EXPECT_EQ(list(keeps.indices(0)), list(drops.indices(0)));
  EXPECT_EQ(list(keeps.indices(4)), list(drops.indices(3)));  // step 1 of epoch 1
}

TEST(Sampler, InOrderWhereItDoesNotShuffle) {
  const Sampler sampler({.examples = 5, .batch = 3, .shuffle = false});
  EXPECT_EQ(list(sampler.indices(2)), (Indices{0, 1, 2}));
  EXPECT_EQ(list(sampler.indices(3)), (Indices{3, 4}));
}

TEST(Sampler, TheSameStreamForAnyNumberOfParts) {
  const Sampler sampler({.examples = 23, .batch = 8, .seed = 9});
  for (std::int64_t step = 0; step < 7; ++step) {
    const Indices batch = list(sampler.indices(step));
    const std::int64_t rows = sampler.rows(step);
    for (std::int64_t parts = 1; parts <= 4; ++parts) {
      Indices joined;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Sampler of_process({.examples = 23, .batch = 8, .seed = 9});
        const Indices mine =
            list(of_process.indices(step, rows * part / parts, rows * (part + 1) / parts));
        joined.insert(joined.end(), mine.begin(), mine.end());
      }
      EXPECT_EQ(joined, batch) << "step " << step << ", " << parts << " parts";
    }
  }
}

TEST(Sampler, Golden) {
  const Sampler sampler({.examples = 10, .batch = 4, .seed = 7});
  const std::vector<Indices> expected{{7, 8, 6, 0}, {1, 2, 5, 4}, {3, 9},
                                      {4, 2, 0, 8}, {5, 1, 7, 6}, {9, 3}};
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_EQ(list(sampler.indices(static_cast<std::int64_t>(step))), expected[step]);
}

TEST(Sampler, ABatchNeedsNoOtherStateThanItsStep) {
  const Sampler ran({.examples = 100, .batch = 7, .seed = 2}),
      resumes({.examples = 100, .batch = 7, .seed = 2});
  for (std::int64_t step = 0; step < 40; ++step) ran.indices(step);
  EXPECT_EQ(list(ran.indices(40)), list(resumes.indices(40)));
  EXPECT_NE(list(ran.indices(40)), list(Sampler({.examples = 100, .batch = 7}).indices(40)));
}

TEST(Sampler, Errors) {
  EXPECT_EQ(message([] { Sampler({.batch = 4}); }),
            "[Sampler] options: 0 examples in batches of 4, expected at least 1 of both; give "
            "positive sizes");
  EXPECT_EQ(message([] { Sampler({.examples = 4, .batch = 0}); }),
            "[Sampler] options: 4 examples in batches of 0, expected at least 1 of both; give "
            "positive sizes");
  EXPECT_EQ(message([] { Sampler({.examples = 4, .batch = 5, .drop_last = true}); }),
            "[Sampler] options: 4 examples fill no batch of 5, and drop_last leaves out the rest; "
            "make batches smaller, or keep the last one");
  const Sampler sampler({.examples = 10, .batch = 4});
  EXPECT_EQ(message([&] { sampler.indices(-1); }),
            "[Sampler] step: got -1, expected at least 0; count from 0");
  EXPECT_EQ(message([&] { sampler.indices(5, 0, 3); }),
            "[Sampler] step 5: rows [0, 3) of a batch of 2; give rows within it");
  EXPECT_EQ(message([] { permuted(0, 4, 4); }),
            "[permuted] i: got 4, expected one of 0 .. 3; give an element of the permutation");
}

}  // namespace
}  // namespace meshtorch
