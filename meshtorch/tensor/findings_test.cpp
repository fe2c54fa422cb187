// SPDX-License-Identifier: Apache-2.0
//
// What a sharded tensor must get right where a naive one goes silently wrong:
// aliases, views, writes, metadata in place, fresh buffers, plain destinations,
// empty shards. Numbers are those of the design.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/testing.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;

class Findings : public testing::Test {
 protected:
  at::Tensor put(const at::Tensor& x, const P& spec) { return device_put(x, {grid, spec}); }
  // Leaf weight whose gradient comes out unreduced over dp.
  at::Tensor weight(const at::Tensor& value) { return put(value, P()).requires_grad_(); }

  // Every device that should hold the same does.
  void expect_value(const at::Tensor& x, const at::Tensor& dense) {
    ASSERT_TRUE(is_sharded(x));
    ASSERT_EQ(x.sizes(), dense.sizes());
    EXPECT_TRUE(torch::allclose(full(x), dense, 1e-5, 1e-6))
        << full(x) << dense << sharding_of(x).spec;
    if (!sharding_of(x).spec.unreduced_axes().empty()) return;
    for (const Shard& shard : addressable_shards(x)) {
      at::Tensor slice = dense;
      for (std::size_t d = 0; d < shard.index.size(); ++d) {
        slice = slice.slice(static_cast<std::int64_t>(d), shard.index[d].begin, shard.index[d].end);
      }
      EXPECT_TRUE(torch::allclose(shard.data, slice, 1e-5, 1e-6)) << "device " << shard.device;
    }
  }

  std::int64_t collectives() {
    return static_cast<std::int64_t>(runtime.ledger().entries().size());
  }

  Runtime runtime{{.devices = 8, .warn_fallback = false}};
  Mesh grid = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
};

const std::vector<P>& every_spec() {
  static const std::vector<P> specs{
      P(), P("dp"), P(whole, "tp"), P("tp", "dp"), P().unreduced("dp"), P("tp").unreduced("dp")};
  return specs;
}

// 1

TEST_F(Findings, ReadingAGradientLeavesItUnreduced) {
  const auto values = torch::randn({2, 4, 3});
  auto w = weight(torch::ones({3}));
  auto dense = torch::ones({3}, torch::requires_grad());
  for (int micro = 0; micro < 2; ++micro) {
    (put(values[micro], P("dp")) * w).sum().backward();
    (values[micro] * dense).sum().backward();
    ASSERT_EQ(sharding_of(w.grad()).spec, P().unreduced("dp"));
    expect_value(w.grad().exp(), dense.grad().exp());
    EXPECT_NEAR(w.grad().norm().item<double>(), dense.grad().norm().item<double>(), 1e-5);
    EXPECT_NEAR(w.grad().abs().max().item<double>(), dense.grad().abs().max().item<double>(), 1e-5);
    ASSERT_EQ(sharding_of(w.grad()).spec, P().unreduced("dp"));
  }
  expect_value(w.grad(), dense.grad());
}

TEST_F(Findings, ClippingBetweenMicrobatches) {
  const auto values = torch::randn({2, 4, 3});
  auto w = weight(torch::ones({3}));
  auto dense = torch::ones({3}, torch::requires_grad());
  for (int micro = 0; micro < 2; ++micro) {
    (put(values[micro], P("dp")) * w).sum().backward();
    (values[micro] * dense).sum().backward();
    torch::nn::utils::clip_grad_norm_({w}, 0.5);
    torch::nn::utils::clip_grad_norm_({dense}, 0.5);
    torch::nn::utils::clip_grad_value_({w}, 0.2);
    torch::nn::utils::clip_grad_value_({dense}, 0.2);
  }
  expect_value(w.grad(), dense.grad());
}

TEST_F(Findings, TheReducedValueIsKeptUntilAWrite) {
  auto x = put(torch::randn({4}), P().unreduced("dp"));
  auto y = x.view({2, 2});
  runtime.ledger().clear();
  x.exp();
  x.sin();
  EXPECT_EQ(collectives(), 1);
  auto before = full(x);
  y.add_(put(torch::ones({2, 2}), P().unreduced("dp")));
  expect_value(x.exp(), (before + 1).exp());
  y.mul_(2);
  expect_value(x.exp(), (2 * (before + 1)).exp());
  x.detach().zero_();
  expect_value(y.cos(), torch::ones({2, 2}));
}

TEST_F(Findings, EveryViewSeesAnAccumulation) {
  const auto dense = torch::randn({4, 2});
  auto base = torch::zeros_like(put(torch::zeros({4, 2}), P()));
  auto row = base[1];
  auto other = base.detach();
  base.add_(put(dense, P().unreduced("dp")));
  expect_value(base, dense);
  expect_value(row, dense[1]);
  expect_value(other, dense);
  row.add_(put(dense[0], P().unreduced("tp")));
  auto expected = dense.clone();
  expected[1].add_(dense[0]);
  expect_value(base, expected);
  expect_value(other, expected);
}

