// SPDX-License-Identifier: Apache-2.0
//
// That collectives which complete late change no bit, however a program ends or goes on.
#include "overlap.h"

#include <meshtorch/models/gpt.h>

namespace mt = meshtorch;
using mt::CollectiveLog;
using mt::expect_same_bits;
using mt::kDevices;
using mt::kLayerBytes;
using mt::P;
using mt::Reduce;
using mt::Training;
using mt::with;
using What = CollectiveLog::What;

namespace {

TEST(OverlapValues, AnEvaluationBetweenStepsSeesTheNewParameters) {
  for (int stage = 0; stage <= 3; ++stage) {
    const auto evaluated = [&](bool late) {
      return with({.zero = {.stage = stage}, .late = late}, [](Training& run) {
        const auto evaluate = [&] {
          const torch::NoGradGuard no_grad;
          return mt::full(run.model().forward(run.input())).clone();
        };
        run.train(2);
        const at::Tensor before = evaluate();
        run.train(2);
        const at::Tensor after = evaluate();
        run.train(2);
        auto all = run.values();
        all.insert(all.end(), {before, after});
        return all;
      });
    };
    SCOPED_TRACE(stage);
    expect_same_bits(evaluated(true), evaluated(false));
  }
}

TEST(OverlapValues, WithoutOverlapEveryCollectiveIsWaitedForWhereItStarts) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    Training run({.zero = {.stage = stage, .bucket_bytes = 2 * kLayerBytes, .overlap = false}});
    for (int step = 0; step < 3; ++step) run.train(2);
    const auto& events = run.log().events();
    int started = 0;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].what != What::start) continue;
      ++started;
      ASSERT_LT(i + 1, events.size());
      EXPECT_EQ(events[i + 1].what, What::wait);
      EXPECT_EQ(events[i + 1].name, events[i].name);
    }
    EXPECT_GE(started, 3 * 2);
    EXPECT_EQ(run.log().most_in_flight(), 1);
  }
}

mt::Gpt make_gpt() {
  torch::manual_seed(7);
  return mt::Gpt(mt::GptOptions{
      .vocabulary = 17, .length = 8, .width = 16, .layers = 2, .heads = 2, .tied = true});
}

mt::Batch make_batch(int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  const auto tokens = torch::randint(17, {16, 9}, torch::kLong);
  return {tokens.slice(1, 0, 8).contiguous(), tokens.slice(1, 1).contiguous()};
}

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> values;
  std::vector<std::string> ledger;  // sorted: an entry's place is where its collective was begun
};

std::vector<std::string> sorted_ledger(const mt::Ledger& ledger) {
  std::vector<std::string> lines;
  for (const auto& entry : ledger.entries()) {
    lines.push_back(mt::text(name(entry.kind), " ", entry.axes, " ", entry.bytes, " ",
                             entry.tensors, " ", entry.op, " ", name(entry.origin)));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

struct Gpt {
  mt::ZeroOptions zero;
  std::int64_t microbatches = 2;
};

// Five steps of a GPT on (dp=2, tp=2), whose vocabulary neither axis divides.
Outcome train_gpt(const Gpt& gpt, bool late) {
  const auto log = std::make_shared<CollectiveLog>();
  mt::Runtime runtime(
      {}, late ? mt::make_late_communicator(kDevices, log) : mt::make_local_communicator(kDevices));
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  auto model = make_gpt();
  mt::shard(*model, mesh, mt::gpt_sharding());
  mt::Zero<torch::optim::AdamW> optimizer(model->parameters(), gpt.zero,
                                          torch::optim::AdamWOptions(3e-3));
  Outcome outcome;
  for (int step = 0; step < 5; ++step) {
    double total = 0;
    for (const auto& micro :
         mt::microbatches(make_batch(step), gpt.microbatches, {mesh, P("dp")})) {
      std::optional<mt::reduce_scope> last;
      if (micro.last()) last.emplace(optimizer, Reduce::each);
      auto loss = model->loss(micro.inputs, micro.targets) * micro.weight();
      loss.backward();
      total += loss.item<double>();
    }
    optimizer.step();
    optimizer.zero_grad();
    outcome.losses.push_back(total);
  }
  outcome.ledger = sorted_ledger(runtime.ledger());
  for (const at::Tensor& parameter : model->parameters())
    outcome.values.push_back(mt::full(parameter.detach()).clone());
  EXPECT_EQ(log->count(What::drop), 0);
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.ledger, expected.ledger);
  expect_same_bits(got.values, expected.values);
}

TEST(OverlapValues, ChangesNoBitAndNoByte) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const Reduce reduce : {Reduce::once, Reduce::each}) {
      for (const bool more : {false, true}) {
        SCOPED_TRACE(testing::Message() << "stage " << stage << " each " << (reduce == Reduce::each)
                                        << " clipped, kept or bfloat16 " << more);
        Gpt gpt{.zero = {.stage = stage, .reduce = reduce, .bucket_bytes = 3000}};
        if (more) {
          gpt.zero.clip_norm = 0.5;
          gpt.zero.keep_gathered = stage == 3;
          gpt.zero.precision = mt::Precision::parse("params=float32,compute=bfloat16");
        }
        const Outcome normal = train_gpt(gpt, false);
        expect_same(train_gpt(gpt, true), normal);
        gpt.zero.overlap = false;
        expect_same(train_gpt(gpt, true), normal);
      }
    }
  }
}

