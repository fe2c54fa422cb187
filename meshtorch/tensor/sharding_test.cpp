// SPDX-License-Identifier: Apache-2.0
//
// Placing, moving and gathering tensors: every device holds the slice that its coordinates say, the
// whole comes back exactly, gradients follow, and misuse gets a message in the library's grammar.
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;

// Every shard is the dense slice of its box, and the boxes of distinct coordinates make up the whole.
void expect_slices(const at::Tensor& x, const at::Tensor& dense) {
  ASSERT_EQ(x.sizes(), dense.sizes());
  for (const Shard& shard : addressable_shards(x)) {
    at::Tensor slice = dense;
    for (std::size_t d = 0; d < shard.index.size(); ++d) {
      slice = slice.slice(static_cast<std::int64_t>(d), shard.index[d].begin, shard.index[d].end);
    }
    ASSERT_TRUE(torch::equal(shard.data, slice)) << "device " << shard.device;
  }
  EXPECT_TRUE(torch::equal(full(x), dense));
}

class Sharding : public testing::Test {
 protected:
  Runtime runtime{{.devices = 8, .warn_fallback = false}};
  Mesh line = runtime.make_mesh({{"dp", 4}});
  Mesh grid = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
};

// Cases 1 and 3.
TEST_F(Sharding, EverySizeComesBack) {
  for (const std::int64_t devices : {1, 2, 3, 4, 8}) {
    const Mesh mesh = runtime.make_mesh({{"dp", devices}});
    for (std::int64_t size = 0; size <= 3 * devices + 1; ++size) {
      const auto dense = torch::randn({size, 3});
      expect_slices(device_put(dense, {mesh, P("dp")}), dense);
      expect_slices(device_put(dense.t().contiguous(), {mesh, P(whole, "dp")}),
                    dense.t().contiguous());
      expect_slices(device_put(dense.t(), {mesh, P(whole, "dp")}), dense.t());
    }
  }
}

// Case 11.
TEST_F(Sharding, FiveElementsOnTwoByTwo) {
  const auto dense = torch::arange(5);
  expect_slices(device_put(dense, {grid, P(axes("dp", "tp"))}), dense);
  expect_slices(device_put(dense, {grid, P(axes("tp", "dp"))}), dense);
  expect_slices(reshard(device_put(dense, {grid, P("tp")}), P(axes("dp", "tp"))), dense);
}

// Case 10.
TEST_F(Sharding, TheFirstAxisOfADimIsTheMajorOne) {
  const auto dense = torch::arange(8);
  const auto x = addressable_shards(device_put(dense, {grid, P(axes("tp", "dp"))}));
  EXPECT_EQ(x[0].data[0].item<int>(), 0);  // (dp, tp) = (0, 0)
  EXPECT_EQ(x[1].data[0].item<int>(), 4);  // (0, 1)
  EXPECT_EQ(x[2].data[0].item<int>(), 2);  // (1, 0)
  EXPECT_EQ(x[3].data[0].item<int>(), 6);  // (1, 1)
  EXPECT_EQ(x[2].coordinates, (std::vector<std::int64_t>{1, 0}));
}

TEST_F(Sharding, EveryLayoutToEveryOther) {
  const std::vector<P> specs{P(),
                             P("dp"),
                             P("tp"),
                             P(whole, "dp"),
                             P("dp", "tp"),
                             P("tp", "dp"),
                             P(axes("dp", "tp")),
                             P(axes("tp", "dp")),
                             P(whole, axes("tp", "dp")),
                             P().unreduced("dp"),
                             P("tp").unreduced("dp"),
                             P(whole, "dp").unreduced("tp"),
                             P().unreduced("dp", "tp")};
  const auto dense = torch::randint(-9, 9, {5, 3}).to(torch::kFloat);
  for (const P& from : specs) {
    for (const P& to : specs) {
      const auto x = device_put(dense, {grid, from});
      const auto y = reshard(x, to);
      EXPECT_EQ(sharding_of(y), (NamedSharding{grid, to}));
      EXPECT_TRUE(torch::equal(full(y), dense)) << from << " to " << to;
      EXPECT_TRUE(torch::equal(full(x), dense)) << from << " to " << to;
      EXPECT_EQ(sharding_of(x), (NamedSharding{grid, from}));
    }
  }
}

