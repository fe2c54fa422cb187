// SPDX-License-Identifier: Apache-2.0
//
// A dry run inside a program costs what the planner says, and leaves no trace.
#include <meshtorch/tensor/dry_run.h>

#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <meshtorch/layout/plan.h>
#include <meshtorch/meshtorch.h>

namespace mt = meshtorch;
using mt::P;
using mt::whole;

namespace {

constexpr std::int64_t kItem = 4;  // bytes of a float

at::Tensor placed(const mt::Shape& shape, const mt::Mesh& mesh, const P& spec) {
  return mt::device_put(torch::empty(shape, torch::kMeta), {mesh, spec});
}

std::int64_t planned(const mt::Mesh& mesh, const mt::Shape& shape, const P& from, const P& to) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  return mt::plan_redistribution(mesh, shape, kItem, mt::resolve(mesh, from, rank),
                                 mt::resolve(mesh, to, rank))
      .bytes;
}

std::int64_t all_bytes(const mt::Ledger& ledger) {
  return ledger.bytes([](const mt::LedgerEntry&) { return true; });
}

// An op without a rule.
at::Tensor halved(const at::Tensor& x) { return x / 2; }

TORCH_LIBRARY(dry_run_test, m) {
  m.def("halved(Tensor x) -> Tensor");
  m.impl("halved", torch::dispatch(c10::DispatchKey::CPU, halved));
  m.impl("halved", torch::dispatch(c10::DispatchKey::Meta, halved));
}

at::Tensor call_halved(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("dry_run_test::halved", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

class DryRun : public testing::Test {
 protected:
  mt::Runtime runtime{{.devices = 2, .seed = 3, .warn_fallback = false}};
  mt::Mesh real = runtime.make_mesh({{"dp", 2}});
  mt::Mesh large{{{"dp", 4}, {"tp", 8}}};  // of 32 devices, where there are two
};

TEST_F(DryRun, CostsWhatThePlanSays) {
  const mt::Shape shape{64, 48};
  const std::vector<std::pair<P, P>> moves{{P("dp", "tp"), P("dp")},
                                           {P("dp", "tp"), P("tp", "dp")},
                                           {P("dp").unreduced("tp"), P("dp", "tp")},
                                           {P().unreduced("dp"), P()},
                                           {P("tp"), P("tp", "dp")}};
  for (const auto& [from, to] : moves) {
    mt::dry_run_scope dry(large);
    const at::Tensor moved = mt::reshard(placed(shape, dry.mesh(), from), to);
    EXPECT_EQ(mt::sharding_of(moved).spec, to);
    EXPECT_EQ(all_bytes(dry.ledger()), planned(large, shape, from, to)) << from << " to " << to;
  }
}

// x is [rows over dp, features over tp]: the product is a sum over tp, 2 (n-1)/n of a device's
// rows.
TEST_F(DryRun, CountsWhatAnOpMoves) {
  constexpr std::int64_t kRows = 64, kOut = 16;
  mt::dry_run_scope dry(large);
  const at::Tensor x = placed({kRows, 48}, dry.mesh(), P("dp", "tp"));
  const at::Tensor y = x.mm(placed({48, kOut}, dry.mesh(), P("tp")));
  EXPECT_EQ(mt::sharding_of(y).spec, P("dp").unreduced("tp"));
  EXPECT_TRUE(dry.ledger().entries().empty());
  torch::relu(y);
  EXPECT_EQ(all_bytes(dry.ledger()), 2 * 7 * (kRows / 4 * kOut * kItem) / 8);
  ASSERT_EQ(dry.ledger().entries().size(), 1u);
  EXPECT_EQ(dry.ledger().entries()[0].kind, mt::Collective::all_reduce);
  EXPECT_EQ(dry.ledger().entries()[0].axes, "tp");
}

// A fallback, draws of both kinds and collectives.
void leave_traces(const mt::Mesh& mesh, const at::Tensor& x) {
  mt::reshard(x, P());
  call_halved(x);
  torch::dropout(x, 0.5, true);
  mt::device_put(torch::randn({8, 8}), {mesh, P("dp")}).uniform_();
}

TEST_F(DryRun, LeavesNoTrace) {
  const at::Tensor x = mt::device_put(torch::ones({8, 8}), {real, P("dp")});
  leave_traces(real, x);
  const auto entries = runtime.ledger().entries().size();
  EXPECT_GT(entries, 0u);
  ASSERT_EQ(runtime.fallbacks().size(), 1u);
  torch::manual_seed(5);
  const at::Tensor next = torch::randn({3});
  torch::manual_seed(5);
  const auto random = runtime.random();
  {
    mt::dry_run_scope dry(large);
    leave_traces(dry.mesh(), placed({8, 8}, dry.mesh(), P("dp")));
    EXPECT_EQ(runtime.fallbacks().size(), 1u);
    EXPECT_FALSE(dry.ledger().entries().empty());
    EXPECT_NE(runtime.random().draws, random.draws);
  }
  EXPECT_EQ(runtime.random().seed, random.seed);
  EXPECT_EQ(runtime.random().draws, random.draws);
  EXPECT_TRUE(torch::equal(torch::randn({3}), next));
  EXPECT_EQ(runtime.ledger().entries().size(), entries);
  ASSERT_EQ(runtime.fallbacks().size(), 1u);
  EXPECT_EQ(runtime.fallbacks()[0].count, 1);
  EXPECT_EQ(runtime.communicator().devices(), 2);
  EXPECT_FALSE(runtime.options().meta);
}

// Plain tensors have values in it; one dry run may be in another; afterwards the real mesh is as it
// was.
TEST_F(DryRun, RealOpsWorkInsideAndAfter) {
  const at::Tensor value = torch::arange(16, torch::kFloat).view({4, 4});
  const at::Tensor x = mt::device_put(value, {real, P("dp")});
  {
    mt::dry_run_scope outer(large);
    EXPECT_EQ(value.mm(value).sum().item<float>(), 4 * 16 * 7.5 * 7.5 + 80 * 4);
    const at::Tensor w = placed({8, 8}, outer.mesh(), P("tp"));
    {
      mt::dry_run_scope inner(mt::Mesh({{"ep", 64}}));
      mt::reshard(placed({64}, inner.mesh(), P("ep")), P());
      EXPECT_EQ(all_bytes(inner.ledger()), 63 * kItem);
    }
    EXPECT_TRUE(outer.ledger().entries().empty());
    mt::reshard(w, P());
    EXPECT_EQ(all_bytes(outer.ledger()), planned(large, {8, 8}, P("tp"), P()));
  }
  EXPECT_TRUE(torch::equal(mt::full(x.mm(x)), value.mm(value)));
  EXPECT_EQ(all_bytes(runtime.ledger()),
            2 * 8 * kItem);  // x gathered for its use as a weight, then y
}

TEST_F(DryRun, EndsWhereAnExceptionLeavesIt) {
  const auto use_an_axis_that_is_not_there = [&] {
    mt::dry_run_scope dry(large);
    placed({8, 8}, dry.mesh(), P("ep"));
  };
  EXPECT_THROW(use_an_axis_that_is_not_there(), mt::Error);
  EXPECT_EQ(runtime.communicator().devices(), 2);
  EXPECT_EQ(mt::full(mt::device_put(torch::ones({4}), {real, P("dp")})).sum().item<float>(), 4);
}

}  // namespace
