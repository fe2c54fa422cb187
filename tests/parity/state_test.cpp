// SPDX-License-Identifier: Apache-2.0
//
// State as data, on modules whose tensors lie on a mesh.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>

#include <meshtorch/base/testing.h>
#include <meshtorch/checkpoint/safetensors.h>
#include <meshtorch/checkpoint/state.h>
#include <meshtorch/models/cnn.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/tensor/display.h>
#include <meshtorch/tensor/state.h>
#include <meshtorch/tensor/tree.h>

#include "compare.h"

namespace mt = meshtorch;
using mt::Kind;
using mt::P;
using mt::State;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

namespace {

// A buffer that is no statistic, one that is named like one but has no running_var beside it, a
// norm of the program's own, a tie.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    weight = register_parameter("weight", torch::ones({4, 2}));
    register_parameter("again", weight);
    register_buffer("mask", torch::ones({3}));
    register_buffer("running_mean", torch::zeros({2}));
    register_module("norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(2).affine(false)));
  }
  torch::Tensor weight;
};
TORCH_MODULE(Odd);

std::vector<std::pair<std::string, Kind>> kinds(const State& state) {
  std::vector<std::pair<std::string, Kind>> found;
  for (const mt::StateEntry& entry : state) found.emplace_back(entry.path, entry.kind);
  return found;
}

std::vector<std::string> paths(const State& state) {
  std::vector<std::string> found;
  for (const mt::StateEntry& entry : state) found.push_back(entry.path);
  return found;
}

mt::Gpt tied_gpt(std::uint64_t seed) {
  torch::manual_seed(seed);
  return mt::Gpt(mt::GptOptions{.vocabulary = 11,
                                .length = 4,
                                .width = 8,
                                .layers = 1,
                                .heads = 2,
                                .dropout = 0.5,
                                .tied = true});
}

TEST(State, KnowsKindsAndCallsEachTensorByItsFirstPath) {
  const Odd odd;
  EXPECT_THAT(kinds(State(odd)),
              ElementsAre(Pair("weight", Kind::parameter), Pair("mask", Kind::buffer),
                          Pair("running_mean", Kind::buffer),
                          Pair("norm.running_mean", Kind::batch_statistic),
                          Pair("norm.running_var", Kind::batch_statistic),
                          Pair("norm.num_batches_tracked", Kind::batch_statistic),
                          Pair("random.torch", Kind::random_state)));
  EXPECT_EQ(mt::kind_of(*odd, "again"), Kind::parameter);
  EXPECT_EQ(mt::kind_of(*odd, "norm.running_var"), Kind::batch_statistic);
  EXPECT_EQ(mt::message([&] { mt::kind_of(*odd, "norm.weight"); }),
            "[kind_of] norm.weight: is no parameter or buffer of the module; use a path of "
            "named_parameters() or named_buffers()");
  const mt::Runtime runtime;
  EXPECT_THAT(paths(State(odd).filter(Kind::random_state)),
              ElementsAre("random.runtime", "random.torch"));
}