TEST_F(Sharding, UnreducedPutsTheValueOnCoordinateZero) {
  const auto dense = torch::randn({4, 2});
  const auto shards = addressable_shards(device_put(dense, {grid, P("dp").unreduced("tp")}));
  EXPECT_TRUE(torch::equal(shards[0].data, dense.slice(0, 0, 2)));
  EXPECT_TRUE(torch::equal(shards[1].data, torch::zeros({2, 2})));
  EXPECT_TRUE(torch::equal(shards[2].data, dense.slice(0, 2, 4)));
  EXPECT_TRUE(torch::equal(shards[3].data, torch::zeros({2, 2})));
}

TEST_F(Sharding, EveryDtypeAndScalars) {
  for (const auto dtype :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kLong, torch::kInt,
        torch::kBool, torch::kByte, torch::kComplexFloat}) {
    const auto dense = torch::randint(0, 2, {7}).to(dtype);
    const auto x = device_put(dense, {line, P("dp")});
    EXPECT_EQ(x.scalar_type(), dtype);
    EXPECT_TRUE(torch::equal(full(x), dense)) << dtype;
  }
  EXPECT_EQ(device_put(torch::tensor(3.5), {grid, P()}).item<double>(), 3.5);
  EXPECT_EQ(device_put(torch::tensor(3.5), {grid, P().unreduced("dp", "tp")}).item<double>(), 3.5);
}

TEST_F(Sharding, NothingSharesMemoryWithItsSource) {
  auto dense = torch::zeros({4});
  const auto x = device_put(dense, {grid, P()});
  const auto y = device_put(dense, {grid, P("dp")});
  dense.fill_(1);
  EXPECT_EQ(x.sum().item<double>(), 0);
  EXPECT_EQ(y.sum().item<double>(), 0);
  for (const P& to : {P(), P("dp"), P("tp").unreduced("dp")}) {
    const auto source = device_put(torch::zeros({4}), {grid, P()});
    const auto moved = reshard(source, to);
    source.fill_(1);
    EXPECT_EQ(moved.sum().item<double>(), 0) << to;
    moved.fill_(2);
    EXPECT_EQ(source.sum().item<double>(), 4) << to;
  }
  auto whole_value = full(x);
  whole_value.fill_(5);
  EXPECT_EQ(x.sum().item<double>(), 0);
}

TEST_F(Sharding, SlicingAndMaskingMoveNothing) {
  const auto x = device_put(torch::randn({8, 4}), {grid, P()});
  runtime.ledger().clear();
  reshard(x, P("dp", "tp"));
  reshard(x, P(axes("dp", "tp")));
  reshard(x, P("dp").unreduced("tp"));
  EXPECT_TRUE(runtime.ledger().entries().empty()) << runtime.ledger().to_string();
  full(reshard(x, P("dp")));
  ASSERT_EQ(runtime.ledger().entries().size(), 1u);
  EXPECT_EQ(runtime.ledger().entries()[0].kind, Collective::all_gather);
  EXPECT_EQ(runtime.ledger().entries()[0].origin, Origin::asked);
}

TEST_F(Sharding, GradientsOfPutReshardAndFull) {
  const auto weights = torch::randn({5, 3});
  for (const P& first : {P(), P("dp"), P("dp", "tp"), P("tp").unreduced("dp")}) {
    for (const P& second : {P(), P("tp"), P(whole, axes("dp", "tp")), P().unreduced("dp")}) {
      auto dense = torch::randn({5, 3}, torch::requires_grad());
      auto x = device_put(dense, {grid, first});
      x.retain_grad();
      const auto y = full(reshard(x * 2, second));
      (y * y * weights).sum().backward();
      const auto expected = 8 * dense.detach() * weights;
      EXPECT_TRUE(torch::allclose(dense.grad(), expected)) << first << " " << second;
      EXPECT_TRUE(torch::allclose(full(x.grad()), expected)) << first << " " << second;
      EXPECT_FALSE(is_sharded(dense.grad()));
    }
  }
}

