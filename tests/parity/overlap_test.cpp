// SPDX-License-Identifier: Apache-2.0
//
// What ZeRO's collectives overlap with: when each is started, and what the program does until it waits.
#include "overlap.h"

#include <meshtorch/train/gather_schedule.h>

namespace mt = meshtorch;
using mt::expect_same_bits;
using mt::gathers;
using mt::kLayerBytes;
using mt::P;
using mt::Reduce;
using mt::reductions;
using mt::Training;
using mt::with;
using testing::ElementsAre;
using What = mt::CollectiveLog::What;

namespace {

TEST(Overlap, TheLastBackwardStartsABucketWhenItsGradientsAreFinal) {
  Training run({.layers = 6, .zero = {.bucket_bytes = 2 * kLayerBytes}});
  for (int i = 0; i < 3; ++i) run.microbatch();
  EXPECT_EQ(run.log().count(What::start), 0) << "before the last microbatch";
  run.log().clear();
  run.microbatch(Reduce::each);
  run.log().mark("step");
  run.optimizer().engine().reduce_gradients();
  EXPECT_THAT(run.log().lines(),
              ElementsAre("forward 0", "forward 1", "forward 2", "forward 3", "forward 4",
                          "forward 5",                                           //
                          "gradient 5", "gradient 4", "start reduce-scatter 0",  //
                          "gradient 3", "gradient 2", "start reduce-scatter 1",  //
                          "gradient 1", "gradient 0", "start reduce-scatter 2",  //
                          "wait reduce-scatter 0",  // no more than two in flight
                          "step", "wait reduce-scatter 1", "wait reduce-scatter 2"));
  EXPECT_EQ(run.log().most_in_flight(), 3);
  for (const auto& event : run.log().events()) {
    if (event.what == What::mark) continue;
    EXPECT_EQ(event.axes, "dp");
    EXPECT_EQ(event.op, "Zero::reduce_gradients");
  }
}

TEST(Overlap, WithoutTheScopeReductionsStartInStep) {
  Training run({.layers = 4, .zero = {.bucket_bytes = 2 * kLayerBytes}});
  for (int i = 0; i < 4; ++i) run.microbatch();
  EXPECT_EQ(run.log().count(What::start), 0);
  run.log().clear();
  run.optimizer().engine().reduce_gradients();
  EXPECT_THAT(run.log().lines(), ElementsAre("start reduce-scatter 0", "start reduce-scatter 1",
                                             "wait reduce-scatter 0", "wait reduce-scatter 1"));
}

// A bucket with room left goes where the next gradient does not fit, or when backward is over.
TEST(Overlap, ABackwardLeavesNoBucketBehind) {
  Training run({.layers = 3, .zero = {.bucket_bytes = 2 * kLayerBytes - 1}});
  run.microbatch(Reduce::each);
  run.log().mark("step");
  run.optimizer().engine().reduce_gradients();
  EXPECT_THAT(run.log().lines(),
              ElementsAre("forward 0", "forward 1", "forward 2", "gradient 2", "gradient 1",
                          "start reduce-scatter 0", "gradient 0", "start reduce-scatter 1",
                          "start reduce-scatter 2", "wait reduce-scatter 0", "step",
                          "wait reduce-scatter 1", "wait reduce-scatter 2"));
}

TEST(Overlap, ParametersArriveAtTheFirstUseOfTheirBucket) {
  Training run({.layers = 4, .zero = {.bucket_bytes = 2 * kLayerBytes}});
  run.microbatch();
  run.optimizer().engine().reduce_gradients();
  run.log().clear();
  run.optimizer().engine().update_parameters();
  EXPECT_THAT(run.log().lines(), ElementsAre("start all-gather 0", "start all-gather 1"));
  run.optimizer().zero_grad();
  run.log().clear();
  run.microbatch();
  EXPECT_THAT(run.log().lines(),
              ElementsAre("forward 0", "wait all-gather 0", "forward 1", "forward 2",
                          "wait all-gather 1", "forward 3",  //
                          "gradient 3", "gradient 2", "gradient 1", "gradient 0"));
  EXPECT_EQ(run.log().in_flight(), 0);
}

TEST(Overlap, AParameterThatWasNotUsedArrivesInTheNextStep) {
  Training run({.layers = 4, .zero = {.bucket_bytes = kLayerBytes}});
  run.train(1);
  run.log().clear();
  run.microbatch({}, {2});
  EXPECT_EQ(run.log().in_flight(), 1);
  run.step();
  EXPECT_THAT(run.log().lines(),
              testing::IsSupersetOf({"wait all-gather 0", "wait all-gather 1", "wait all-gather 3",
                                     "step", "wait all-gather 2"}));
  const auto lines = run.log().lines();
  const auto step = std::find(lines.begin(), lines.end(), "step");
  EXPECT_EQ(*(step + 1), "wait all-gather 2") << "before anything that step() writes";
}

// Each way of looking at a value waits for its bucket, and for no other.
TEST(Overlap, ReadingAParameterWaits) {
  const mt::ZeroOptions zero{.bucket_bytes = kLayerBytes};
  const at::Tensor dense = with({.zero = zero, .late = false}, [](Training& run) {
    run.train(1);
    return run.values()[1];
  });
  const std::vector<std::pair<std::string, std::function<at::Tensor(const at::Tensor&)>>> ways{
      {"full", [](const at::Tensor& w) { return mt::full(w); }},
      {"detach", [](const at::Tensor& w) { return mt::full(w.detach()); }},
      {"a view", [](const at::Tensor& w) { return mt::full(w.t()).t(); }},
      {"an op", [](const at::Tensor& w) { return mt::full(w * 1); }},
      {"reshard", [](const at::Tensor& w) { return mt::full(mt::reshard(w, P("dp"))); }},
      {"a shard", [](const at::Tensor& w) { return mt::addressable_shards(w)[2].data; }},
      {"item", [&](const at::Tensor& w) {
         EXPECT_EQ(w[0][0].item<float>(), dense[0][0].item<float>());
         return dense;
       }}};
  for (const auto& [name, look] : ways) {
    SCOPED_TRACE(name);
    with({.zero = zero}, [&look = look, &dense](Training& run) {
      run.train(1);
      run.log().clear();
      EXPECT_TRUE(torch::equal(look(run.model().weight(1)), dense));
      EXPECT_THAT(run.log().lines(), ElementsAre("wait all-gather 1"));
      EXPECT_EQ(run.log().in_flight(), 3);
    });
  }
}

TEST(Overlap, PrintingAndSavingWait) {
  const std::string path = testing::TempDir() + "overlap.safetensors";
  const auto text = [](bool late) {
    return with({.late = late}, [](Training& run) {
      run.train(1);
      return mt::to_string(run.model().weight(1).detach());
    });
  };
  EXPECT_EQ(text(true), text(false));
  with({}, [&](Training& run) {
    run.train(1);
    mt::save(run.model(), path);
    EXPECT_EQ(run.log().in_flight(), 0);
    const auto saved = run.values();
    run.train(1);
    mt::load(run.model(), path);  // over values that are under way
    expect_same_bits(run.values(), saved);
  });
}

TEST(Overlap, Stage2ReducesInEveryBackward) {
  Training run({.layers = 4, .zero = {.stage = 2, .bucket_bytes = 2 * kLayerBytes}});
  run.microbatch();
  run.microbatch();
  run.log().mark("step");
  run.optimizer().engine().reduce_gradients();
  const auto lines = run.log().lines();
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 4, lines.end()),
              ElementsAre("gradient 3", "gradient 2", "start reduce-scatter 0",  //
                          "gradient 1", "gradient 0", "start reduce-scatter 1",  //
                          "forward 0", "forward 1", "forward 2", "forward 3",    //
                          "gradient 3", "gradient 2", "start reduce-scatter 2",
                          "wait reduce-scatter 0",  //
                          "gradient 1", "gradient 0", "start reduce-scatter 3",
                          "wait reduce-scatter 1",  //
                          "step", "wait reduce-scatter 2", "wait reduce-scatter 3"));
}

