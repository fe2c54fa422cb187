// SPDX-License-Identifier: Apache-2.0
//
// pmap against a loop over one dense replica a device, written by hand.
#include "compare.h"

#include <gmock/gmock.h>

#include <meshtorch/train/pmap.h>
#include <meshtorch/train/rank_streams.h>

#include <ATen/CPUGeneratorImpl.h>

namespace mt = meshtorch;
using at::Tensor;
using mt::Kind;
using mt::P;
using mt::StateAxis;

namespace {

constexpr std::int64_t kDevices = 8;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  explicit NetImpl(double dropout) : p(dropout) { reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    head = register_module("head", torch::nn::Linear(4 * 4 * 4, 3));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& images) {
    Tensor x = torch::max_pool2d(norm->forward(conv->forward(images)).relu(), 2);
    return head->forward(torch::dropout(x.flatten(1), p, is_training()));
  }
  double p;
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

Net make_net(double dropout) {
  torch::manual_seed(3);
  return Net(dropout);
}

// From generators of their own: the default one is what is tested.
Tensor images() {
  return torch::randn({kDevices, 6, 1, 8, 8}, at::detail::createCPUGenerator(4), torch::kDouble);
}

Tensor labels() {
  return torch::randint(3, {kDevices, 6}, at::detail::createCPUGenerator(5), torch::kLong);
}

void step_sgd(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    parameter.sub_(0.1 * parameter.grad());
    parameter.mutable_grad() = Tensor();
  }
}

Net copy_of(const Net& net) { return Net(std::dynamic_pointer_cast<NetImpl>(net->clone())); }

// What 8 devices do, one after the other, on dense replicas: the mean loss, gradients in `net`. The
// replicas' statistics are theirs.
double by_hand(Net& net, std::vector<Net>& replicas, std::uint64_t draw, bool same) {
  double total = 0;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const Tensor outer = generator.get_state();
  for (std::int64_t device = 0; device < kDevices; ++device) {
    Net& replica = replicas[static_cast<std::size_t>(device)];
    {
      torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < net->parameters().size(); ++i)
        replica->parameters()[i].copy_(net->parameters()[i]);
    }
    const std::uint64_t stream = same ? 0 : static_cast<std::uint64_t>(device);
    generator.set_state(
        at::detail::createCPUGenerator(mt::stream_seed(7, 2 * draw, stream)).get_state());
    const Tensor loss =
        torch::cross_entropy_loss(replica->forward(images()[device]), labels()[device]) / kDevices;
    loss.backward();
    total += loss.item<double>();
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      Tensor& mine = net->parameters()[i].mutable_grad();
      Tensor& its = replica->parameters()[i].mutable_grad();
      mine = mine.defined() ? mine + its : its.clone();
      its = Tensor();
    }
  }
  generator.set_state(outer);
  return total;
}

// The statistics of all replicas, by name and replica.
Tensor statistics(const std::vector<Net>& replicas, const std::string& path) {
  std::vector<Tensor> rows;
  for (const Net& replica : replicas) rows.push_back(replica->named_buffers()[path]);
  return torch::stack(rows);
}

class Pmap : public testing::Test {
 protected:
  mt::Runtime runtime{{.devices = 8, .seed = 7}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", kDevices}});

  auto step_of(StateAxis random, StateAxis statistic) {
    return mt::pmap(
        [](Net& net, const Tensor& x, const Tensor& y) {
          return mt::pmean(torch::cross_entropy_loss(net->forward(x), y), "dp");
        },
        mesh, "dp",
        {mt::StateAxes{{Kind::parameter, StateAxis::broadcast},
                       {Kind::random_state, random},
                       {Kind::batch_statistic, statistic}},
         0, 0},
        std::nullopt);
  }

  void check(StateAxis random, StateAxis statistic, double dropout) {
    Net dense = make_net(dropout), net = make_net(dropout);
    std::vector<Net> replicas;
    for (std::int64_t device = 0; device < kDevices; ++device) replicas.push_back(copy_of(dense));
    mt::replicate(*net, mesh);
    if (statistic == StateAxis::split) mt::split_state(*net, Kind::batch_statistic, mesh, "dp");
    const auto step = step_of(random, statistic);
    const Tensor x = images(), y = labels();
    runtime.manual_seed(7);
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t draw = runtime.random().draws;
      const double expected = by_hand(dense, replicas, draw, random == StateAxis::broadcast);
      const Tensor loss = step(net, x, y);
      EXPECT_NEAR(loss.item<double>(), expected, 1e-12);
      loss.backward();
      EXPECT_EQ(mt::sharding_of(net->head->weight.grad()).spec, P().unreduced("dp"));
      for (const auto& item : dense->named_parameters())
        mt::expect_close(net->named_parameters()[item.key()].grad(), item.value().grad(),
                         item.key(), 1e-10, 1e-12);
      step_sgd(*net);
      step_sgd(*dense);
      check_statistics(net, replicas, statistic);
    }
    if (statistic != StateAxis::split) return;
    mt::merge_state(*net, Kind::batch_statistic, "dp");
    mt::expect_close(net->norm->running_var, statistics(replicas, "norm.running_var").mean(0),
                     "merged", 1e-12, 1e-12);
    net->eval();
    EXPECT_EQ(net->forward(x[0]).size(0), 6);
  }