TEST(State, SplitsByTheFirstFilterThatFits) {
  const Odd odd;
  const auto [statistics, norms, rest] =
      mt::split(odd, Kind::batch_statistic, "norm|weight", mt::rest);
  EXPECT_THAT(paths(statistics),
              ElementsAre("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_THAT(paths(norms), ElementsAre("weight"));
  EXPECT_THAT(paths(rest), ElementsAre("mask", "running_mean", "random.torch"));
  const auto large = [](const mt::StateEntry& entry) { return entry.tensor.numel() > 2; };
  EXPECT_THAT(paths(State(odd).filter(large)), ElementsAre("weight", "mask", "random.torch"));
  EXPECT_EQ(paths(mt::merge(norms, statistics)).size(), 4u);
  EXPECT_THAT(paths(State(odd).filter("(n)orm.*\\1ing")),  // a back reference
              ElementsAre("norm.running_mean", "norm.running_var"));
}

TEST(State, WhatCannotBeSplitOrMerged) {
  const Odd odd;
  EXPECT_EQ(mt::message([&] { mt::split(odd, Kind::parameter, "norm"); }),
            "[split] mask: (buffer) is taken by none of: parameter, \"norm\"; add mt::rest as the "
            "last");
  EXPECT_EQ(mt::message([&] { mt::split(odd, mt::rest, Kind::parameter); }),
            "[split] filter 0: is rest, and others follow that would get nothing; put it last");
  const auto [parameters, rest] = mt::split(odd, Kind::parameter, mt::rest);
  EXPECT_EQ(mt::message([&] { mt::merge(parameters, rest, parameters); }),
            "[State] weight: is there twice; take one of the two out by filter()");
  EXPECT_THAT(mt::message([&] { State(odd).filter("("); }), HasSubstr("[State] filter: "));
  EXPECT_EQ(mt::message([&] { parameters.at("bias"); }),
            "[State] bias: is not among the 1 entries; look at to_string()");
}

TEST(State, UpdateWritesValuesAndNothingElse) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  const auto source = tied_gpt(1);
  auto model = tied_gpt(2);
  mt::shard(*model, mesh, mt::gpt_sharding());
  model->named_parameters()["tokens.weight"].set_requires_grad(false);
  const auto specs = mt::partition_specs(*model);
  const at::Tensor handle = model->named_parameters()["tokens.weight"];
  mt::update(*model, State(source).filter(Kind::parameter));
  for (const auto& item : source->named_parameters()) {
    const at::Tensor mine = model->named_parameters()[item.key()];
    EXPECT_TRUE(torch::equal(mt::full(mine), item.value())) << item.key();
    EXPECT_EQ(mt::sharding_of(mine).spec, specs[item.key()]) << item.key();
    EXPECT_EQ(mine.requires_grad(), item.key() != "tokens.weight");
  }
  EXPECT_TRUE(handle.is_same(model->named_parameters()["tokens.weight"]));
  EXPECT_EQ(specs["tokens.weight"], P("tp"));
}

// Back into a plain module, into another layout, onto another mesh.
TEST(State, UpdateTakesAnyLayout) {
  mt::Runtime runtime({.devices = 4});
  auto source = tied_gpt(1);
  mt::shard(*source, runtime.make_mesh({{"dp", 2}, {"tp", 2}}), mt::gpt_sharding());
  const State state = State(source).filter(Kind::parameter);
  auto plain = tied_gpt(2), other = tied_gpt(3), elsewhere = tied_gpt(4);
  mt::shard(*other, runtime.make_mesh({{"dp", 2}, {"tp", 2}}), mt::gpt_sharding("dp"));
  mt::shard(*elsewhere, runtime.make_mesh({{"tp", 4}}), mt::gpt_sharding());
  for (auto model : {plain, other, elsewhere}) {
    mt::update(*model, state);
    for (const auto& item : tied_gpt(1)->named_parameters())
      EXPECT_TRUE(torch::equal(mt::full(model->named_parameters()[item.key()]), item.value()));
  }
  EXPECT_FALSE(mt::is_sharded(plain->parameters()[0]));
}

TEST(State, UpdateRefusesBeforeItWrites) {
  auto model = tied_gpt(1);
  const State before = State(model).clone();
  const at::Tensor zeros = torch::zeros({8});
  const auto refused = [&](const std::string& path, const at::Tensor& value,
                           Kind kind = Kind::parameter) {
    const std::string text = mt::message([&] {
      mt::update(*model,
                 State({{"norm.bias", Kind::parameter, torch::ones({8})}, {path, kind, value}}));
    });
    for (const mt::StateEntry& entry : State(model))
      EXPECT_TRUE(torch::equal(entry.tensor, before.at(entry.path))) << path;
    return text;
  };
  EXPECT_EQ(refused("head.weight", zeros),
            "[update] head.weight: is no parameter or buffer of the module; take it out by "
            "filter(), or give the module that it is of");
  EXPECT_EQ(refused("norm.weight", torch::zeros({9})),
            "[update] norm.weight: is Float [9], the module has Float [8]; give the state of a "
            "module of the same options and dtype");
  EXPECT_THAT(refused("norm.weight", zeros.to(torch::kDouble)), HasSubstr("is Double [8]"));
  EXPECT_THAT(refused("norm.weight", {}), HasSubstr("norm.weight: is undefined"));
  EXPECT_EQ(refused("random.runtime", torch::zeros({2}, torch::kLong), Kind::random_state),
            "[set_random_state] random.runtime: has no runtime to go to; make a Runtime first");
  EXPECT_THAT(refused("random.torch", torch::zeros({2}, torch::kByte), Kind::random_state),
              HasSubstr("random.torch: is Byte [2]"));
  EXPECT_THAT(refused("random.cuda", zeros, Kind::random_state),
              HasSubstr("is no random state that there is"));
}

// The bytes of the generator are looked at before the runtime's counters are set.
TEST(State, RandomStateIsSetWholeOrNotAtAll) {
  mt::Runtime runtime({.devices = 2, .seed = 3});
  const State before = mt::random_state();
  const at::Tensor bytes = torch::full_like(before.at("random.torch"), 255);
  const State state({{"random.runtime", Kind::random_state, torch::tensor({5, 7}, torch::kLong)},
                     {"random.torch", Kind::random_state, bytes}});
  EXPECT_THAT(mt::message([&] { mt::set_random_state(state); }),
              HasSubstr("[set_random_state] random.torch: no generator takes it: "));
  for (const mt::StateEntry& entry : mt::random_state())
    EXPECT_TRUE(torch::equal(entry.tensor, before.at(entry.path))) << entry.path;
  mt::set_random_state(state.filter("runtime"));
  EXPECT_EQ(runtime.random().seed, 5u);
  EXPECT_EQ(runtime.random().draws, 7u);
}

// Dropout of sharded and of plain tensors goes on where the state was taken. An odd number of
// normals leaves the second of a pair in libtorch's generator.
TEST(State, ResumesRandomNumbers) {
  mt::Runtime runtime({.devices = 4, .seed = 3});
  const auto mesh = runtime.make_mesh({{"dp", 4}});
  auto model = tied_gpt(1);
  const auto sharded = mt::device_put(torch::ones({8, 8}), {mesh, P("dp")});
  const auto draw = [&] {
    return std::vector<at::Tensor>{mt::full(torch::dropout(sharded, 0.5, true)),
                                   torch::randn({3}, torch::kDouble),
                                   torch::dropout(torch::ones({8}), 0.5, true)};
  };
  draw();
  const State saved = State(model).clone();
  const auto first = draw();
  const auto other = draw();
  mt::update(*model, saved.filter(Kind::random_state));
  const auto again = draw();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i], again[i])) << i;
    EXPECT_FALSE(torch::equal(first[i], other[i])) << i;
  }
}