// Four layers in groups of two, forward and then backward, each group started before the one before it
// is used. Gradients as in stage 2.
TEST(Overlap, Stage3GathersAGroupAhead) {
  Training run({.layers = 4, .zero = {.stage = 3, .bucket_bytes = 2 * kLayerBytes}});
  run.train(1, false);  // the first step records
  EXPECT_EQ(run.log().in_flight(), 0);
  run.log().clear();
  run.train(1, false);
  EXPECT_THAT(run.log().lines(),
              ElementsAre("microbatch 0", "forward 0", "start all-gather 0", "start all-gather 1",
                          "wait all-gather 0",                                                    //
                          "forward 1",                                                            //
                          "forward 2", "start all-gather 2", "wait all-gather 1",                 //
                          "forward 3",                                                            //
                          "start all-gather 3", "wait all-gather 2", "gradient 3", "gradient 2",  //
                          "start reduce-scatter 0", "wait all-gather 3", "gradient 1", "gradient 0",
                          "start reduce-scatter 1", "step", "wait reduce-scatter 0",
                          "wait reduce-scatter 1", "stepped"));
  EXPECT_EQ(run.log().in_flight(), 0);
  EXPECT_EQ(run.log().count(What::drop), 0);
}

std::vector<std::vector<std::size_t>> planned(Training& run) {
  std::vector<std::vector<std::size_t>> groups;
  for (const auto& group : run.optimizer().engine().gather_schedule().groups())
    groups.push_back(group.leaves);
  return groups;
}