  void check_statistics(Net& net, std::vector<Net>& replicas, StateAxis statistic) {
    for (const auto& item : net->named_buffers()) {
      const Tensor rows = statistics(replicas, item.key());
      if (statistic == StateAxis::split) {
        mt::expect_close(item.value(), rows, item.key(), 1e-12, 1e-12);
        EXPECT_EQ(mt::sharding_of(item.value()).spec, P("dp"));
        continue;
      }
      const Tensor mean = rows.is_floating_point() ? rows.mean(0) : rows[0];
      mt::expect_close(item.value(), mean, item.key(), 1e-12, 1e-12);
      torch::NoGradGuard no_grad;
      for (Net& replica : replicas) replica->named_buffers()[item.key()].copy_(mean);
    }
  }
};

TEST_F(Pmap, MeansOfStatisticsAndStreamsOfEachDevice) {
  check(StateAxis::split, StateAxis::mean, 0.3);
}

TEST_F(Pmap, StatisticsOfEachDevice) { check(StateAxis::split, StateAxis::split, 0.3); }

TEST_F(Pmap, OneStreamForAllDevices) { check(StateAxis::broadcast, StateAxis::mean, 0.3); }

TEST_F(Pmap, MapsDimsOfTrees) {
  torch::manual_seed(1);
  const Tensor a = torch::randn({3, 8}), b = torch::randn({8, 2, 5}), c = torch::randn({5});
  const auto f = mt::pmap(
      [](const std::pair<Tensor, Tensor>& mine, const Tensor& c, int factor) {
        EXPECT_EQ(mine.first.sizes().vec(), (std::vector<std::int64_t>{3}));
        return std::tuple(mine.first * factor, mine.second + c, mt::psum(mine.first.sum(), "dp"));
      },
      mesh, "dp", {mt::PmapAxis(0), std::nullopt, std::nullopt}, {-1, 1, std::nullopt});
  const auto [x, y, z] = f(std::pair(a.t(), b), c, 2);
  mt::expect_close(x, a * 2, "first");
  mt::expect_close(y, (b + c).transpose(0, 1), "second");
  mt::expect_close(z, a.sum(), "third", 1e-5, 1e-5);
  EXPECT_EQ(mt::sharding_of(y).spec, P(mt::whole, "dp"));
}

TEST_F(Pmap, OneOutAxisIsOfEveryResult) {
  const Tensor x = torch::arange(16.).view({8, 2});
  const auto two = [](const Tensor& row) { return std::pair(row, row * 2); };
  const auto [a, b] = mt::pmap(two, mesh, "dp", {0}, 1)(x);
  mt::expect_close(a, x.t(), "first of two");
  mt::expect_close(b, x.t() * 2, "second of two");
  const auto three = [](const Tensor& row) { return std::tuple(row, row.sum(), row.view({2, 1})); };
  const auto [c, d, e] = mt::pmap(three, mesh, "dp", {0}, 0)(x);
  mt::expect_close(c, x, "first of three");
  mt::expect_close(d, x.sum(1), "second of three");
  mt::expect_close(e, x.view({8, 2, 1}), "third of three");
  const auto sums = [](const Tensor& row) {
    return std::pair(mt::psum(row, "dp"), mt::pmax(row.sum(), "dp"));
  };
  const auto [f, g] = mt::pmap(sums, mesh, "dp", {0}, std::nullopt)(x);
  mt::expect_close(f, x.sum(0), "sum");
  mt::expect_close(g, torch::tensor(29.f), "extreme");
  EXPECT_EQ(mt::PmapOut(1).of(3), (std::vector<std::optional<std::int64_t>>{1, 1, 1}));
}