// The pieces of unsafe_chunk share memory, and its schema does not say so.
TEST_F(Findings, PiecesOfAnUnsafeChunk) {
  const auto dense = torch::randn({2, 6});
  auto pieces = (put(dense, P()) * 1).unsafe_chunk(3, 1);
  const auto addend = torch::randn({2, 2});
  pieces[0].add_(put(addend, P().unreduced("dp")));
  expect_value(pieces[0].exp(), (dense.slice(1, 0, 2) + addend).exp());
  expect_value(pieces[1].exp(), dense.slice(1, 2, 4).exp());
  expect_value(pieces[2] * 2, dense.slice(1, 4, 6) * 2);
}

// 2

TEST_F(Findings, InPlaceOnViewsDifferentiatesAsDense) {
  const auto value = torch::randn({4, 4});
  const auto other = torch::randn({4});
  for (const P& spec : every_spec()) {
    for (int variant = 0; variant < 6; ++variant) {
      const auto program = [&](const at::Tensor& x) {
        at::Tensor y = x * 2;
        const at::Tensor o = is_sharded(x) ? put(other, P()) : other;
        if (variant == 0) y[1].mul_(o);
        if (variant == 1) y.t().slice(1, 1, 3).mul_(3).add_(1);
        if (variant == 2) y.view({16}).slice(0, 4, 8).copy_(o);
        if (variant == 3) y.select(1, 2).zero_();
        if (variant == 4) y.diagonal().add_(o).sigmoid_();
        if (variant == 5) {
          auto v = y.transpose(0, 1);
          v.mul_(v.detach().clone());
        }
        return y;
      };
      auto dense = value.clone().requires_grad_();
      auto x = put(value, spec).requires_grad_();
      at::Tensor y;
      try {
        y = program(x);
      } catch (const Error& error) {
        // A view that had to communicate may not be written; then it says so.
        EXPECT_THAT(error.what(), HasSubstr("had to communicate")) << spec << " " << variant;
        continue;
      }
      const auto expected = program(dense);
      expect_value(y, expected.detach());
      (y * y).sum().backward();
      (expected * expected).sum().backward();
      EXPECT_TRUE(torch::allclose(full(x.grad()), dense.grad())) << spec << " " << variant;
    }
  }
}

// As above, and the view is made of others: each of them may be the one that
// does not fit.
TEST_F(Findings, InPlaceOnAChainOfViewsUnderAnotherGradientLayout) {
  const auto value = torch::randn({4, 6}), other = torch::randn({4, 6});
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> chains{
      [](const at::Tensor& y) { return y.t().slice(0, 1, 5).slice(1, 1, 3); },
      [](const at::Tensor& y) {
        return y.view({2, 2, 6}).select(1, 1).slice(1, 0, 4, 2);
      },
      [](const at::Tensor& y) {
        return y.unsqueeze(0).view({24}).slice(0, 2, 20).view({3, 6});
      },
      [](const at::Tensor& y) { return y.slice(1, 3).diagonal(); },
      [](const at::Tensor& y) { return y.unfold(1, 3, 3).select(2, 1).t(); }};
  for (const P& of_gradient : every_spec()) {
    for (std::size_t i = 0; i < chains.size(); ++i) {
      SCOPED_TRACE(of_gradient.to_string() + " chain " + std::to_string(i));
      auto dense = value.clone().requires_grad_();
      auto x = put(value, P()).requires_grad_();
      const auto y = dense * 2, z = x * 2;
      chains[i](y).mul_(3).sin_();
      chains[i](z).mul_(3).sin_();
      expect_value(z.detach(), y.detach());
      (y * other).sum().backward();
      (z * put(other, of_gradient)).sum().backward();
      expect_value(x.grad(), dense.grad());
    }
  }
}

// libtorch keeps how it records views per thread.
TEST_F(Findings, InPlaceOnViewsInAnotherThread) {
  const auto value = torch::randn({4, 4});
  auto dense = value.clone().requires_grad_();
  auto x = put(value, P("dp")).requires_grad_();
  const auto program = [](const at::Tensor& leaf) {
    const auto y = leaf * 2;
    y.t().slice(0, 1, 3).mul_(3);
    (y * y).sum().backward();
  };
  program(dense);
  std::thread([&] { program(x); }).join();
  expect_value(x.grad(), dense.grad());
}

// The gradient may be laid out so that the view of it has to communicate where
// the view of the value had not to.
TEST_F(Findings, InPlaceOnAViewUnderAnotherGradientLayout) {
  const auto value = torch::randn({4, 4}), other = torch::randn({4, 4});
  auto dense = value.clone().requires_grad_();
  auto x = put(value, P()).requires_grad_();
  const auto y = dense * 2, z = x * 2;
  y.slice(0, 1, 3).mul_(3);
  z.slice(0, 1, 3).mul_(3);
  (y * other).sum().backward();
  (z * put(other, P("dp"))).sum().backward();
  expect_value(x.grad(), dense.grad());
}

