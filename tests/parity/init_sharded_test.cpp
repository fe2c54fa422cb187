// SPDX-License-Identifier: Apache-2.0
//
// Trees that are born sharded have the bits of dense ones, and nobody ever held a whole parameter.
#include <gmock/gmock.h>

#include <meshtorch/base/testing.h>
#include <meshtorch/models/cnn.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/models/mlp.h>
#include <meshtorch/tensor/init_sharded.h>

#include "compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
using mt::P;
using mt::PathRules;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using Axes = std::vector<mt::MeshAxis>;

std::vector<std::string> notes(const mt::MatchReport& report) {
  std::vector<std::string> found;
  for (const mt::Match& match : report.matches) {
    const auto at = match.note.find("made whole");
    if (at != std::string::npos) found.push_back(match.leaf.path + " " + match.note.substr(at));
  }
  return found;
}

template <class Born, class Dense>
void expect_bits(const Born& born, const Dense& dense, const mt::Mesh& mesh,
                 const mt::MatchReport& report) {
  const auto expected = mt::tree_leaves_with_path(dense);
  const auto leaves = mt::tree_leaves_with_path(born);
  ASSERT_EQ(leaves.size(), expected.size());
  ASSERT_EQ(report.matches.size(), leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto& [path, tensor] = leaves[i];
    ASSERT_EQ(path, expected[i].path);
    const at::Tensor whole = mt::full(tensor.detach());
    EXPECT_EQ(whole.scalar_type(), expected[i].tensor.scalar_type()) << path;
    EXPECT_TRUE(torch::equal(whole, expected[i].tensor.detach())) << path;
    EXPECT_EQ(tensor.requires_grad(), expected[i].tensor.requires_grad()) << path;
    EXPECT_TRUE(tensor.is_leaf()) << path;
    EXPECT_EQ(mt::sharding_of(tensor), (mt::NamedSharding{mesh, report.matches[i].spec})) << path;
  }
}

// The same after the same seed: the leaves, and the next numbers of the generator.
template <class Make>
mt::MatchReport expect_born(Make make, const mt::Mesh& mesh, const mt::Rules& rules,
                            std::int64_t chunk = 1 << 10) {
  torch::manual_seed(7);
  const auto dense = make();
  const at::Tensor after = torch::randn({5}, torch::kDouble);
  torch::manual_seed(7);
  mt::MatchReport report;
  const auto draws = mt::Runtime::current().random().draws;
  mt::Runtime::current().ledger().clear();
  const auto born = mt::init_sharded(make, mesh, rules, {.report = &report, .chunk = chunk});
  EXPECT_TRUE(mt::Runtime::current().ledger().entries().empty());  // nothing moved
  EXPECT_TRUE(torch::equal(torch::randn({5}, torch::kDouble), after));
  EXPECT_EQ(mt::Runtime::current().random().draws, draws);
  expect_bits(born, dense, mesh, report);
  return report;
}

class Born : public testing::TestWithParam<Axes> {
 protected:
  mt::Runtime runtime{{.devices = 8, .seed = 3}};
  mt::Mesh mesh = runtime.make_mesh(GetParam());
  // Every second matrix over the last axis, the others over the first as well.
  std::string first = GetParam().front().name, last = GetParam().back().name;
};

// A vocabulary that divides by no axis; 16 and more normals, not by the block.
mt::GptOptions gpt_options() {
  return {.vocabulary = 53, .length = 6, .width = 24, .layers = 2, .heads = 4};
}

TEST_P(Born, Gpt) {
  const auto report =
      expect_born([] { return mt::Gpt(gpt_options()); }, mesh, mt::gpt_sharding(last));
  EXPECT_THAT(notes(report), ElementsAre());
}

TEST_P(Born, GptThatIsTiedUnderSeveralAxes) {
  auto options = gpt_options();
  options.tied = true;
  mt::Rules rules = mt::gpt_sharding(last);
  if (first != last) rules = mt::Rules{mt::gpt_sharding(last), mt::FsdpRule(first)};
  const auto report = expect_born([&] { return mt::Gpt(options); }, mesh, rules);
  EXPECT_THAT(notes(report), ElementsAre());
}

// Its initialisers look at weight[0][0] for the fan; batch norm's counter is made by torch::tensor.
TEST_P(Born, Cnn) {
  const auto report = expect_born([] { return mt::Cnn(mt::CnnOptions{.channels = 12}); }, mesh,
                                  PathRules{{"conv.*weight|norm.*(weight|bias|mean|var)", P(last)},
                                            {"head.weight", P(mt::whole, first)},
                                            {"", P()}});
  EXPECT_THAT(notes(report), ElementsAre());
}