// Buffers of several shapes, of a kind of the program's own.
struct TableImpl : torch::nn::Module {
  TableImpl() {
    rows = register_buffer("rows", torch::arange(16.).view({8, 2}));
    wide = register_buffer("wide", torch::arange(48.).view({16, 3}));
  }
  Tensor forward(const Tensor& x) { return x * rows.sum() + wide.sum(); }
  Tensor rows, wide;
};
TORCH_MODULE(Table);

TEST_F(Pmap, MergesWhatWasSplitOnly) {
  Table table;
  mt::shard(*table, mesh, mt::PathRules{{"rows", P(mt::whole, "dp")}, {"wide", P("dp")}});
  const Tensor rows = mt::full(table->rows), wide = mt::full(table->wide);
  mt::merge_state(*table, Kind::buffer, "dp");
  EXPECT_EQ(mt::sharding_of(table->wide).spec, P("dp"));
  mt::expect_close(table->rows, rows, "rows");
  mt::expect_close(table->wide, wide, "wide");
  mt::split_state(*table, Kind::buffer, mesh, "dp");
  EXPECT_EQ(table->wide.sizes().vec(), (std::vector<std::int64_t>{8, 16, 3}));
  {
    torch::NoGradGuard no_grad;
    table->wide.add_(torch::arange(8.).view({8, 1, 1}));
  }
  mt::merge_state(*table, Kind::buffer, "dp");
  mt::expect_close(table->wide, wide + 3.5, "wide, merged");
  mt::expect_close(table->rows, rows, "rows, merged");
}

TEST_F(Pmap, RefusesWhatIsShardedForWhatIsSplit) {
  Table table;
  mt::shard(*table, mesh, mt::PathRules{{"rows", P()}, {"wide", P("dp")}});
  const auto f = mt::pmap([](Table& table, const Tensor& x) { return table->forward(x); }, mesh,
                          "dp", {mt::StateAxes{{Kind::buffer, StateAxis::split}}, 0}, 0);
  EXPECT_THAT(
      mt::message_of([&] { f(table, torch::ones({8})); }),
      testing::HasSubstr("[pmap] rows: is a buffer without a row for each device along dp"));
  const auto g = mt::pmap([](const std::map<std::string, Table>& tables,
                             const Tensor& x) { return tables.at("a")->wide.sum() * x; },
                          mesh, "dp", {mt::StateAxes{{Kind::buffer, StateAxis::split}}, 0}, 0);
  Table narrow;
  mt::shard(*narrow, mesh, mt::PathRules{{"rows", P("dp")}, {"wide", P("dp")}});
  EXPECT_THAT(
      mt::message_of([&] {
        g(std::map<std::string, Table>{{"a", narrow}}, torch::ones({8}));
      }),
      testing::HasSubstr("[pmap] a.wide: is a buffer without a row for each device along dp"));
}

// A norm of the program's own: libtorch counts no write of its statistics.
struct OwnNormImpl : torch::nn::Module {
  OwnNormImpl() {
    running_mean = register_buffer("running_mean", torch::zeros({3}, torch::kDouble));
    running_var = register_buffer("running_var", torch::ones({3}, torch::kDouble));
  }
  Tensor forward(const Tensor& x) {
    return torch::batch_norm(x, {}, {}, running_mean, running_var, is_training(), 0.1, 1e-5, false);
  }
  Tensor running_mean, running_var;
};
TORCH_MODULE(OwnNorm);

class PmapStatistics : public Pmap {
 protected:
  PmapStatistics() { mt::replicate(*norm, mesh); }

  template <class Fn>
  auto mapped(StateAxis axis, Fn fn) {
    return mt::pmap(std::move(fn), mesh, "dp", {mt::StateAxes{{Kind::batch_statistic, axis}}, 0},
                    0);
  }

  // On every device.
  void expect_statistics(const Tensor& mean, const Tensor& variance) {
    for (const auto& shard : mt::addressable_shards(norm->running_mean))
      mt::expect_close(shard.data, mean, "mean", 1e-12, 1e-12);
    for (const auto& shard : mt::addressable_shards(norm->running_var))
      mt::expect_close(shard.data, variance, "variance", 1e-12, 1e-12);
  }

  const Tensor x =
      torch::randn({kDevices, 5, 3}, at::detail::createCPUGenerator(6), torch::kDouble);
  OwnNorm norm;
};

TEST_F(PmapStatistics, MeansThatNoOpCounted) {
  mapped(StateAxis::mean, [](OwnNorm& norm, const Tensor& x) { return norm->forward(x); })(norm, x);
  expect_statistics(0.1 * x.mean({0, 1}), 0.9 + 0.1 * x.var(1).mean(0));
}