// 3

TEST_F(Findings, MutationReachesTheTensor) {
  const auto value = torch::randn({4, 6});
  const auto mask = torch::randn({4, 6}) > 0;
  const std::vector<std::pair<const char*, std::function<void(at::Tensor)>>> programs{
      {"clamp_", [](at::Tensor x) { x.clamp_(-0.5, 0.5); }},
      {"masked_fill_",
       [&](at::Tensor x) { x.masked_fill_(is_sharded(x) ? put(mask, P("dp")) : mask, 7); }},
      {"masked_fill_ plain", [&](at::Tensor x) { x.masked_fill_(mask, 7); }},
      {"exp_", [](at::Tensor x) { x.exp_(); }},
      {"add_ scalar", [](at::Tensor x) { x.add_(3); }},
      {"sub_ tensor", [&](at::Tensor x) { x.sub_(mask.to(torch::kFloat)); }},
      {"mul_", [](at::Tensor x) { x.mul_(0.5).relu_(); }},
      {"fill_", [](at::Tensor x) { x.fill_(2); }},
      {"copy_", [&](at::Tensor x) { x.copy_(mask); }},
      {"copy_ row", [&](at::Tensor x) { x.copy_(value[0]); }},
      {"sort out of place, back", [](at::Tensor x) { x.copy_(std::get<0>(x.sort(0))); }},
      {"index_fill_",
       [](at::Tensor x) {
         x.index_fill_(0, torch::tensor({1, 3}), 9);
       }},
      {"index_add_",
       [](at::Tensor x) {
         x.index_add_(1, torch::tensor({1, 1}), torch::ones({4, 2}));
       }},
      {"index_put_",
       [](at::Tensor x) {
         x.index_put_({torch::tensor({0, 2})}, torch::ones({6}));
       }},
      {"index_put_ mask", [&](at::Tensor x) { x.index_put_({mask}, torch::tensor(5.0f)); }},
      {"scatter_",
       [](at::Tensor x) {
         x.scatter_(1, torch::tensor({{0, 1}, {2, 3}}), 4);
       }},
      {"masked_scatter_",
       [&](at::Tensor x) { x.masked_scatter_(mask, torch::arange(24).to(torch::kFloat)); }},
      {"tril_", [](at::Tensor x) { x.tril_(); }},
      {"cumsum_", [](at::Tensor x) { x.cumsum_(0); }},
      {"erfinv_ and nan_to_num_", [](at::Tensor x) { x.erfinv_().nan_to_num_(); }},
      {"lerp_",
       [&](at::Tensor x) {
         x.lerp_(torch::ones({4, 6}), 0.25);
       }},
      {"addcmul_",
       [&](at::Tensor x) {
         x.addcmul_(torch::ones({4, 6}), torch::full({6}, 2.0), 0.5);
       }},
      {"addmm_",
       [&](at::Tensor x) {
         x.addmm_(torch::ones({4, 3}), torch::ones({3, 6}), 0.5, 2);
       }},
      {"renorm_", [](at::Tensor x) { x.renorm_(2, 0, 1); }},
      {"floor_divide_", [](at::Tensor x) { x.floor_divide_(0.3); }},
      {"put_",
       [](at::Tensor x) {
         x.put_(torch::tensor({1, 7}), torch::tensor({5.0f, 6.0f}));
       }},
      {"foreach",
       [](at::Tensor x) {
         at::_foreach_mul_({x, x}, 2.0);
       }},
  };
  for (const P& spec : every_spec()) {
    for (const auto& [name, program] : programs) {
      SCOPED_TRACE(name + (" on " + spec.to_string()));
      auto dense = value.clone();
      auto x = put(value, spec);
      auto alias = x.detach();
      program(dense);
      program(x);
      expect_value(x, dense);
      expect_value(alias, dense);
      EXPECT_EQ(sharding_of(x).spec, spec);
    }
  }
}

TEST_F(Findings, WritingThroughAViewThatHadToCommunicateIsAnError) {
  auto x = put(torch::randn({6, 4}), P(whole, "tp"));
  auto flat = x.view({24});  // dim 1 is the minor one
  EXPECT_THAT(message([&] { flat.add_(1); }),
              AllOf(HasSubstr("[aten::add_.Scalar] self: writes through a view "
                              "that had to communicate "
                              "(aten::view)"),
                    HasSubstr("; reshard the base first so that the view is "
                              "local, or clone() the view")));
  EXPECT_THAT(message([&] { x.zero_(); }),
              HasSubstr("[aten::zero_] self: writes to the base of a view that "
                        "had to communicate "
                        "(aten::view) and is "
                        "still alive"));
  EXPECT_THAT(message([&] { x[0].fill_(1); }), HasSubstr("is still alive"));
  EXPECT_THAT(message([&] { x.normal_(); }), HasSubstr("is still alive"));
  flat.reset();
  x.zero_();
  expect_value(x, torch::zeros({6, 4}));
}

