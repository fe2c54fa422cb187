// SPDX-License-Identifier: Apache-2.0
//
// The closed formulas of comm/distributed/collectives.h: bytes that cross, for a sum that does.
#include <meshtorch/comm/distributed/collectives.h>

#include "world.h"

namespace meshtorch::suite {
namespace {

class WireTest : public CommunicatorTest {
 protected:
  // Of one collective over all devices in order, each with `bytes` of floats.
  std::int64_t sent(Request request, std::int64_t bytes) {
    Shards inputs(static_cast<std::size_t>(GetParam().devices),
                  values({bytes / 16, 4}, at::kFloat, 3));
    return communicator_->run(std::move(request), inputs).wire_bytes();
  }
  Mesh all() const { return Mesh({{"a", devices()}}); }
  // Each process holds whole subtrees of a sum in halves.
  bool aligned() const { return (GetParam().devices & (GetParam().devices - 1)) == 0; }
};

INSTANTIATE_TEST_SUITE_P(On, WireTest, testing::ValuesIn(real_worlds()), name);

TEST_P(WireTest, OfSums) {
  if (!aligned() || processes() == 3) GTEST_SKIP() << "blocks are not subtrees";
  const std::int64_t q = processes(), large = 3 << 16;
  ASSERT_GT(large, kDirectBytes);
  const Request sum = Request::all_reduce(all(), AxisList::of(0));
  EXPECT_EQ(sent(sum, 1 << 10), (q - 1) * (1 << 10));
  EXPECT_EQ(sent(sum, kDirectBytes), (q - 1) * kDirectBytes);
  EXPECT_EQ(sent(sum, large), 2 * (q - 1) * large / q);
  EXPECT_EQ(sent(Request::reduce_scatter(all(), AxisList::of(0), 0), large), (q - 1) * large / q);
}

TEST_P(WireTest, OfMoves) {
  const std::int64_t q = processes(), k = GetParam().devices, bytes = 9 << 14;
  Request gather = Request::all_gather(all(), AxisList::of(0), 0);
  EXPECT_EQ(sent(gather, bytes), (q - 1) * k * (bytes + 8)) << "8: the size that is asked for";
  gather.even = true;
  EXPECT_EQ(sent(gather, bytes), (q - 1) * k * bytes);
  Request exchange = Request::all_to_all(all(), AxisList::of(0), 0, 1);
  exchange.even = true;
  EXPECT_EQ(sent(exchange, bytes), k * bytes * (q - 1) / q);
  const bool root = communicator_->process() == 0;
  EXPECT_EQ(sent(Request::broadcast(all(), AxisList::of(0)), bytes), root ? (q - 1) * bytes : 0);
}

TEST_P(WireTest, NothingInsideOneProcess) {
  const Mesh mesh({{"a", processes()}, {"b", GetParam().devices}});
  for (const Case& test : every_kind(mesh, AxisList::of(1), {64, 64}, at::kFloat))
    EXPECT_EQ(communicator_->run(test.request, mine(test)).wire_bytes(), 0)
        << test.request.to_string();
}

}  // namespace
}  // namespace meshtorch::suite
