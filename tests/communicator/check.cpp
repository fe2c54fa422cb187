// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <set>

#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>

#include "wire.h"
#include "world.h"

namespace meshtorch::suite {
namespace {

// Bit for bit: 0 and -0 differ.
bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  return left.nbytes() == 0 ||
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

std::string describe(const Case& test) {
  std::vector<at::IntArrayRef> sizes;
  for (const at::Tensor& input : test.inputs) sizes.push_back(input.sizes());
  return text(test.request.to_string(), " on devices ", join(test.request.mesh.devices()), ", ",
              test.inputs[0].scalar_type(), " ", join(sizes), ", dims ", test.request.dim, " ",
              test.request.concat_dim, ", even ", test.request.even, ", reduction ",
              static_cast<int>(test.request.reduction));
}

// Of what shares memory with something else, none.
void expect_apart(const Shards& inputs, const Shards& results) {
  std::set<const void*> memory;
  for (const at::Tensor& input : inputs) memory.insert(input.storage().data());
  for (const at::Tensor& result : results) {
    if (result.nbytes() == 0) continue;
    EXPECT_TRUE(memory.insert(result.storage().data()).second);
  }
}

void expect_shapes(const Shards& results, const Shards& expected) {
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].is_meta());
    EXPECT_EQ(results[i].sizes(), expected[i].sizes()) << "position " << i;
    EXPECT_EQ(results[i].scalar_type(), expected[i].scalar_type());
  }
}

}  // namespace

Shards CommunicatorTest::mine(const Case& test) const {
  Shards inputs;
  for (const std::int64_t position : communicator_->addressable(test.request.mesh))
    inputs.push_back(test.inputs[static_cast<std::size_t>(position)]);
  return GetParam().simulated ? without_values(inputs) : inputs;
}

void CommunicatorTest::check(const Case& test) {
  const Shards inputs = mine(test);
  Pending pending = communicator_->run(test.request, inputs);
  check(test, inputs, pending);
}

void CommunicatorTest::check(const Case& test, const Shards& inputs, Pending& pending) {
  SCOPED_TRACE(describe(test));
  const Shards wanted = expected(test);
  const Shards results = pending.wait();
  if (GetParam().simulated) return expect_shapes(results, wanted);
  EXPECT_TRUE(pending.done());
  const auto& positions = communicator_->addressable(test.request.mesh);
  ASSERT_EQ(results.size(), positions.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& want = wanted[static_cast<std::size_t>(positions[i])];
    EXPECT_TRUE(same(results[i], want)) << "position " << positions[i] << ": " << results[i].sizes()
                                        << " instead of " << want.sizes();
    EXPECT_TRUE(results[i].is_contiguous());
  }
  expect_apart(inputs, results);
  const Bounds wire = expected_wire(test, GetParam().devices, communicator_->process());
  EXPECT_GE(pending.wire_bytes(), wire.least);
  EXPECT_LE(pending.wire_bytes(), wire.most);
}

}  // namespace meshtorch::suite
