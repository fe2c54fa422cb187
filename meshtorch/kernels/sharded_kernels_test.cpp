// SPDX-License-Identifier: Apache-2.0
//
// Sharded kernels where a plausible implementation is silently wrong; every value is plain libtorch's.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

namespace F = torch::nn::functional;

class ShardedKernels : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }

  at::Tensor put(const at::Tensor& x, const PartitionSpec& spec) {
    return device_put(x, {mesh, spec});
  }
  static void expect_close(const at::Tensor& sharded, const at::Tensor& dense) {
    EXPECT_TRUE(full(sharded.detach()).allclose(dense.detach(), 1e-5, 1e-6, true))
        << full(sharded.detach()) << "\nexpected\n"
        << dense;
  }

  Runtime runtime{{.devices = 8, .warn_fallback = false}};
  Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

TEST_F(ShardedKernels, ViewsOfOneTargetHaveCountsOfTheirOwn) {
  const auto logits = torch::randn({2, 8, 5});
  auto targets = torch::randint(5, {2, 8}, torch::kLong);
  targets[1].narrow(0, 0, 5).fill_(-100);
  const auto x = put(logits, P(whole, "dp")), t = put(targets, P(whole, "dp"));
  for (int row = 0; row < 2; ++row) {
    expect_close(F::cross_entropy(x[row], t[row]), F::cross_entropy(logits[row], targets[row]));
  }
}

TEST_F(ShardedKernels, RunningStatisticsOfAPlainModuleMoveOnce) {
  torch::nn::BatchNorm2d dense(3), mixed(3);
  const auto x = torch::randn({8, 3, 4, 4}) + 2;
  dense->forward(x);
  mixed->forward(put(x, P("dp")));
  expect_close(mixed->running_mean, dense->running_mean);
  expect_close(mixed->running_var, dense->running_var);
}

TEST_F(ShardedKernels, RunningStatisticsOfShardedChannels) {
  torch::nn::BatchNorm2d dense(6), sharded(6);
  const auto x = torch::randn({8, 6, 4, 4}) + 2;
  shard(*sharded, mesh, PathRules({{"weight|bias", P("tp")}}));  // the statistics stay whole
  expect_close(sharded->forward(put(x, P("dp", "tp"))), dense->forward(x));
  expect_close(sharded->running_mean, dense->running_mean);
  for (const Shard& part : addressable_shards(sharded->running_var)) {
    EXPECT_TRUE(part.data.allclose(dense->running_var)) << "device " << part.device;
  }
}

TEST_F(ShardedKernels, DevicesWithoutRowsStillFillFactories) {
  const auto x = put(torch::randn({3}), P("dp"));  // the fourth device has none
  for (const Shard& part : addressable_shards(x.new_ones({2}))) {
    EXPECT_TRUE(part.data.equal(torch::ones({2}))) << "device " << part.device;
  }
}

TEST_F(ShardedKernels, ABiasThatIsASumIsKeptWhereTheContractionIsEmpty) {
  const auto bias = torch::randn({5}), x = torch::randn({4, 3}), w = torch::randn({3, 5});
  const auto parts = put(torch::ones({8}), P("dp")).unsqueeze(1).mul(put(bias / 8, P())).sum(0);
  ASSERT_EQ(sharding_of(parts).spec, P().unreduced("dp"));
  expect_close(torch::addmm(parts, put(x, P(whole, "dp")), put(w, P("dp"))),
               torch::addmm(bias, x, w));
}

TEST_F(ShardedKernels, AnEmbeddingGradientWhoseWidthWantsTheRowsAxis) {
  auto table = torch::randn({6, 4}).requires_grad_();
  auto sharded = put(table.detach(), P("tp")).requires_grad_();
  const auto ids = torch::tensor({0, 5, 2, 2}), scale = torch::randn({4, 4});
  (F::embedding(ids, table) * scale).sum().backward();
  (F::embedding(ids, sharded) * put(scale, P(whole, "tp"))).sum().backward();
  expect_close(sharded.grad(), table.grad());
}