// Whether or not the handles between them live.
TEST_F(Findings, ACopyOfACopyIsOneOfTheBase) {
  auto x = put(torch::randn({6, 4}), P(whole, "tp"));
  auto rows = x.view({24}).view({2, 3, 4}).transpose(0, 1);
  auto flat = x.view({24}).view({3, 8}).select(0, 1);
  EXPECT_THAT(message([&] { rows.add_(1); }), HasSubstr("had to communicate"));
  EXPECT_THAT(message([&] { flat.add_(1); }), HasSubstr("had to communicate"));
  EXPECT_THAT(message([&] { x.add_(1); }), HasSubstr("had to communicate"));
  rows.reset();
  flat.reset();
  x.zero_();
  expect_value(x, torch::zeros({6, 4}));
}

TEST_F(Findings, WritesThatLibtorchRefuses) {
  for (const P& spec : every_spec()) {
    SCOPED_TRACE(spec.to_string());
    auto counts = put(torch::ones({4, 4}, torch::kLong), spec);
    EXPECT_THAT(message([&] {
                  counts.add_(put(torch::ones({4, 4}), P("tp")));
                }),
                HasSubstr("result type Float can't be cast to the desired output type Long"));
    EXPECT_THAT(message([&] {
                  torch::exp_out(counts, put(torch::ones({4, 4}), spec));
                }),
                HasSubstr("result type Float can't be cast to the desired output type Long"));
    expect_value(counts, torch::ones({4, 4}, torch::kLong));
    auto row = put(torch::ones({1, 4}), spec);
    EXPECT_THAT(message([&] {
                  row.expand({3, 4}).add_(1);
                }),
                HasSubstr("more than one element of the written-to tensor "
                          "refers to a single"));
    EXPECT_THAT(message([&] {
                  row.expand({3, 4}).t().fill_(1);
                }),
                HasSubstr("more than one element of the written-to tensor "
                          "refers to a single"));
    expect_value(row, torch::ones({1, 4}));
  }
}

TEST_F(Findings, FillDiagonal) {
  for (const P& spec : every_spec()) {
    auto dense = torch::randn({7, 3}), cube = torch::randn({4, 4, 4});
    auto x = put(dense, spec), y = put(cube, spec);
    auto view = x.slice(0, 0, 7), tail = y.select(2, 1);
    view.fill_diagonal_(5, true);
    dense.fill_diagonal_(5, true);
    tail.fill_diagonal_(3);
    cube.select(2, 1).fill_diagonal_(3);
    y.fill_diagonal_(2);
    cube.fill_diagonal_(2);
    expect_value(x, dense);
    expect_value(y, cube);
  }
}

TEST_F(Findings, AsStridedCountsFromItsView) {
  const auto value = torch::randn({4, 4});
  auto x = put(value, P());
  auto rows = x.slice(0, 1, 3);
  expect_value(x.as_strided({4}, {5}), value.diagonal());
  expect_value(x.as_strided({2}, {5}, 4), value.diagonal(-1).slice(0, 0, 2));
  expect_value(rows.as_strided({2}, {5}), value.slice(0, 1, 3).diagonal());
  rows.as_strided({2}, {5}).zero_();
  auto expected = value.clone();
  expected.slice(0, 1, 3).diagonal().zero_();
  expect_value(x, expected);
  for (const std::int64_t offset : {0, 4}) {
    EXPECT_THAT(message([&] { rows.as_strided({2}, {5}, offset); }),
                HasSubstr("[aten::as_strided] storage_offset: counts in the "
                          "memory of a base"));
  }
}

TEST_F(Findings, UnbindOfADimOfNoElements) {
  const auto x = put(torch::zeros({2, 0, 4}), P("dp", whole, "tp"));
  EXPECT_TRUE(x.unbind(1).empty());
  EXPECT_EQ(x.unbind(0).size(), 2u);
}

// 4