// The whole program state in a file: the weights, and the dropout masks to come.
TEST(State, GoesThroughAFile) {
  mt::Runtime runtime({.devices = 4, .seed = 3});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  auto model = tied_gpt(1);
  mt::shard(*model, mesh, mt::gpt_sharding());
  const auto tokens = mt::device_put(torch::arange(8).view({2, 4}) % 11, {mesh, P("dp")});
  model->forward(tokens);
  const std::string path =
      mt::text(testing::TempDir(), "state_", runtime.processes(), ".safetensors");
  mt::save(State(model), path);
  const at::Tensor next = mt::full(model->forward(tokens).detach());
  auto other = tied_gpt(2);
  mt::shard(*other, mesh, mt::gpt_sharding("dp"));
  const State loaded = mt::load_state(path);
  EXPECT_EQ(loaded.filter(Kind::random_state).size(), 2u);
  mt::update(*other, loaded);
  EXPECT_TRUE(torch::allclose(mt::full(other->forward(tokens).detach()), next, 1e-5, 1e-6));
  const State again = State(other);
  for (const mt::StateEntry& entry : loaded.filter(Kind::parameter))
    EXPECT_TRUE(torch::equal(mt::full(again.at(entry.path).detach()), entry.tensor));
  if (runtime.processes() > 1) return;
  mt::SafetensorsWriter writer(path, {{"w", at::kFloat, {1}}}, {{"kind of w", "mood"}});
  writer.write("w", torch::ones({1}));
  writer.close();
  EXPECT_EQ(mt::message([&] { mt::load_state(path); }),
            "[load_state] w: is of kind \"mood\" in " + path +
                ", and there is no such kind; load a file that save() wrote");
  std::remove(path.c_str());
}

TEST(State, IsATree) {
  const Odd odd;
  const State state = State(odd).filter("mask|weight");
  const auto doubled = [](const at::Tensor& x) { return x.detach() * 2; };
  const State twice = state.with(mt::tree_map(doubled, state.tensors()));
  EXPECT_EQ(kinds(twice), kinds(state));
  EXPECT_TRUE(torch::equal(twice.at("mask"), torch::full({3}, 2.0)));
  EXPECT_EQ(mt::message([&] {
              state.with({{"mask", torch::ones({3})}});
            }),
            "[State] weight: has no tensor among those given; give one for each entry");
  EXPECT_THAT(mt::message([&] { twice.filter("mask").with(state.tensors()); }),
              HasSubstr("[State] weight: is not among the 1 entries"));
}