TEST(Overlap, Stage3PlansAnewWhereAStepGoesAnotherWay) {
  const auto outcome = [](bool late) {
    return with({.zero = {.stage = 3, .bucket_bytes = 2 * kLayerBytes}, .late = late},
                [&](Training& run) {
                  run.train(1);
                  run.train(1);
                  EXPECT_THAT(planned(run), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3),
                                                        ElementsAre(3, 2), ElementsAre(1, 0)));
                  run.log().clear();
                  run.microbatch({}, {1});  // as planned at first, not from layer 2 on
                  run.step();
                  EXPECT_EQ(run.log().in_flight(), 0);
                  EXPECT_EQ(run.log().count(What::drop), 0) << "a handle was forgotten";
                  EXPECT_THAT(planned(run), ElementsAre(ElementsAre(0, 2), ElementsAre(3),
                                                        ElementsAre(3, 2), ElementsAre(0)));
                  run.microbatch({}, {1});
                  run.step();
                  EXPECT_EQ(planned(run).size(), 4u);
                  run.train(1);
                  run.train(1);
                  return run.values();
                });
  };
  expect_same_bits(outcome(true), outcome(false));
}

// Equal layers: k of them go into a bucket, at least one.
std::int64_t buckets(std::int64_t layers, std::int64_t bucket_bytes) {
  const std::int64_t k = std::max<std::int64_t>(1, bucket_bytes / kLayerBytes);
  return (layers + k - 1) / k;
}

TEST(Overlap, CollectivesAreAsManyAsBuckets) {
  constexpr int kLayers = 5;
  for (const std::int64_t bytes : {std::int64_t{1}, kLayerBytes - 1, kLayerBytes, 2 * kLayerBytes,
                                   3 * kLayerBytes + 1, std::int64_t{1} << 30}) {
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(testing::Message() << bytes << " overlap " << overlap);
      Training run({.layers = kLayers, .zero = {.bucket_bytes = bytes, .overlap = overlap}});
      run.train(2);
      EXPECT_EQ(reductions(run.runtime()), buckets(kLayers, bytes));
      EXPECT_EQ(gathers(run.runtime()), buckets(kLayers, bytes));
    }
  }
}

TEST(Overlap, ReductionsOfAStepDoNotDependOnMicrobatches) {
  for (const bool each : {true, false}) {
    for (const int microbatches : {1, 4, 8}) {
      Training run({.layers = 5, .zero = {.bucket_bytes = 2 * kLayerBytes}});
      run.train(microbatches, each);
      EXPECT_EQ(reductions(run.runtime()), 3) << microbatches << " each " << each;
      EXPECT_EQ(run.log().count(What::start), 3 + 3) << "and as many gathers";
    }
  }
}

TEST(Overlap, Stage2ReducesAsOftenAsThereAreMicrobatches) {
  for (const int microbatches : {1, 4, 8}) {
    Training run({.layers = 5, .zero = {.stage = 2, .bucket_bytes = 2 * kLayerBytes}});
    run.train(microbatches);
    EXPECT_EQ(reductions(run.runtime()), 3 * microbatches);
    EXPECT_EQ(gathers(run.runtime()), 3);
  }
}

}  // namespace