TEST_F(Findings, MetadataInPlace) {
  const auto value = torch::randn({4, 1, 6});
  const std::vector<std::function<void(at::Tensor&)>> programs{
      [](at::Tensor& x) { x.squeeze_(); },         [](at::Tensor& x) { x.squeeze_(1); },
      [](at::Tensor& x) { x.unsqueeze_(0); },      [](at::Tensor& x) { x.transpose_(0, 2); },
      [](at::Tensor& x) { x.squeeze_(1).t_(); },   [](at::Tensor& x) { x.swapaxes_(0, 1); },
      [](at::Tensor& x) {
        x.resize_({4, 1, 6}); }, [](at::Tensor& x) { x.swapdims_(1, 2); },
      [](at::Tensor& x) { x.detach_(); }};
  for (const P& spec :
       {P(), P("dp"), P(whole, whole, "tp"), P("dp", whole, "tp"), P("tp").unreduced("dp")}) {
    for (std::size_t i = 0; i < programs.size(); ++i) {
      SCOPED_TRACE(spec.to_string() + " " + std::to_string(i));
      auto dense = value.clone();
      auto x = put(value, spec);
      auto alias = x.detach();
      programs[i](dense);
      programs[i](x);
      expect_value(x, dense);
      expect_value(alias, value);
      x.add_(1);
      expect_value(alias, value + 1);
      expect_value(x, dense + 1);
    }
  }
  auto x = put(value, P("dp"));
  auto y = put(torch::zeros({2}), P());
  y.set_(x);
  expect_value(y, value);
  y.add_(1);
  expect_value(x, value + 1);
  EXPECT_THAT(message([&] {
                x.resize_({2, 2});
              }),
              HasSubstr("[aten::resize_] self: a sharded tensor P(dp)"));
}

TEST_F(Findings, OutArgumentsThatResize) {
  const auto a = torch::randn({4, 3}), b = torch::randn({4, 3});
  auto out = put(torch::zeros({1}), P());
  torch::add_out(out, put(a, P("dp")), put(b, P("dp")));
  expect_value(out, a + b);
  auto fixed = put(torch::zeros({4, 3}), P(whole, "tp"));
  torch::add_out(fixed, put(a, P("dp")), put(b, P("dp")));
  expect_value(fixed, a + b);
  EXPECT_EQ(sharding_of(fixed).spec, P(whole, "tp"));
  auto plain = torch::empty({0});
  torch::mm_out(plain, put(a, P("dp")), b.t());
  expect_value(plain, a.mm(b.t()));
  auto wide = put(torch::zeros({1}, torch::kDouble), P());
  torch::add_out(wide, put(a, P("dp")), put(b, P("dp")));
  expect_value(wide, (a + b).to(torch::kDouble));
  std::vector<at::Tensor> pieces{put(torch::zeros({4}), P("dp")), put(torch::zeros({0}), P()),
                                 put(torch::zeros({4}), P())};
  at::unbind_copy_out(pieces, put(a, P("dp")), 1);
  for (int i = 0; i < 3; ++i) expect_value(pieces[static_cast<std::size_t>(i)], a.select(1, i));
  // Another size would part them from what shares their memory.
  auto base = put(torch::zeros({2, 3}), P());
  auto row = base[0];
  EXPECT_THAT(message([&] { torch::sum_out(row, put(a, P()), 1); }),
              HasSubstr("cannot change its size in place; make a new tensor"));
  EXPECT_THAT(message([&] { torch::add_out(base, put(a, P()), put(b, P())); }),
              HasSubstr("cannot change its size in place"));
  auto values = put(torch::zeros({4}), P()), indices = put(torch::zeros({4}, torch::kLong), P());
  torch::max_out(values, indices, put(a, P("dp")), 1);
  expect_value(values, std::get<0>(a.max(1)));
  expect_value(indices, std::get<1>(a.max(1)));
}

// 5

TEST_F(Findings, AReshardNeverSharesWritableStorage) {
  for (const P& from : every_spec()) {
    for (const P& to : every_spec()) {
      auto x = put(torch::zeros({4, 4}), from);
      auto y = reshard(x, to);
      y.fill_(1);
      EXPECT_EQ(x.sum().item<double>(), 0) << from << to;
      x.fill_(2);
      EXPECT_EQ(y.sum().item<double>(), 16) << from << to;
    }
  }
}

// 6

TEST_F(Findings, FreshBuffersMoveNothing) {
  auto x = put(torch::randn({4, 2}), P("dp"));
  auto loss = (x * x).sum();
  ASSERT_EQ(sharding_of(loss).spec, P().unreduced("dp"));
  runtime.ledger().clear();
  const auto ones = torch::ones_like(loss);
  torch::zeros_like(loss);
  torch::empty_like(loss);
  loss.new_zeros({3, 3});
  loss.new_empty({5});
  loss.new_ones({5});
  loss.new_full({5}, 2);
  auto strided = loss.new_empty_strided({2, 3}, {1, 2});
  torch::rand_like(loss);
  torch::randn_like(loss);
  torch::full_like(loss, 3);
  EXPECT_EQ(collectives(), 0) << runtime.ledger().to_string();
  expect_value(ones, torch::ones({}));
  EXPECT_EQ(strided.strides(), (std::vector<std::int64_t>{1, 2}));
  auto u = put(torch::randn({4}), P().unreduced("dp"));
  runtime.ledger().clear();
  auto copy = torch::empty_like(u);
  copy.copy_(u);
  auto sum = torch::zeros_like(u);
  sum.add_(u);
  sum += u;
  const auto clone = u.clone();
  EXPECT_EQ(collectives(), 0) << runtime.ledger().to_string();
  EXPECT_EQ(sharding_of(copy).spec, P().unreduced("dp"));
  EXPECT_EQ(sharding_of(sum).spec, P().unreduced("dp"));
  expect_value(sum, 2 * full(u));
  u.zero_();
  EXPECT_NE(copy.abs().sum().item<double>(), 0);
}