// Case 15: the layout of a gradient follows the forward one's; case 14: what is unreduced may stay so.
TEST_F(Sharding, AGradientOfAReplicatedWeightStaysUnreduced) {
  auto w = device_put(torch::randn({3}), {grid, P()}).requires_grad_();
  auto x = device_put(torch::randn({4, 3}), {grid, P("dp")});
  auto v = reshard(w, P());
  runtime.ledger().clear();
  (x * v).sum().backward();
  EXPECT_EQ(runtime.ledger().entries().size(), 0u) << runtime.ledger().to_string();
  EXPECT_EQ(sharding_of(w.grad()).spec, P().unreduced("dp"));
  EXPECT_TRUE(torch::allclose(full(w.grad()), full(x).sum(0)));
}

TEST_F(Sharding, OtherMesh) {
  const auto dense = torch::randn({6, 2});
  auto x = device_put(dense, {line, P("dp")}).requires_grad_();
  const auto y = device_put(x, {grid, P(whole, "tp")});
  EXPECT_EQ(sharding_of(y), (NamedSharding{grid, P(whole, "tp")}));
  EXPECT_TRUE(torch::equal(full(y), dense));
  (y * 3).sum().backward();
  EXPECT_EQ(sharding_of(x.grad()).mesh, line);
  EXPECT_TRUE(torch::equal(full(x.grad()), torch::full({6, 2}, 3.0)));
}

TEST_F(Sharding, SeveralAtOnce) {
  const auto xs = device_put({torch::arange(4), torch::arange(6)}, {grid, P("dp")});
  ASSERT_EQ(xs.size(), 2u);
  expect_slices(xs[1], torch::arange(6));
}

// Case 9: merging and splitting dims whose leading one carries the shard moves nothing.
TEST_F(Sharding, FlatteningIsLocal) {
  const auto dense = torch::randn({4, 6, 2});
  const auto x = device_put(dense, {grid, P("dp")});
  const auto nested = device_put(dense, {grid, P(axes("dp", "tp"))});
  runtime.ledger().clear();
  const auto y = x.flatten(0, 1);
  const auto z = nested.flatten().view({4, 12});
  EXPECT_TRUE(runtime.ledger().entries().empty()) << runtime.ledger().to_string();
  EXPECT_TRUE(torch::equal(full(y), dense.flatten(0, 1)));
  EXPECT_TRUE(torch::equal(full(z), dense.view({4, 12})));
}

TEST_F(Sharding, Messages) {
  const auto dense = torch::randn({4, 4});
  const auto x = device_put(dense, {grid, P("dp")});
  EXPECT_EQ(
      message([&] {
        device_put(dense, {grid, P("pp")});
      }),
      "[device_put] x dim 0: axis \"pp\" is not an axis of mesh (dp=2, tp=2); use one of: dp, tp");
  EXPECT_THAT(message([&] { reshard(x, P(whole, "pp")); }),
              HasSubstr("[reshard] x dim 1: axis \"pp\" is not an axis"));
  EXPECT_THAT(message([&] {
                device_put(dense, {grid, P("dp", "tp", whole, "dp")});
              }),
              HasSubstr("is used twice"));
  EXPECT_THAT(message([&] {
                device_put(dense, {line, P(whole, whole, "dp")});
              }),
              HasSubstr("[device_put] x: P(-, -, dp) names 3 dims, the tensor has 2"));
  EXPECT_THAT(message([&] {
                runtime.make_mesh({{"dp", 16}});
              }),
              HasSubstr("[make_mesh] mesh (dp=16) needs 16 devices, this runtime has 8; "));
  EXPECT_THAT(
      message([&] {
        device_put(dense, {Mesh({{"dp", 16}}), P("dp")});
      }),
      HasSubstr("[device_put] sharding: mesh (dp=16) needs 16 devices, this runtime has 8; "));
  EXPECT_EQ(message([&] {
              device_put(at::Tensor(), {grid, P()});
            }),
            "[device_put] x: is undefined, expected a tensor; give it a value first");
  EXPECT_EQ(message([&] {
              device_put(dense, {Mesh(), P()});
            }),
            "[device_put] sharding: has no mesh; make one with Runtime::make_mesh");
  EXPECT_EQ(message([&] { reshard(dense, P()); }),
            "[reshard] x: is a plain tensor; device_put it onto a mesh first");
  EXPECT_EQ(
      message([&] { reshard(at::Tensor(), P()); }),
      "[reshard] x: is undefined, expected a sharded tensor; device_put it onto a mesh first");
  EXPECT_THAT(message([&] { sharding_of(dense); }),
              HasSubstr("[sharding_of] x: is a plain tensor"));
  EXPECT_THAT(message([&] { addressable_shards(dense); }),
              HasSubstr("[addressable_shards] x: is a plain tensor"));
}