TEST_P(Born, Mlp) {
  const auto report = expect_born(
      [] { return mt::Mlp(mt::MlpOptions{.in = 3, .hidden = 37, .out = 5, .layers = 3}); }, mesh,
      mt::mlp_sharding(first));
  EXPECT_THAT(notes(report), ElementsAre());
}

TEST_P(Born, Lstm) {
  const auto report =
      expect_born([] { return nn::LSTM(nn::LSTMOptions(5, 9).num_layers(2).bidirectional(true)); },
                  mesh, PathRules{{"weight", P(last)}, {"bias", P(first)}});
  EXPECT_THAT(notes(report), ElementsAre());
}

// Its layers are clones of one that is made for it, each made anew first.
TEST_P(Born, TransformerEncoder) {
  const auto make = [] {
    return nn::TransformerEncoder(nn::TransformerEncoderOptions(
        nn::TransformerEncoderLayerOptions(12, 3).dim_feedforward(20), 2));
  };
  const auto report = expect_born(make, mesh,
                                  PathRules{{"in_proj_weight|linear1.weight", P(last)},
                                            {"out_proj.weight|linear2.weight", P(mt::whole, first)},
                                            {"", P()}});
  EXPECT_THAT(notes(report), ElementsAre());
}

INSTANTIATE_TEST_SUITE_P(Meshes, Born,
                         testing::Values(Axes{{"tp", 8}}, Axes{{"dp", 4}, {"tp", 2}},
                                         Axes{{"pp", 2}, {"dp", 2}, {"tp", 2}}),
                         [](const auto& info) { return mt::name_of(info.param); });

// Factories, dtypes and sizes, as fields of a struct.
struct Everything {
  std::vector<torch::Tensor> normals, uniforms;
  std::map<std::string, torch::Tensor> constants;
  std::optional<torch::Tensor> scaled;
};

Everything everything(at::ScalarType dtype) {
  Everything made;
  const auto options = torch::dtype(dtype);
  for (const std::int64_t rows : {0, 1, 3, 15, 16, 17, 64, 250}) {
    made.normals.push_back(torch::randn({rows}, options.requires_grad(true)));
    made.normals.push_back(torch::empty({rows, 3}, options).normal_(2, 0.5));
    made.uniforms.push_back(torch::rand({rows}, options));
    made.uniforms.push_back(torch::empty({rows, 5}, options).uniform_(-2, 3));
  }
  made.constants["zeros"] = torch::zeros({7, 3}, options);
  made.constants["ones"] = torch::ones({9}, options);
  made.constants["full"] = torch::full({2, 6}, 1.5, options);
  made.constants["mask"] = torch::zeros({5}, torch::kBool);
  made.constants["strided"] = torch::empty_strided({4, 2}, {2, 1}, options).fill_(3);
  made.constants["like"] = torch::ones_like(made.constants["zeros"]);
  made.constants["drawn like"] = torch::randn_like(made.constants["full"]);
  made.constants["drawn as well"] = torch::rand_like(made.constants["ones"]);
  made.scaled = torch::randn({33, 2}, options).mul_(0.25).add_(1).clamp_(0.5, 1.5);
  return made;
}

TEST(BornTree, FactoriesDtypesAndSizes) {
  mt::Runtime runtime({.devices = 8});
  const auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t chunk : {1, 128, 1 << 20}) {
      const auto report =
          expect_born([&] { return everything(dtype); }, mesh,
                      PathRules{{"normals|scaled", P("dp")}, {"", P(mt::axes("tp", "dp"))}}, chunk);
      EXPECT_THAT(notes(report), ElementsAre());
    }
  }
}

TEST(BornTree, UnreducedHoldsTheValueOnce) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  expect_born(
      [] {
        return std::vector{torch::randn({40}), torch::ones({3})};
      },
      mesh, PathRules{{"0", P("tp").unreduced("dp")}, {"1", P().unreduced("tp")}});
}