// A buffer that something else sees keeps that something in step.
TEST_F(Findings, AFreshBufferWithAliases) {
  auto u = put(torch::randn({4}), P().unreduced("dp"));
  for (const bool add : {false, true}) {
    auto buffer = torch::zeros_like(u);
    auto alias = buffer.detach();
    auto view = buffer.view({2, 2});
    add ? buffer.add_(u) : buffer.copy_(u);
    expect_value(buffer, full(u));
    expect_value(alias, full(u));
    expect_value(view, full(u).view({2, 2}));
  }
}

TEST_F(Findings, BackwardAddsNoCollective) {
  auto w = weight(torch::randn({3, 2}));
  runtime.ledger().clear();
  for (int micro = 0; micro < 3; ++micro) {
    auto x = put(torch::randn({4, 3}), P("dp"));
    x.mm(w).square().sum().backward();
  }
  EXPECT_EQ(collectives(), 0) << runtime.ledger().to_string();
}

// 7

TEST_F(Findings, InPlaceOnAPlainTensorMakesItSharded) {
  const auto value = torch::randn({4});
  auto total = torch::zeros({});
  auto handle = total;
  for (int i = 0; i < 3; ++i) total += put(value, P("dp")).sum();
  EXPECT_TRUE(is_sharded(handle));
  expect_value(handle, 3 * value.sum());
  auto plain = torch::zeros({4, 3});
  plain.mul_(2).add_(put(torch::ones({4, 3}), P("dp")));
  expect_value(plain, torch::ones({4, 3}));
  auto buffer = torch::zeros({4});
  buffer.copy_(put(value, P("dp")));
  expect_value(buffer, value);
}

// Its other handles must see the value, and they cannot become sharded.
TEST_F(Findings, WritingToAViewOfAPlainTensor) {
  const auto value = torch::randn({4, 3});
  auto base = torch::zeros({5, 3});
  base.slice(0, 1).copy_(put(value, P("dp")));
  EXPECT_FALSE(is_sharded(base));
  EXPECT_TRUE(torch::equal(base.slice(0, 1), value));
  base[0].add_(put(value, P("dp")).sum(0));
  EXPECT_TRUE(torch::allclose(base[0], value.sum(0)));
  auto row = base[2];
  base.slice(0, 1).mul_(put(value, P(whole, "tp")));
  EXPECT_TRUE(torch::allclose(row, value[1] * value[1]));
  auto x = put(value, P("dp")).requires_grad_();
  auto target = torch::zeros({4, 6});
  target.slice(1, 0, 3).copy_(x * 2);
  target.square().sum().backward();
  EXPECT_TRUE(torch::allclose(full(x.grad()), 8 * value));
}

TEST_F(Findings, LibtorchsOwnPlainDestinations) {
  const auto ids = torch::tensor({1, 0, 3, 2, 2});
  for (const P& spec : {P(), P("dp")}) {
    expect_value(torch::one_hot(put(ids, spec)), torch::one_hot(ids));
    expect_value(torch::one_hot(put(ids, spec), 6), torch::one_hot(ids, 6));
    const auto image = torch::randn({4, 6, 3, 3});
    const torch::nn::LocalResponseNorm norm(2);
    auto module = norm;
    expect_value(module(put(image, spec)), module(image));
  }
}

TEST_F(Findings, StrictModeRefusesAPlainDestination) {
  mode_scope strict(Mode::strict);
  auto total = torch::zeros({});
  EXPECT_THAT(message([&] { total += put(torch::ones({4}), P("dp")).sum(); }),
              AllOf(HasSubstr("[aten::add_.Tensor] self: strict mode: a plain "
                              "tensor is written "
                              "with a sharded operand"),
                    HasSubstr("; device_put or replicate it first")));
  EXPECT_FALSE(is_sharded(total));
}

// 8