TEST_F(PmapStatistics, OfOneDeviceThatAloneSawABatch) {
  const auto f = mapped(StateAxis::mean, [](OwnNorm& norm, const Tensor& x) {
    return mt::axis_index("dp") == 5 ? norm->forward(x) : x * 1;
  });
  f(norm, x);
  expect_statistics(0.1 * x[5].mean(0) / 8, (7 + 0.9 + 0.1 * x[5].var(0)) / 8);
}

TEST_F(PmapStatistics, AreAsBeforeWhereACallFails) {
  const auto forward = [](OwnNorm& norm, const Tensor& x) { return norm->forward(x); };
  EXPECT_THAT(
      mt::message_of([&] { mapped(StateAxis::broadcast, forward)(norm, x); }),
      testing::HasSubstr("argument 0 running_mean: fn wrote a buffer of which every rank has "
                         "a copy; use pmap"));
  const Tensor zeros = torch::zeros({3}, torch::kDouble), ones = torch::ones({3}, torch::kDouble);
  expect_statistics(zeros, ones);
  const auto bad = mapped(StateAxis::mean, [](OwnNorm& norm, const Tensor& x) {
    const Tensor y = norm->forward(x);
    if (mt::axis_index("dp") % 4 == 3) throw std::runtime_error("mine");
    return y;
  });
  EXPECT_EQ(mt::message_of([&] { bad(norm, x); }), "mine");
  expect_statistics(zeros, ones);
  norm->eval();
  mt::expect_close(mapped(StateAxis::broadcast, forward)(norm, x), x / std::sqrt(1 + 1e-5), "eval",
                   1e-12, 1e-12);
}

TEST_F(Pmap, SaysWhatIsWrong) {
  const auto f = mt::pmap([](const Tensor& x, int = 0) { return x; }, mesh, "dp", {0}, 0);
  EXPECT_EQ(
      mt::message_of([&] {
        f(torch::ones({4, 2}));
      }),
      "[pmap] argument: dim 0 of shape [4, 2] is not 8, the size of axis dp; give one slice for "
      "each device, or map over another dim");
  EXPECT_THAT(mt::message_of([&] { f(torch::ones({8}), 1); }),
              testing::HasSubstr("has 1 entries (of pmap: in_axes), fn was given 2 arguments"));
  EXPECT_THAT(mt::message_of([] {
                mt::StateAxes{{Kind::parameter, StateAxis::split}};
              }),
              testing::HasSubstr("[StateAxes] parameter: cannot lie so"));
  EXPECT_THAT(mt::message_of([] {
                mt::StateAxes{{Kind::buffer, StateAxis::split}, {Kind::buffer, StateAxis::split}};
              }),
              testing::HasSubstr("[StateAxes] buffer: is named twice"));
  Net net = make_net(0);
  mt::replicate(*net, mesh);
  EXPECT_THAT(
      mt::message_of([&] {
        mt::pmap([](Net& net, const Tensor& x) { return net->forward(x); }, mesh, "dp", {0, 0}, 0)(
            net, images());
      }),
      testing::HasSubstr("[pmap] conv.weight: is a module's, whose dims are not mapped; use "
                         "StateAxes, or a struct of tensors"));
  EXPECT_EQ(mt::message_of([&] {
              mt::pmap([](Net&, Net&) { return torch::ones({}); }, mesh, "dp",
                       {mt::StateAxes{{Kind::random_state, StateAxis::split}},
                        mt::StateAxes{{Kind::random_state, StateAxis::broadcast}}},
                       std::nullopt);
            }),
            "[pmap] in_axes: random state is split in one argument's StateAxes, broadcast in "
            "another's; name it in one: a device has one stream of random numbers");
  EXPECT_THAT(
      mt::message_of([&] { step_of(StateAxis::split, StateAxis::split)(net, images(), labels()); }),
      testing::HasSubstr("[pmap] norm.running_mean: is a batch statistic without a row for each "
                         "device along dp, its state axis is split; call split_state on the "
                         "module before"));
  EXPECT_THAT(
      mt::message_of(
          [&] { step_of(StateAxis::split, StateAxis::broadcast)(net, images(), labels()); }),
      testing::HasSubstr(
          "argument 0 norm.running_mean: fn wrote a buffer of which every rank has a copy"));
  EXPECT_THAT(mt::message_of([&] { mt::split_state(*net, Kind::parameter, mesh, "dp"); }),
              testing::HasSubstr("[split_state] parameter: is not a kind of buffer"));
}

}  // namespace