// What shards cannot be made of to the bit is made as ever, and the report says so.
struct OddImpl : nn::Module {
  OddImpl() {
    product = register_parameter("product", torch::randn({6, 4}) * 0.02);
    orthogonal = register_parameter("orthogonal", nn::init::orthogonal_(torch::empty({6, 4})));
    dirac = register_parameter("dirac", nn::init::dirac_(torch::empty({4, 4, 3})));
    eye = register_parameter("eye", nn::init::eye_(torch::empty({4, 4})));
    normed = register_parameter("normed", torch::randn({8, 4}));
    {
      const torch::NoGradGuard no_grad;
      normed.div_(normed.norm());
    }
    here = register_parameter("here", torch::randn({8}, torch::device(torch::kCPU)));
    view = register_parameter("view", torch::randn({4, 8}).t());
    position = register_buffer("position", torch::arange(12));
    tables = register_buffer("tables", torch::zeros({8, 4}));
    const auto angles = torch::arange(8).unsqueeze(1) * torch::exp(torch::arange(2));
    tables.index_put_({"...", torch::indexing::Slice(0, torch::indexing::None, 2)}, angles.sin());
    waves = register_buffer("waves", torch::randn({8, 4}, torch::kComplexFloat));
    drawn = register_buffer("drawn", torch::empty({8}, torch::kComplexFloat).normal_());
    like = register_buffer("like", torch::randn_like(torch::zeros({8, 2}, torch::kComplexFloat)));
    small = register_buffer("small", torch::tensor({1.0, 2.0}));
  }
  torch::Tensor product, orthogonal, dirac, eye, normed, here, view, position, tables, waves, drawn,
      like, small;
};
TORCH_MODULE(Odd);

TEST(BornTree, WhatIsMadeWholeIsNoted) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"tp", 4}});
  const auto report =
      expect_born([] { return Odd(); }, mesh, PathRules{{"small", P()}, {"", P("tp")}});
  EXPECT_THAT(
      notes(report),
      ElementsAre("product made whole: aten::mul.Scalar", "orthogonal made whole: aten::copy_",
                  "dirac made whole: aten::fill_.Scalar", "eye made whole: aten::eye.m_out",
                  "normed made whole: aten::norm.Scalar", "here made whole: aten::randn",
                  "view made whole: aten::t", "position made whole: aten::arange",
                  "tables made whole: aten::copy_", "waves made whole: aten::randn",
                  "drawn made whole: aten::normal_", "like made whole: aten::randn_like"));
}

// The devices that hold the padding's row fill it.
TEST(BornTree, RowsAreFilledWhereTheyLie) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  for (const auto& spec : {P("tp"), P(mt::whole, "tp"), P("dp", "tp"), P()}) {
    const auto report =
        expect_born([] { return nn::Embedding(nn::EmbeddingOptions(11, 6).padding_idx(-2)); }, mesh,
                    PathRules{{"", spec}});
    EXPECT_THAT(notes(report), ElementsAre());
  }
}

TEST(BornTree, OnOneDeviceAndInStrictMode) {
  mt::Runtime runtime({.devices = 4, .mode = mt::Mode::strict});
  const auto mesh = runtime.make_mesh({{"dp", 1}, {"tp", 4}});
  expect_born([] { return mt::Gpt(gpt_options()); }, mesh, mt::gpt_sharding("tp"));
  if (runtime.processes() > 1) return;
  expect_born([] { return mt::Gpt(gpt_options()); }, runtime.make_mesh({{"tp", 1}}),
              mt::gpt_sharding("tp"));
}

TEST(BornTree, ModulesOfAnotherDtype) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"tp", 4}});
  const auto report = expect_born(
      [] {
        mt::Mlp model(mt::MlpOptions{.in = 6, .hidden = 20, .out = 3});
        model->to(torch::kBFloat16);
        return model;
      },
      mesh, mt::mlp_sharding());
  EXPECT_THAT(notes(report), ElementsAre());
}

// Peaks are of the bytes that libtorch asked for, by device.
TEST(BornMemory, NobodyHoldsAWholeParameter) {
  constexpr std::int64_t kChunk = 1 << 14;
  mt::Runtime runtime({.devices = 8, .memory = true});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 4}});
  mt::MemoryAccount& account = *runtime.memory();
  const mt::GptOptions options{
      .vocabulary = 1001, .length = 8, .width = 128, .layers = 2, .heads = 4};
  constexpr std::int64_t kMatrix = 512 * 128 * 4;  // bytes of an up projection; the table has more
  const std::int64_t host = account.live(mt::MemoryAccount::kHost);
  account.reset_peaks();
  mt::MatchReport report;
  const auto model = mt::init_sharded([&] { return mt::Gpt(options); }, mesh, mt::gpt_sharding(),
                                      {.report = &report, .chunk = kChunk});
  std::int64_t kept = 0;
  for (const auto& match : report.matches) kept += match.bytes_per_device;
  for (const auto& shard : mt::addressable_shards(model->parameters()[0])) {
    EXPECT_LE(account.peak(shard.device), kept + 4096) << shard.device;
    EXPECT_GE(account.live(shard.device, mt::Use::parameters), kept * 9 / 10) << shard.device;
  }
  EXPECT_LT(account.peak(mt::MemoryAccount::kHost) - host, kMatrix / 8);
}