TEST_F(Findings, HostOutputsStayPlain) {
  const auto value = torch::randn({5, 3, 2});
  const auto lengths = torch::tensor({5, 3, 2});
  for (const P& spec : {P(), P(whole, "dp"), P("dp")}) {
    const auto packed = torch::nn::utils::rnn::pack_padded_sequence(put(value, spec), lengths);
    const auto dense = torch::nn::utils::rnn::pack_padded_sequence(value, lengths);
    EXPECT_FALSE(is_sharded(packed.batch_sizes()));
    EXPECT_TRUE(torch::equal(packed.batch_sizes(), dense.batch_sizes()));
    expect_value(packed.data(), dense.data());
    const auto padded = torch::nn::utils::rnn::pad_packed_sequence(packed);
    EXPECT_TRUE(torch::equal(full(std::get<0>(padded)),
                             std::get<0>(torch::nn::utils::rnn::pad_packed_sequence(dense))));
  }
}

TEST_F(Findings, CompositesThatReadTheHost) {
  const auto value = torch::randn({6, 4});
  for (const P& spec : {P(), P("dp"), P(whole, "tp")}) {
    const auto x = put(value, spec);
    expect_value(x.quantile(torch::tensor({0.25, 0.5}), 0),
                 value.quantile(torch::tensor({0.25, 0.5}), 0));
    const auto pieces = x.tensor_split(torch::tensor({2, 3}), 0);
    ASSERT_EQ(pieces.size(), 3u);
    expect_value(pieces[2], value.slice(0, 3));
    expect_value(x.quantile(0.5), value.quantile(0.5));
    expect_value(x.nanquantile(put(torch::tensor({0.1, 0.9}), P()), 1),
                 value.nanquantile(torch::tensor({0.1, 0.9}), 1));
    expect_value(x.tensor_split(put(torch::tensor({2, 3}), P("dp")), 0)[0], value.slice(0, 0, 2));
    expect_value(torch::histc(x, 4, -1, 1), torch::histc(value, 4, -1, 1));
    expect_value(std::get<0>(torch::unique_dim(x, 0)), std::get<0>(torch::unique_dim(value, 0)));
    expect_value(x.repeat_interleave(torch::tensor({1, 2, 0, 1, 1, 3}), 0),
                 value.repeat_interleave(torch::tensor({1, 2, 0, 1, 1, 3}), 0));
  }
}

// 9

TEST_F(Findings, EmptyShards) {
  const Mesh line = runtime.make_mesh({{"dp", 8}});
  for (const std::int64_t rows : {1, 2, 3, 5}) {
    const auto value = torch::randn({rows, 4});
    const auto x = device_put(value, {line, P("dp")});
    SCOPED_TRACE(rows);
    EXPECT_NEAR(x.mean().item<double>(), value.mean().item<double>(), 1e-6);
    expect_value(x.mean(0), value.mean(0));
    expect_value(x.mean(1), value.mean(1));
    EXPECT_EQ(x.max().item<float>(), value.max().item<float>());
    EXPECT_EQ(x.min().item<float>(), value.min().item<float>());
    expect_value(std::get<0>(x.max(0)), std::get<0>(value.max(0)));
    expect_value(std::get<1>(x.max(1)), std::get<1>(value.max(1)));
    expect_value(std::get<0>(x.topk(2, 1)), std::get<0>(value.topk(2, 1)));
    expect_value(std::get<1>(x.topk(1, 0)), std::get<1>(value.topk(1, 0)));
    expect_value(x.argmax(), value.argmax());
    expect_value(x.softmax(0), value.softmax(0));
    expect_value(x.softmax(1), value.softmax(1));
    expect_value(x.log_softmax(0), value.log_softmax(0));
    expect_value(x.prod(0), value.prod(0));
    expect_value(x.var(0, false), value.var(0, false));
    expect_value(x.any(0), value.any(0));
    expect_value(x.cumsum(0), value.cumsum(0));
    expect_value(torch::cat({x, x}, 0), torch::cat({value, value}, 0));
    expect_value(x.mm(torch::ones({4, 2})), value.mm(torch::ones({4, 2})));
    expect_value(x.t().mm(x), value.t().mm(value));
    expect_value(x.flatten(), value.flatten());
    expect_value(x.norm(), value.norm());
    expect_value(x.unsqueeze(1).expand({rows, 2, 4}).contiguous(),
                 value.unsqueeze(1).expand({rows, 2, 4}));
  }
}

// Tensors of no elements at all behave as dense ones.
TEST_F(Findings, NoElements) {
  const auto value = torch::zeros({0, 4});
  const auto x = put(value, P("dp"));
  expect_value(x.sum(0), value.sum(0));
  expect_value(x + 1, value);
  expect_value(x.mm(torch::ones({4, 2})), torch::zeros({0, 2}));
  expect_value(x.t().mm(x), torch::zeros({4, 4}));
  EXPECT_TRUE(std::isnan(x.mean().item<double>()));
  EXPECT_NE(message([&] { x.max(); }), "");
}

// Strict mode