TEST(State, SharesMemoryUntilCloned) {
  mt::Runtime runtime({.devices = 2});
  auto model = tied_gpt(1);
  mt::shard(*model, runtime.make_mesh({{"tp", 2}}), mt::gpt_sharding());
  const State shared(model), snapshot = shared.clone();
  const at::Tensor before = mt::full(snapshot.at("norm.weight")).clone();
  {
    const torch::NoGradGuard no_grad;
    model->named_parameters()["norm.weight"].mul_(2);
    model->named_parameters()["tokens.weight"].mul_(2);
  }
  EXPECT_TRUE(torch::equal(mt::full(shared.at("norm.weight")), before * 2));
  EXPECT_TRUE(torch::equal(mt::full(snapshot.at("norm.weight")), before));
  EXPECT_EQ(mt::sharding_of(snapshot.at("tokens.weight")).spec, P("tp"));
  EXPECT_FALSE(snapshot.at("tokens.weight").requires_grad());
}

TEST(State, SpecsOfAModule) {
  mt::Runtime runtime({.devices = 2});
  Odd odd;
  EXPECT_EQ(mt::partition_specs(*odd)["weight"], P());
  mt::shard(*odd, runtime.make_mesh({{"tp", 2}}), {{"weight|again", P(mt::whole, "tp")}});
  std::vector<std::string> lines;
  for (const auto& item : mt::partition_specs(*odd))
    lines.push_back(item.key() + " " + item.value().to_string());
  EXPECT_THAT(lines, ElementsAre("weight P(-, tp)", "again P(-, tp)", "mask P()",
                                 "running_mean P()", "norm.running_mean P()",
                                 "norm.running_var P()", "norm.num_batches_tracked P()"));
}

TEST(State, ReplicatesAndBack) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"dp", 4}});
  const Odd odd;
  const State everywhere = mt::replicate(State(odd), mesh);
  for (const mt::Shard& shard : mt::addressable_shards(everywhere.at("weight")))
    EXPECT_TRUE(torch::equal(shard.data, odd->weight));
  EXPECT_FALSE(mt::is_sharded(everywhere.at("random.torch")));
  const State back = mt::dereplicate(everywhere);
  EXPECT_EQ(kinds(back), kinds(State(odd)));
  for (const mt::StateEntry& entry : back) {
    EXPECT_FALSE(mt::is_sharded(entry.tensor));
    EXPECT_EQ(entry.tensor.sizes(), everywhere.at(entry.path).sizes());
  }
  EXPECT_TRUE(torch::equal(back.at("weight"), odd->weight));
}

TEST(State, Prints) {
  mt::Runtime runtime({.devices = 2});
  Odd odd;
  mt::shard(*odd, runtime.make_mesh({{"tp", 2}}), {{"weight|again", P("tp")}});
  EXPECT_EQ(State(odd).filter("weight|mask|tracked").to_string(),
            "path                      kind             shape   dtype  layout\n"
            "------------------------  ---------------  ------  -----  ---------------\n"
            "weight                    parameter        [4, 2]  Float  P(tp) on (tp=2)\n"
            "mask                      buffer           [3]     Float  P() on (tp=2)\n"
            "norm.num_batches_tracked  batch statistic  []      Long   P() on (tp=2)\n");
}

mt::Gpt shown_gpt(const mt::Mesh& mesh) {
  mt::Gpt model(mt::GptOptions{
      .vocabulary = 5, .length = 2, .width = 4, .layers = 1, .heads = 2, .tied = true});
  mt::shard(*model, mesh, mt::gpt_sharding());
  model->named_parameters()["positions.weight"].set_requires_grad(false);
  return model;
}