TEST_F(Sharding, TwoMeshesInOneOp) {
  const auto x = device_put(torch::randn({4}), {grid, P("dp")});
  const auto y = device_put(torch::randn({4}), {line, P("dp")});
  EXPECT_EQ(message([&] { x + y; }),
            "[aten::add.Tensor] other: is on mesh (dp=4), another operand is on mesh (dp=2, tp=2); "
            "device_put it onto "
            "the same mesh first");
  EXPECT_THAT(message([&] { torch::cat({x, y}); }), HasSubstr("tensors[1]: is on mesh (dp=4)"));
}

TEST_F(Sharding, StorageIsRefusedByName) {
  const auto x = device_put(torch::randn({4}), {grid, P("dp")});
  EXPECT_THAT(message([&] { x.data_ptr<float>(); }),
              HasSubstr("[data_ptr] sharded tensor: it has no storage"));
  EXPECT_THAT(message([&] { x.data_ptr(); }), HasSubstr("meshtorch::full(x)"));
  EXPECT_THAT(message([&] { x.storage(); }), HasSubstr("meshtorch::addressable_shards(x)"));
  EXPECT_THAT(message([&] { x.accessor<float, 1>()[0]; }), HasSubstr("[data_ptr] sharded tensor"));
  std::ostringstream stream;
  EXPECT_THAT(message([&] { torch::save(x, stream); }), HasSubstr("sharded tensor"));
}

TEST_F(Sharding, PrintingShowsTheWholeValue) {
  const auto dense = torch::arange(4).to(torch::kFloat);
  std::ostringstream got, expected;
  got << full(device_put(dense, {grid, P("dp")}));
  expected << dense;
  EXPECT_EQ(got.str(), expected.str());
}

// Libtorch's own message for a bad call, not one of ours about rules.
TEST_F(Sharding, BadCallsGetLibtorchsWords) {
  const auto x = device_put(torch::randn({4, 3}), {grid, P("dp")});
  EXPECT_THAT(message([&] { x.mm(x); }), HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
  EXPECT_THAT(message([&] { x.view({5, 5}); }), HasSubstr("invalid for input of size 12"));
  EXPECT_THAT(message([&] { x + torch::randn({5}); }),
              HasSubstr("must match the size of tensor b"));
  EXPECT_NE(message([&] { x.sum(7); }), "");
  EXPECT_NE(message([&] { torch::cat({x, torch::randn({2, 2})}); }), "");
  EXPECT_NE(message([&] { x.item(); }), "");
}

TEST(Runtimes, OneAtATime) {
  {
    Runtime one;
    EXPECT_THAT(message([] { Runtime two; }), HasSubstr("[Runtime] one is alive already"));
    EXPECT_EQ(device_put(torch::ones({3}), {one.make_mesh({{"dp", 1}}), P("dp")}).sum().item<int>(),
              3);
  }
  EXPECT_THAT(message([] { Runtime::current(); }), HasSubstr("[Runtime] there is none"));
  Runtime again({.devices = 2});
  EXPECT_EQ(device_put(torch::ones({3}), {again.make_mesh({{"dp", 2}}), P("dp")}).sum().item<int>(),
            3);
}

TEST_F(Sharding, PrintsTheValueAndHowItLies) {
  const auto x = torch::arange(4.0);
  std::ostringstream plain;
  plain << x;
  EXPECT_EQ(to_string(x), plain.str());
  const auto sharded = device_put(x, {runtime.make_mesh({{"dp", 2}}), P("dp")});
  EXPECT_EQ(to_string(sharded), plain.str() + "\n[ P(dp) on (dp=2) ]");
}

}  // namespace
}  // namespace meshtorch
