// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <thread>

#include <ATen/ATen.h>

#include "world.h"

namespace meshtorch::suite {
namespace {

struct Flight {
  Case test;
  Shards inputs;
  Pending pending;
};

class HandlesTest : public CommunicatorTest {
 protected:
  // Collectives of every kind, of sizes below and above that of a cut sum, none waited for.
  std::vector<Flight> take_off() {
    std::vector<Flight> flights;
    const std::vector<Mesh> all = meshes();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const AxisList axes = axis_lists(all[i]).back();
      const Shape shape = i % 2 == 0 ? Shape{9, 7} : Shape{90, 70};
      for (Case& test : every_kind(all[i], axes, shape, i % 3 == 0 ? at::kBFloat16 : at::kFloat)) {
        Shards inputs = mine(test);
        Pending pending = communicator_->start(test.request, inputs);
        flights.push_back({std::move(test), std::move(inputs), std::move(pending)});
      }
    }
    return flights;
  }
  void check_all(std::vector<Flight>& flights) {
    for (Flight& flight : flights) check(flight.test, flight.inputs, flight.pending);
  }
};

INSTANTIATE_TEST_SUITE_P(On, HandlesTest, testing::ValuesIn(worlds()), name);

TEST_P(HandlesTest, WaitedForInReverse) {
  auto flights = take_off();
  std::reverse(flights.begin(), flights.end());
  check_all(flights);
}

// Each process in an order of its own.
TEST_P(HandlesTest, WaitedForInAnyOrder) {
  auto flights = take_off();
  std::shuffle(flights.begin(), flights.end(), std::mt19937(communicator_->process() + 1));
  check_all(flights);
}

TEST_P(HandlesTest, Polled) {
  auto flights = take_off();
  const auto begin = std::chrono::steady_clock::now();
  while (!flights.back().pending.done() &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(30))
    std::this_thread::yield();
  EXPECT_TRUE(flights.back().pending.done());
  for (const Flight& flight : flights) EXPECT_TRUE(flight.pending.done()) << "out of order";
  check_all(flights);
}

TEST_P(HandlesTest, WithOthersBetween) {
  auto flights = take_off();
  const Mesh mesh = meshes().back();
  for (const Case& test : every_kind(mesh, axis_lists(mesh).back(), {33, 5}, at::kDouble))
    check(test);
  for (const Flight& flight : flights) EXPECT_TRUE(flight.pending.done()) << "out of order";
  communicator_->record("a value that all have", 42);
  communicator_->barrier();
  auto later = take_off();
  communicator_->barrier();
  for (const Flight& flight : later) EXPECT_TRUE(flight.pending.done()) << "after a barrier";
  check_all(later);
  check_all(flights);
}

// A program may forget a handle, and its inputs.
TEST_P(HandlesTest, Dropped) {
  take_off();
  auto flights = take_off();
  for (Flight& flight : flights) flight.inputs.clear();
  take_off();
  for (Flight& flight : flights) check(flight.test, mine(flight.test), flight.pending);
}

TEST_P(HandlesTest, CopiesShareTheResults) {
  const Mesh mesh = meshes().front();
  const Case test = every_kind(mesh, AxisList::of(0), {6, 6}, at::kFloat)[0];
  Pending one = communicator_->start(test.request, mine(test));
  Pending other = one;
  const Shards first = one.wait(), second = other.wait(), third = one.wait();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i].is_same(second[i]));
    EXPECT_TRUE(first[i].is_same(third[i]));
  }
}

TEST_P(HandlesTest, OutliveTheCommunicator) {
  const Mesh mesh = meshes().front();
  const Case test = every_kind(mesh, AxisList::of(0), {6, 6}, at::kFloat)[0];
  const std::int64_t mine_first = communicator_->addressable(mesh)[0];
  Pending pending = communicator_->start(test.request, mine(test));
  communicator_.reset();
  EXPECT_TRUE(pending.done());
  const at::Tensor result = pending.wait()[0];
  const at::Tensor want = expected(test)[static_cast<std::size_t>(mine_first)];
  ASSERT_EQ(result.sizes(), want.sizes());
  EXPECT_TRUE(GetParam().simulated || result.equal(want));
}

// What runs later, in another thread, runs as if it had run at once.
TEST_P(HandlesTest, KeepTheStateOfTheCaller) {
  const Mesh mesh = meshes().front();
  std::vector<Pending> pending;
  for (const bool inference : {true, false}) {
    const c10::InferenceMode guard(inference);
    for (const Case& test : every_kind(mesh, AxisList::of(0), {6, 6}, at::kFloat)) {
      pending.push_back(communicator_->start(test.request, mine(test)));
    }
  }
  for (std::size_t i = 0; i < pending.size(); ++i) {
    for (const at::Tensor& result : pending[i].wait())
      EXPECT_EQ(result.is_inference(), i < pending.size() / 2) << i;
  }
}

}  // namespace
}  // namespace meshtorch::suite