TEST_F(ShardedKernels, InfinityInAClassNobodyAskedFor) {
  auto logits = torch::randn({8, 6});
  logits.select(1, 0).fill_(-std::numeric_limits<float>::infinity());
  logits.select(1, 3).fill_(-std::numeric_limits<float>::infinity());
  const auto targets = torch::tensor({1, 2, 4, 5, -100, 1, 2, 4});
  const auto dense = F::cross_entropy(logits, targets);
  ASSERT_TRUE(dense.isfinite().item<bool>());
  expect_close(F::cross_entropy(put(logits, P("dp", "tp")), put(targets, P("dp"))), dense);
}

TEST_F(ShardedKernels, ABatchThatIsAllIgnored) {
  const auto targets = torch::full({8}, -100, torch::kLong);
  auto dense = torch::randn({8, 6}).requires_grad_();
  auto sharded = put(dense.detach(), P("dp", "tp")).requires_grad_();
  F::cross_entropy(dense, targets).backward();
  F::cross_entropy(sharded, put(targets, P("dp"))).backward();
  expect_close(sharded.grad(), dense.grad());
}

TEST_F(ShardedKernels, MeansOf16BitNumbers) {
  const auto x = torch::full({70000}, 2.0, torch::kHalf);
  expect_close(put(x, P("dp")).mean(), x.mean());
  expect_close(put(x.view({2, 35000}), P(whole, "dp")).mean(1), x.view({2, 35000}).mean(1));
  const auto y = torch::zeros({70000}, torch::kHalf);
  expect_close(torch::mse_loss(put(x, P("dp")), put(y, P("dp"))), torch::mse_loss(x, y));
}

TEST_F(ShardedKernels, MeanLossesCountBroadcastElements) {
  const auto x = torch::randn({4, 1}), y = torch::randn({4, 3});
  expect_close(at::mse_loss(put(x, P("dp")), put(y, P("dp"))), at::mse_loss(x, y));
}

TEST_F(ShardedKernels, LogSoftmaxOfAScalar) {
  expect_close(at::log_softmax(put(torch::tensor(2.0), P()), 0), torch::tensor(0.0));
}

TEST_F(ShardedKernels, ByteTargets) {
  const auto logits = torch::randn({8, 6});
  const auto targets = torch::randint(6, {8}, torch::kByte);
  expect_close(at::nll_loss(put(logits, P("dp", "tp")), put(targets, P("dp"))),
               at::nll_loss(logits, targets));
}

TEST_F(ShardedKernels, EqualComparesWhereItLies) {
  const auto x = torch::randn({8, 6});
  const auto a = put(x, P("dp", "tp"));
  auto other = x.clone();
  other[7][5] += 1;
  runtime.ledger().clear();
  EXPECT_TRUE(at::equal(a, put(x, P("dp", "tp"))));
  EXPECT_FALSE(at::equal(a, put(other, P("dp", "tp"))));
  EXPECT_FALSE(at::equal(a, put(x.narrow(0, 0, 4), P("dp"))));
  EXPECT_LT(runtime.ledger().bytes([](const LedgerEntry&) { return true; }), 32);
  try {
    at::equal(a, put(x.to(torch::kDouble), P("dp", "tp")));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[aten::equal] other: is Double, self is Float; give both the same dtype");
  }
}

TEST_F(ShardedKernels, CircularPaddingStaysSharded) {
  const auto x = torch::randn({8, 3, 5, 4});
  const auto pad = [](const at::Tensor& input, std::vector<std::int64_t> sizes) {
    return at::_pad_circular(input, sizes);
  };
  runtime.ledger().clear();
  const auto padded = pad(put(x, P("dp", "tp")), {1, 2, 5, 0});
  EXPECT_EQ(sharding_of(padded).spec, P("dp", "tp"));
  EXPECT_TRUE(runtime.ledger().entries().empty());
  expect_close(padded, pad(x, {1, 2, 5, 0}));
  expect_close(pad(put(x, P("dp")), {-1, 2, 0, 0}), pad(x, {-1, 2, 0, 0}));
  EXPECT_THROW(pad(put(x, P("dp")), {5, 0, 0, 0}), c10::Error);
}

}  // namespace
}  // namespace meshtorch