TEST(BornMemory, NotEvenWhereLayersAreClones) {
  constexpr std::int64_t kChunk = 1 << 14, kMatrix = 128 * 128 * 4;  // of the smallest
  mt::Runtime runtime({.devices = 8, .memory = true});
  const auto mesh = runtime.make_mesh({{"tp", 8}});
  mt::MemoryAccount& account = *runtime.memory();
  const std::int64_t host = account.live(mt::MemoryAccount::kHost);
  account.reset_peaks();
  const auto model = mt::init_sharded(
      [] {
        return nn::TransformerEncoder(nn::TransformerEncoderOptions(
            nn::TransformerEncoderLayerOptions(128, 4).dim_feedforward(512), 2));
      },
      mesh, PathRules{{"weight", P("tp")}, {"bias", P("tp")}}, {.chunk = kChunk});
  EXPECT_LT(account.peak(mt::MemoryAccount::kHost) - host, kMatrix / 2);
  EXPECT_GE(model->parameters().size(), 24u);
}

// A step from there is the step from a model that was made plainly and then sharded.
TEST(BornModel, TrainsAsOneThatWasSharded) {
  mt::Runtime runtime({.devices = 8});
  const auto mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
  const auto make = [] { return mt::Gpt(gpt_options()); };
  torch::manual_seed(7);
  auto placed = make();
  mt::shard(*placed, mesh, mt::gpt_sharding());
  torch::manual_seed(7);
  auto born = mt::init_sharded(make, mesh, mt::gpt_sharding());
  const auto tokens = torch::randint(53, {8, 7});
  const auto inputs = mt::device_put(tokens.narrow(1, 0, 6).contiguous(), {mesh, P("dp")});
  const auto targets = mt::device_put(tokens.narrow(1, 1, 6).contiguous(), {mesh, P("dp")});
  for (const auto& model : {placed, born}) {
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      mt::Gpt(model)->loss(inputs, targets).backward();
      optimizer.step();
    }
  }
  for (const auto& item : placed->named_parameters()) {
    const auto mine = born->named_parameters()[item.key()];
    EXPECT_TRUE(torch::equal(mt::full(mine.detach()), mt::full(item.value().detach())))
        << item.key();
  }
}

TEST(BornModel, OfADryRunHasShapesAndLayouts) {
  mt::Runtime runtime({.devices = 64, .meta = true, .memory = true});
  const auto mesh = runtime.make_mesh({{"dp", 8}, {"tp", 8}});
  const mt::GptOptions options{
      .vocabulary = 50257, .length = 2048, .width = 12288, .layers = 2, .heads = 96};
  const auto model = mt::init_sharded([&] { return mt::Gpt(options); }, mesh, mt::gpt_sharding());
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(mt::is_meta(item.value())) << item.key();
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
  }
  EXPECT_EQ(mt::sharding_of(model->named_parameters()["tokens.weight"]).spec, P("tp"));
  EXPECT_LT(runtime.memory()->peak(mt::MemoryAccount::kHost), 1 << 16);
}

// What goes wrong is said, and nothing is left of it.
class BornErrors : public testing::Test {
 protected:
  template <class Make>
  std::string failure(Make make, mt::InitOptions options = {}) {
    torch::manual_seed(5);
    const at::Tensor next = torch::randn({4});
    torch::manual_seed(5);
    const auto draws = runtime.random().draws;
    const std::string found = mt::message_of([&] {
      mt::init_sharded(make, mesh, PathRules{{"weight|bias", P("tp")}}, options);
    });
    EXPECT_FALSE(torch::empty({1}).is_meta()) << found;
    EXPECT_TRUE(torch::equal(torch::randn({4}), next)) << found;
    EXPECT_EQ(runtime.random().draws, draws) << found;
    const auto x = mt::device_put(torch::zeros({8}), {mesh, P("tp")});
    const auto y = x.clone();
    EXPECT_FALSE(torch::equal(mt::full(x.uniform_()), torch::rand({8}))) << found;
    return found;
  }