// 5 rows over 2: the larger part has 3.
TEST(Display, IsATableOfModules) {
  mt::Runtime runtime({.devices = 4});
  const auto model = shown_gpt(runtime.make_mesh({{"dp", 2}, {"tp", 2}}));
  const std::string table = mt::display(*model).to_string();
  const auto top = table.substr(0, table.find("    0: GptBlock"));
  EXPECT_EQ(top,
            "module                         kind              shape    dtype  layout    bytes  per "
            "device  note\n"
            "-----------------------------  ----------------  -------  -----  --------  -----  "
            "----------  ----\n"
            "Gpt                                                                        1,120      "
            "   648\n"
            "  tokens: Embedding                                                           80      "
            "    48\n"
            "    weight                     parameter         [5, 4]   Float  P(tp)        80      "
            "    48\n"
            "  positions: Embedding                                                        32      "
            "    32\n"
            "    weight                     frozen parameter  [2, 4]   Float  P()          32      "
            "    32\n"
            "  dropout: Dropout                                                             0      "
            "     0\n"
            "  layers: ModuleList                                                         976      "
            "   536\n");
  const auto bottom = table.substr(table.find("  norm: LayerNorm"));
  EXPECT_EQ(bottom,
            "  norm: LayerNorm                                                             32      "
            "    32\n"
            "    weight                     parameter         [4]      Float  P()          16      "
            "    16\n"
            "    bias                       parameter         [4]      Float  P()          16      "
            "    16\n"
            "on (dp=2, tp=2): 280 parameters, 1,120 bytes, 648 on a device\n");
}

TEST(Display, AddsUpWhatIsThereOnce) {
  mt::Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"tp", 4}});
  Odd odd;
  const mt::Display plain = mt::display(*odd);
  EXPECT_EQ(plain.summary(), "8 parameters, 76 bytes");
  mt::shard(*odd, mesh, {{"weight|again", P("tp")}});
  const mt::Display display = mt::display(*odd);
  std::vector<std::string> lines;
  for (const mt::DisplayRow& row : display.rows())
    lines.push_back(mt::text(row.depth, " ", row.name, ", ", row.kind, " ", row.layout, " ",
                             row.bytes, " ", row.bytes_per_device, " ", row.note));
  EXPECT_THAT(lines, ElementsAre("0 Odd,   76 52 ", "1 weight, parameter P(tp) 32 8 ",
                                 "1 again, parameter P(tp) 32 8 tied to weight",
                                 "1 mask, buffer P() 12 12 ", "1 running_mean, buffer P() 8 8 ",
                                 "1 norm: BatchNorm1d,   24 24 ",
                                 "2 running_mean, batch statistic P() 8 8 ",
                                 "2 running_var, batch statistic P() 8 8 ",
                                 "2 num_batches_tracked, batch statistic P() 8 8 "));
  EXPECT_EQ(display.summary(), "on (tp=4): 8 parameters, 76 bytes, 52 on a device");
}

// Where a module lies on two meshes each layout names its own.
TEST(Display, NamesEachMesh) {
  mt::Runtime runtime({.devices = 4});
  torch::nn::Sequential two(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  mt::replicate(*two[0], runtime.make_mesh({{"tp", 4}}));
  mt::replicate(*two[1], runtime.make_mesh({{"dp", 4}}));
  const mt::Display display = mt::display(*two);
  EXPECT_EQ(display.rows()[2].layout, "P() on (tp=4)");
  EXPECT_THAT(display.summary(), HasSubstr("on (dp=4), (tp=4): 40 parameters"));
}

TEST(Display, IsAPageWhoseTextIsText) {
  struct ScriptImpl : torch::nn::Module {
    ScriptImpl() { register_parameter("<script>alert(\"1\")&</script>", torch::ones({2})); }
  };
  const auto page = mt::display(ScriptImpl()).to_html();
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&amp;&lt;/script&gt;"));
  EXPECT_THAT(page, testing::Not(HasSubstr("<script")));
  mt::Runtime runtime({.devices = 4});
  const auto model = shown_gpt(runtime.make_mesh({{"dp", 2}, {"tp", 2}}));
  const auto gpt = mt::display(*model).to_html();
  const auto count = [&](const std::string& word) {
    std::size_t found = 0;
    for (auto at = gpt.find(word); at != std::string::npos; at = gpt.find(word, at + 1)) ++found;
    return found;
  };
  const auto rows = mt::display(*model).rows();
  EXPECT_EQ(count("<div class=\"row\">"), rows.size());
  EXPECT_EQ(count("<details"),
            std::size_t(std::ranges::count_if(rows, &mt::DisplayRow::is_module)));
  EXPECT_EQ(count("<details"), count("</details>"));
  EXPECT_EQ(count("http"), 0u);
}

}  // namespace