TEST(OverlapValues, AModelKeepsItsValuesWhenZeroIsGone) {
  const auto outcome = [](bool late) {
    return with({.late = late}, [](Training& run) {
      run.train(2);
      run.drop_optimizer();
      return run.values();
    });
  };
  expect_same_bits(outcome(true), outcome(false));
}

TEST(OverlapValues, EverythingMayEndWithCollectivesInFlight) {
  for (int stage = 0; stage <= 3; ++stage) {
    with({.layers = 6, .zero = {.stage = stage, .bucket_bytes = kLayerBytes}}, [](Training& run) {
      run.train(1);
      run.train(1);
      run.microbatch(Reduce::each);
      EXPECT_GT(run.log().in_flight(), 0);
    });
  }
}

// A program that gives a batch up, after an error of its own say, and goes on: what it had reduced is
// no part of the next step.
TEST(OverlapValues, ABatchThatWasGivenUpLeavesNothingBehind) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const auto outcome = [&](bool late, bool gives_up) {
      return with({.zero = {.stage = stage, .bucket_bytes = 2 * kLayerBytes}, .late = late},
                  [&](Training& run) {
                    run.train(1);
                    const auto data = run.data();
                    if (gives_up) {
                      run.microbatch(Reduce::each);
                      EXPECT_THROW(run.fail_in_forward(), std::runtime_error);
                      run.optimizer().zero_grad();
                    }
                    run.set_data(data);
                    run.train(2);
                    run.train(2);
                    EXPECT_EQ(run.log().count(What::drop), 0);
                    return run.values();
                  });
    };
    const auto expected = outcome(false, false);
    expect_same_bits(outcome(false, true), expected);
    expect_same_bits(outcome(true, true), expected);
  }
}

// Parameters of which one process may hold more than another: each 288 bytes on tp 0 and 256 on tp 1.
TEST(OverlapProcesses, FillBucketsAlike) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    mt::Runtime runtime({.devices = kDevices});
    const auto mesh = runtime.make_mesh({{"tp", 2}, {"dp", 2}});
    torch::manual_seed(2);
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < 4; ++i) {
      parameters.push_back(mt::device_put(torch::randn({17, 8}), {mesh, P("tp")}).requires_grad_());
    }
    mt::Zero<torch::optim::SGD> optimizer(parameters, {.stage = stage, .bucket_bytes = 512},
                                          torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      runtime.ledger().clear();
      const auto x = mt::device_put(torch::randn({4, 8}), {mesh, P("dp")});
      std::vector<at::Tensor> losses;
      for (const at::Tensor& w : parameters) losses.push_back(x.matmul(w.t()).square().sum());
      torch::stack(losses).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_EQ(mt::reductions(runtime), 4);
      EXPECT_EQ(mt::gathers(runtime), 4);
    }
  }
}

}  // namespace