  mt::Runtime runtime{{.devices = 4}};
  mt::Mesh mesh = runtime.make_mesh({{"tp", 4}});
  int runs = 0;
};

TEST_F(BornErrors, AMakerThatIsNotTheSameTwice) {
  EXPECT_EQ(failure([&] {
              return ++runs == 1 ? nn::Linear(nn::LinearOptions(4, 4).bias(false))
                                 : nn::Linear(4, 4);
            }),
            "[init_sharded] make: called aten::empty.memory_format in its second run where the "
            "first called aten::uniform_; let it make the same tree every time");
  runs = 0;
  EXPECT_THAT(
      failure([&] {
        return ++runs == 2 ? nn::Linear(nn::LinearOptions(4, 4).bias(false)) : nn::Linear(4, 4);
      }),
      HasSubstr("called aten::uniform_ in its second run where the first called aten::empty"));
  runs = 0;
  EXPECT_EQ(failure([&] {
              nn::Linear layer(4, 4);
              if (++runs == 1) torch::zeros({3});
              return layer;
            }),
            "[init_sharded] make: called nothing in its second run where the first called "
            "aten::zeros; let it make the same tree every time");
  runs = 0;
  EXPECT_THAT(failure([&] {
                nn::Linear layer(4, 4);
                if (++runs == 2) torch::zeros({3});
                return layer;
              }),
              HasSubstr("called aten::zeros in its second run where the first was over"));
  runs = 0;
  EXPECT_EQ(failure([&] { return nn::Linear(4, ++runs == 1 ? 4 : 6); }),
            "[init_sharded] make: made a tensor [6, 4] in its second run where the first made "
            "[4, 4]; let it make the same tree every time");
  runs = 0;
  EXPECT_THAT(failure([&] {
                std::map<std::string, torch::Tensor> tree;
                tree[++runs == 1 ? "weight" : "bias"] = torch::zeros({4});
                return tree;
              }),
              HasSubstr("bias: is no leaf of the maker's first run"));
}

TEST_F(BornErrors, AMakerThatReadsValues) {
  EXPECT_EQ(failure([] {
              nn::Linear layer(4, 4);
              if (layer->weight.sum().item<float>() > 100) throw std::runtime_error("no");
              return layer;
            }),
            "[init_sharded] aten::item: needs values, and in the maker's first run there are only "
            "shapes; make what it reads with a device of its own: torch::device(torch::kCPU)");
  const at::Tensor outside = torch::ones({1});
  EXPECT_THAT(failure([&] {
                nn::Linear layer(4, 4);
                const torch::NoGradGuard no_grad;
                outside.add_(layer->weight.sum());
                return layer;
              }),
              HasSubstr("aten::add_.Tensor: needs values"));
  EXPECT_EQ(outside.item<float>(), 1);
  // What it makes without a factory that could be sharded has values.
  EXPECT_EQ(mt::message([&] {
              mt::init_sharded(
                  [] {
                    const auto rates = torch::linspace(0, 0.1, 3);
                    return std::vector{torch::full({4}, rates[2].item<double>())};
                  },
                  mesh, PathRules{{"", P("tp")}});
            }),
            "did not throw");
}

TEST_F(BornErrors, WhatTheMakerThrowsAndWhatTheRulesThrow) {
  EXPECT_EQ(failure([&]() -> nn::Linear {
              torch::randn({100});
              if (++runs == 2) throw std::runtime_error("disk full");
              return nn::Linear(4, 4);
            }),
            "disk full");
  EXPECT_THAT(failure([] {
                return std::map<std::string, torch::Tensor>{{"x", torch::ones({4})}};
              }),
              HasSubstr("x"));
  EXPECT_EQ(failure([] { return nn::Linear(4, 4); }, {.chunk = 0}),
            "[init_sharded] chunk: is 0 bytes; give a positive number");
  EXPECT_EQ(
      failure([&] { return mt::init_sharded([] { return nn::Linear(4, 4); }, mesh, mt::Rules{}); }),
      "[init_sharded] make: calls init_sharded; make the whole tree in one");
}

TEST_F(BornErrors, TheScopeIsLeft) {
  const auto layer =
      mt::init_sharded([] { return nn::Linear(4, 4); }, mesh, PathRules{{"weight|bias", P("tp")}});
  EXPECT_FALSE(mt::is_sharded(nn::Linear(4, 4)->weight));
  EXPECT_FALSE(torch::empty({2}).is_meta());
  EXPECT_TRUE(mt::is_sharded(layer->weight));
}

}  // namespace
