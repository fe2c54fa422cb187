// SPDX-License-Identifier: Apache-2.0
//
// Messages that no single MPI call takes.
#include <cstdlib>

#include <ATen/ATen.h>

#include "world.h"

namespace meshtorch::suite {
namespace {

class LargeTest : public CommunicatorTest {
 protected:
  Mesh all() const { return Mesh({{"a", devices()}}); }
};

INSTANTIATE_TEST_SUITE_P(On, LargeTest, testing::Values(World{1}), name);

// A cut sum, whose pieces are not whole cache lines.
TEST_P(LargeTest, Sums) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    Case test{Request::all_reduce(all(), AxisList::of(0)), {}};
    for (std::int64_t i = 0; i < devices(); ++i)
      test.inputs.push_back(values({100'003}, dtype, static_cast<std::uint64_t>(i)));
    check(test);
  }
}

TEST_P(LargeTest, MoreThanOneMessage) {
  if (processes() > 2) GTEST_SKIP() << "two processes say it all";
  const std::int64_t size = (64 << 20) + 123;
  Case test{Request::broadcast(all(), AxisList::of(0), devices() - 1), {}};
  for (std::int64_t i = 0; i < devices(); ++i) {
    const at::Tensor period = values({8191}, at::kByte, static_cast<std::uint64_t>(i));
    test.inputs.push_back(period.repeat({size / 8191 + 1}).slice(0, 0, size));
  }
  check(test);
}

// Counts beyond an int: by hand, on a machine with 24 GB.
TEST_P(LargeTest, MoreThanAnInt) {
  if (std::getenv("MESHTORCH_TEST_LARGE") == nullptr)
    GTEST_SKIP() << "MESHTORCH_TEST_LARGE=1 runs it: 24 GB over two processes";
  const std::int64_t size = (std::int64_t{1} << 31) + 12345, me = communicator_->process();
  const auto byte_at = [](std::int64_t process, std::int64_t i) {
    return static_cast<std::uint8_t>((i >> 20) * 7 + i % 251 + process);
  };
  at::Tensor input = at::empty({size}, at::kByte);
  auto* bytes = input.mutable_data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < size; ++i) bytes[i] = byte_at(me, i);
  const auto expect = [&](const at::Tensor& part, std::int64_t process) {
    const auto* got = part.const_data_ptr<std::uint8_t>();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < size; ++i) wrong += got[i] != byte_at(process, i);
    EXPECT_EQ(wrong, 0) << "of process " << process;
  };
  {
    const at::Tensor sent =
        communicator_->run(Request::broadcast(all(), AxisList::of(0), devices() - 1), {input})
            .wait()[0];
    ASSERT_EQ(sent.numel(), size);
    expect(sent, devices() - 1);
  }
  const at::Tensor whole =
      communicator_->run(Request::all_gather(all(), AxisList::of(0), 0), {input}).wait()[0];
  ASSERT_EQ(whole.numel(), size * devices());
  for (std::int64_t process = 0; process < devices(); ++process)
    expect(whole.slice(0, process * size, (process + 1) * size), process);
}

}  // namespace
}  // namespace meshtorch::suite