TEST_F(Findings, StrictModeNamesTheOpAndBothLayouts) {
  const auto x = put(torch::randn({4, 4}), P("dp")), y = put(torch::randn({4, 4}), P("tp"));
  const auto unknown = put(torch::randn({4, 4}), P("dp"));
  mode_scope strict(Mode::strict);
  EXPECT_THAT(message([&] { x.softmax(0); }),
              AllOf(HasSubstr("[aten::_softmax] self: strict mode: needs an implied all_to_all "
                              "over dp from P(dp) to P(-, dp)"),
                    HasSubstr("; reshard the operand explicitly, or run in mode automatic")));
  EXPECT_THAT(message([&] { at::_test_functorch_fallback(unknown, unknown); }),
              AllOf(HasSubstr("strict mode: the op has no rule, its operands "
                              "would be gathered"),
                    HasSubstr("P(dp)"), HasSubstr("Runtime::register_rule")));
  // What is asked for, and what is an algorithm's own sum, is no surprise.
  full(x);
  reshard(x, P());
  x.t().mm(x);
  x.sum().exp();
  EXPECT_EQ(x.mean().item<double>(), x.mean().item<double>());
  {
    mode_scope automatic(Mode::automatic);
    x.softmax(0);
  }
  EXPECT_NE(message([&] { x.softmax(0); }), "");
}

// Dense kernels throw here, and so must those that look up only what a device
// holds.
TEST_F(Findings, IndicesAndTargetsOutOfRange) {
  const auto table = torch::randn({4, 4});
  for (const std::int64_t bad : {-1, 4}) {
    const auto ids = torch::tensor({0, 1, 2, static_cast<int>(bad)}, torch::kLong);
    for (const P& spec : {P(), P("tp"), P("dp", "tp")}) {
      EXPECT_NE(message([&] { torch::embedding(put(table, spec), put(ids, P("dp"))); }), "")
          << spec << bad;
      EXPECT_NE(message([&] {
                  torch::nn::functional::cross_entropy(put(table, spec), put(ids, P("dp")));
                }),
                "")
          << spec << bad;
    }
    EXPECT_THAT(message([&] { torch::embedding(put(table, P("tp")), put(ids, P())); }),
                HasSubstr(text("[aten::embedding] indices: has row ", bad, ", expected 0 to 3; ")));
    EXPECT_THAT(message([&] {
                  torch::nn::functional::cross_entropy(put(table, P(whole, "tp")), put(ids, P()));
                }),
                HasSubstr(text("target: has class ", bad, ", expected 0 to 3; ")));
  }
}

// A view of an ordinary parameter is no inference tensor.
TEST_F(Findings, ModulesRunInInferenceMode) {
  for (const auto& axes : std::vector<std::vector<MeshAxis>>{{{"dp", 4}, {"tp", 2}}, {{"dp", 1}}}) {
    const Mesh mesh = runtime.make_mesh(axes);
    torch::nn::Linear model(4, 6);
    const auto x = torch::randn({8, 4});
    const auto expected = model->forward(x).detach();
    replicate(*model, mesh);
    const auto placed = device_put(x, {mesh, P("dp")});
    c10::InferenceMode inference;
    expect_value(model->forward(placed), expected);
    EXPECT_FALSE(model->weight.t().is_inference());
    EXPECT_TRUE((placed + 1).is_inference());
  }
}

TEST_F(Findings, StrictModeChangesNothingWhereItRefuses) {
  auto x = put(torch::ones({4, 4}), P("dp"));
  mode_scope strict(Mode::strict);
  EXPECT_NE(message([&] { x.cumsum_(0); }), "");
  expect_value(x, torch::ones({4, 4}));
}

// Case 16.
TEST_F(Findings, FallbacksAreCounted) {
  const auto x = put(torch::eye(4) * 2, P("dp"));
  at::_test_functorch_fallback(x, x);
  at::_test_functorch_fallback(x, x);
  ASSERT_FALSE(runtime.fallbacks().empty());
  EXPECT_EQ(runtime.fallbacks()[0].count, 2);
  EXPECT_THAT(runtime.fallbacks()[0].layouts, HasSubstr("P(dp)"));
}

// Finding 11: a bf16 parameter accumulates its gradient in fp32, where 256 + 1
// - 256 is 1.
TEST_F(Findings, GradientsOfABf16ParameterInFp32) {
  const Mesh mesh = runtime.make_mesh({{"dp", 4}});
  auto weight = device_put(torch::zeros({2}, torch::kBFloat16), {mesh, P()}).requires_grad_();
  weight.set_grad_dtype(torch::kFloat);
  for (const double scale : {256.0, 1.0, -256.0}) {
    const auto x = device_put(torch::full({4, 2}, scale / 4), {mesh, P("dp")});
    (weight.to(torch::kFloat) * x).sum().backward();
    EXPECT_EQ(sharding_of(weight.grad()).spec, P().unreduced("dp"));
  }
  EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
  EXPECT_TRUE(full(weight.grad()).equal(torch::ones({2})));
}

}  // namespace
}  // namespace meshtorch
