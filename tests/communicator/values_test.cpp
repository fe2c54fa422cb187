// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <array>

#include "world.h"

namespace meshtorch::suite {
namespace {

class ValuesTest : public CommunicatorTest {
 protected:
  // On every mesh, over every list of its axes.
  template <class F>
  void everywhere(F f) {
    for (const Mesh& mesh : meshes()) {
      for (const AxisList axes : axis_lists(mesh)) f(mesh, axes);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(On, ValuesTest, testing::ValuesIn(worlds()), name);

// All dtypes in turn, every kind with each.
TEST_P(ValuesTest, Dtypes) {
  constexpr std::array kDtypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                               at::kLong,  at::kInt,    at::kByte,     at::kBool};
  std::size_t next = 0;
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (int i = 0; i < 3; ++i) {
      const at::ScalarType dtype = kDtypes[next++ % kDtypes.size()];
      for (const Case& test : every_kind(mesh, axes, {8, 6}, dtype)) check(test);
    }
  });
}

// That do not divide, that are smaller than the group, empty.
TEST_P(ValuesTest, Sizes) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (const Shape& shape : {Shape{7, 5}, Shape{1, 3}, Shape{13, 1}, Shape{0, 4}, Shape{4, 0}}) {
      for (const Case& test : every_kind(mesh, axes, shape, at::kFloat)) check(test);
    }
  });
}

TEST_P(ValuesTest, NumbersOfNoDims) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (const Request& request :
         {Request::all_reduce(mesh, axes), Request::all_reduce(mesh, axes, Reduction::min),
          Request::broadcast(mesh, axes, mesh.shards(axes) - 1)}) {
      Case test{request, {}};
      for (std::int64_t i = 0; i < mesh.size(); ++i)
        test.inputs.push_back(values({}, at::kFloat, static_cast<std::uint64_t>(i)));
      check(test);
    }
  });
}

TEST_P(ValuesTest, InputsOfDifferentSizes) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (const std::int64_t dim : {0, 1}) {
      Case test = uneven_gather(mesh, axes, {3, 4}, dim, at::kFloat);
      check(test);
      test.request = Request::all_to_all(mesh, axes, 1 - dim, dim);
      check(test);
    }
  });
}

// Each group may have sizes of its own, as where another dim is cut unevenly over another axis.
TEST_P(ValuesTest, GroupsOfDifferentSizes) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (Case& test : every_kind(mesh, axes, {4, 6}, at::kDouble)) {
      if (test.request.kind == Collective::permute) continue;
      for (std::int64_t i = 0; i < mesh.size(); ++i) {
        const std::int64_t size = group_of(mesh, axes, i).front() % 3;
        test.inputs[static_cast<std::size_t>(i)] =
            values({size, 6}, at::kDouble, static_cast<std::uint64_t>(i));
      }
      test.request.even = false;
      check(test);
    }
  });
}

enum class Strides { transposed, stepped, expanded };

// The values of `tensor` in memory that is laid out otherwise; expanded: its first column, repeated.
at::Tensor with_strides(const at::Tensor& tensor, Strides strides) {
  switch (strides) {
    case Strides::transposed:
      return tensor.t().contiguous().t();
    case Strides::stepped: {
      const at::Tensor space =
          at::zeros({2 * tensor.size(0) + 1, 3 * tensor.size(1)}, tensor.options());
      const at::Tensor view = space.slice(0, 1, 2 * tensor.size(0) + 1, 2).slice(1, 0, {}, 3);
      return view.copy_(tensor);
    }
    case Strides::expanded:
      return tensor.slice(1, 0, 1).clone().expand(tensor.sizes());
  }
  return {};
}

TEST_P(ValuesTest, StridesOfInputs) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (const Strides strides : {Strides::transposed, Strides::stepped, Strides::expanded}) {
      for (Case& test : every_kind(mesh, axes, {7, 6}, at::kFloat)) {
        const bool moved = test.request.kind == Collective::permute;
        if (moved && strides == Strides::expanded) continue;  // would be another tensor
        for (at::Tensor& input : test.inputs) input = with_strides(input, strides);
        check(test);
      }
    }
  });
}

// Of inputs that each have strides of their own.
TEST_P(ValuesTest, StridesThatDiffer) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    for (Case& test : every_kind(mesh, axes, {7, 6}, at::kFloat)) {
      for (std::size_t i = 0; i < test.inputs.size(); ++i) {
        const auto strides = static_cast<Strides>(i % 2);
        if (i % 3 != 0) test.inputs[i] = with_strides(test.inputs[i], strides);
      }
      check(test);
    }
  });
}

TEST_P(ValuesTest, InputsStayAsTheyWere) {
  everywhere([&](const Mesh& mesh, AxisList axes) {
    if (GetParam().simulated) return;
    for (const Case& test : every_kind(mesh, axes, {5, 4}, at::kFloat)) {
      const Shards inputs = mine(test);
      Shards before;
      for (const at::Tensor& input : inputs) before.push_back(input.clone());
      communicator_->run(test.request, inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        EXPECT_TRUE(inputs[i].equal(before[i])) << test.request.to_string();
    }
  });
}

// One process with as many virtual devices gives the same bits.
TEST_P(ValuesTest, AsOneProcessDoes) {
  const auto local = make_local_communicator(devices());
  everywhere([&](const Mesh& mesh, AxisList axes) {
    if (GetParam().simulated) return;
    for (const Case& test : every_kind(mesh, axes, {66, 65}, at::kFloat)) {
      const Shards alone = local->run(test.request, test.inputs).wait();
      const Shards together = communicator_->run(test.request, mine(test)).wait();
      const auto& positions = communicator_->addressable(mesh);
      for (std::size_t i = 0; i < positions.size(); ++i)
        EXPECT_TRUE(together[i].equal(alone[static_cast<std::size_t>(positions[i])]))
            << test.request.to_string();
    }
  });
}

}  // namespace
}  // namespace meshtorch::suite
