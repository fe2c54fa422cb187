// SPDX-License-Identifier: Apache-2.0
//
// MegatronRule on models that know nothing of it: the table it finds is the one a person would write, costs
// Megatron's two all-reduces a layer each way, gathers no weight, and trains as one device does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/models/mlp.h>
#include <meshtorch/plan/megatron.h>
#include <meshtorch/tensor/testing.h>

#include "families.h"

namespace mt = meshtorch;
using mt::P;
using testing::HasSubstr;

namespace {

constexpr int kLayers = 2;

struct Family {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<at::Tensor(torch::nn::Module&, const at::Tensor&, const at::Tensor&)> loss;
  std::function<std::pair<at::Tensor, at::Tensor>()> batch;
  mt::PathRules by_hand;  // as one who knows Megatron writes it
  int layers = kLayers;
};

std::pair<at::Tensor, at::Tensor> tokens() {
  return {torch::randint(64, {8, 16}), torch::randint(64, {8, 16})};
}

template <class Impl>
auto loss_of() {
  return [](torch::nn::Module& module, const at::Tensor& x, const at::Tensor& y) {
    return dynamic_cast<Impl&>(module).loss(x, y);
  };
}

std::vector<Family> families_of_models() {
  const mt::GptOptions gpt{.vocabulary = 64, .length = 32, .width = 64, .layers = 2, .heads = 4};
  return {
      {.name = "gpt",
       .make = [=] { return mt::Gpt(gpt).ptr(); },
       .loss = loss_of<mt::GptImpl>(),
       .batch = tokens,
       .by_hand = {{"attention\\.[qkv]\\.|mlp\\.up\\.|head\\.weight|tokens\\.weight|positions",
                    P("tp")},
                   {"(out|down)\\.weight", P(mt::whole, "tp")},
                   {"", P()}}},
      {.name = "bert",
       .make = [] { return families::Bert(64, 32, 64, 4, kLayers).ptr(); },
       .loss = loss_of<families::BertImpl>(),
       .batch = tokens,
       .by_hand = {{"(query|key|value|intermediate)\\.|_embeddings\\.weight|^bias$", P("tp")},
                   {"encoder.*(dense|output)\\.weight", P(mt::whole, "tp")},
                   {"", P()}}},
      {.name = "llama",
       .make = [] { return families::Llama(64, 64, 4, 2, kLayers).ptr(); },
       .loss = loss_of<families::LlamaImpl>(),
       .batch = tokens,
       .by_hand = {{"([qkv]|gate|up)_proj|embed_tokens|lm_head", P("tp")},
                   {"(o|down)_proj", P(mt::whole, "tp")},
                   {"", P()}}},
      {.name = "vit",
       .make = [] { return families::Vit(8, 2, 64, 4, kLayers, 10).ptr(); },
       .loss = loss_of<families::VitImpl>(),
       .batch =
           [] {
             return std::pair(torch::randn({8, 1, 8, 8}), torch::randint(10, {8}));
           },
       .by_hand = {{"\\.[qkv]\\.|mlp\\.0\\.|head\\.", P("tp")},
                   {"(proj|mlp\\.2)\\.weight", P(mt::whole, "tp")},
                   {"", P()}}},
      {.name = "mlp",
       .make =
           [] {
             return mt::Mlp(mt::MlpOptions{.in = 64, .hidden = 128, .out = 10, .layers = 4}).ptr();
           },
       .loss =
           [](torch::nn::Module& module, const at::Tensor& x, const at::Tensor& y) {
             return torch::nn::functional::cross_entropy(
                 dynamic_cast<mt::MlpImpl&>(module).forward(x), y);
           },
       .batch =
           [] {
             return std::pair(torch::randn({8, 64}), torch::randint(10, {8}));
           },
       .by_hand = {{"layers\\.[02]\\.", P("tp")},
                   {"layers\\.[13]\\.weight", P(mt::whole, "tp")},
                   {"", P()}}},
  };
}

mt::MegatronReport record(const Family& family, torch::nn::Module& module, const mt::Mesh& mesh) {
  const auto [x, y] = family.batch();
  return mt::MegatronRule("tp").record(module, mesh,
                                       [&, x = x, y = y] { return family.loss(module, x, y); });
}

class MegatronFamilies : public testing::TestWithParam<Family> {
 protected:
  mt::Runtime runtime_{mt::RuntimeOptions{.devices = 8}};
  mt::Mesh mesh_ = runtime_.make_mesh({{"dp", 4}, {"tp", 2}});
};

TEST_P(MegatronFamilies, FindsTheTableOfAPerson) {
  const auto module = GetParam().make();
  const mt::MegatronReport report = record(GetParam(), *module, mesh_);
  std::vector<mt::Leaf> leaves;
  for (const auto& item : module->named_parameters())
    leaves.push_back({.path = item.key(), .shape = item.value().sizes().vec()});
  for (const mt::Match& match : GetParam().by_hand.match(mesh_, leaves).matches)
    EXPECT_EQ(report.entries.at(match.leaf.path).spec, match.spec) << match.leaf.path;
}

// Of one forward and one backward over tp: collectives by kind, those of one number apart.
struct Counts {
  std::int64_t all_reduces = 0, others = 0;
  std::vector<std::string> implied;
};

Counts count(mt::Runtime& runtime) {
  Counts counts;
  std::int64_t largest = 0;
  for (const mt::LedgerEntry& entry : runtime.ledger().entries()) {
    if (entry.axes == "tp") largest = std::max(largest, entry.bytes);
  }
  for (const mt::LedgerEntry& entry : runtime.ledger().entries()) {
    if (entry.axes != "tp") continue;
    if (entry.kind == mt::Collective::all_reduce) {
      counts.all_reduces += entry.bytes * 16 >= largest;  // activations; statistics are smaller
    } else {
      counts.others += 1;
      counts.implied.push_back(mt::text(name(entry.kind), " of ", entry.op));
    }
  }
  return counts;
}

Counts run_once(const Family& family, torch::nn::Module& module, mt::Runtime& runtime,
                const mt::Mesh& mesh) {
  torch::manual_seed(3);
  const auto [x, y] = family.batch();
  runtime.ledger().clear();
  family.loss(module, mt::device_put(x, {mesh, P("dp")}), mt::device_put(y, {mesh, P("dp")}))
      .backward();
  return count(runtime);
}

TEST_P(MegatronFamilies, TwoAllReducesALayerEachWayAndNoGatheredWeight) {
  const auto found = GetParam().make(), by_hand = GetParam().make();
  mt::shard(*found, mesh_, record(GetParam(), *found, mesh_).table());
  mt::shard(*by_hand, mesh_, GetParam().by_hand);
  const Counts mine = run_once(GetParam(), *found, runtime_, mesh_);
  const Counts theirs = run_once(GetParam(), *by_hand, runtime_, mesh_);
  EXPECT_EQ(mine.all_reduces, theirs.all_reduces);
  EXPECT_EQ(mine.others, 0) << mt::join(mine.implied);
  // Transformers: two a layer each way; an embedding's one, and one of the gradient of the head.
  std::int64_t expected = 4 * kLayers + 2;
  if (GetParam().name == "vit")
    expected = 4 * kLayers;  // the head's gradient is that of 8 class tokens
  // Two pairs; between them a gradient that is reduced for one product and, transposed, for another.
  if (GetParam().name == "mlp") expected = 2 + 2;
  EXPECT_EQ(mine.all_reduces, expected);
}

TEST_P(MegatronFamilies, TrainsAsOneDevice) {
  torch::manual_seed(7);
  const auto sharded = GetParam().make();
  torch::manual_seed(7);
  const auto dense = GetParam().make();
  mt::shard(*sharded, mesh_, record(GetParam(), *sharded, mesh_).table());
  torch::optim::AdamW mine(sharded->parameters(), torch::optim::AdamWOptions(1e-3)),
      plain(dense->parameters(), torch::optim::AdamWOptions(1e-3));
  for (int step = 0; step < 10; ++step) {
    const auto [x, y] = GetParam().batch();
    mine.zero_grad();
    plain.zero_grad();
    auto loss = GetParam().loss(*sharded, mt::device_put(x, {mesh_, P("dp")}),
                                mt::device_put(y, {mesh_, P("dp")}));
    auto expected = GetParam().loss(*dense, x, y);
    EXPECT_NEAR(loss.item<double>() / expected.item<double>(), 1, 3e-6) << "step " << step;
    loss.backward();
    expected.backward();
    mine.step();
    plain.step();
  }
}

TEST_P(MegatronFamilies, LeavesNoTrace) {
  const auto module = GetParam().make();
  std::vector<at::Tensor> before;
  for (const auto& parameter : module->parameters()) before.push_back(parameter.detach().clone());
  const auto [x, y] = GetParam().batch();
  const at::Tensor loss = GetParam().loss(*module, x, y);
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : module->parameters()) gradients.push_back(parameter.grad().clone());
  torch::manual_seed(5);
  const at::Tensor next = torch::randn({4});
  const std::uint64_t draws = runtime_.random().draws;
  torch::manual_seed(5);
  mt::MegatronRule("tp").record(*module, mesh_, [&, x = x, y = y] {
    return GetParam().loss(*module, torch::dropout(x.to(torch::kFloat), 0.5, true).to(x.dtype()),
                           y);
  });
  EXPECT_TRUE(torch::equal(torch::randn({4}), next));
  EXPECT_EQ(runtime_.random().draws, draws);
  EXPECT_TRUE(runtime_.ledger().entries().empty());
  const auto parameters = module->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_FALSE(mt::is_sharded(parameters[i]));
    EXPECT_TRUE(parameters[i].is_leaf() && parameters[i].requires_grad());
    EXPECT_TRUE(torch::equal(parameters[i], before[i]));
    EXPECT_TRUE(torch::equal(parameters[i].grad(), gradients[i]));
  }
  EXPECT_TRUE(torch::equal(GetParam().loss(*module, x, y), loss));
}

INSTANTIATE_TEST_SUITE_P(Models, MegatronFamilies, testing::ValuesIn(families_of_models()),
                         [](const auto& info) { return info.param.name; });

class Megatron : public testing::Test {
 protected:
  mt::Runtime runtime_{mt::RuntimeOptions{.devices = 8}};
};

TEST_F(Megatron, FewerKvHeadsThanDevicesAreToldBeforeAnythingRuns) {
  const auto mesh = runtime_.make_mesh({{"dp", 2}, {"tp", 4}});
  families::Llama model(64, 64, 4, 2, kLayers);
  const auto [x, y] = tokens();
  const auto report =
      mt::MegatronRule("tp").record(*model, mesh, [&, x = x, y = y] { return model->loss(x, y); });
  EXPECT_THAT(report.to_string(), HasSubstr("2 heads or groups cannot be shared out to tp=4"));
  EXPECT_EQ(report.entries.at("layers.0.q_proj.weight").spec, P());
  EXPECT_EQ(report.entries.at("layers.0.up_proj.weight").spec, P("tp"));
  const auto matches = mt::shard(*model, mesh, report.table());
  EXPECT_THAT(matches.to_string(), HasSubstr("2 heads or groups cannot be shared out to tp=4"));
}

// Every choice of features by brute force: none that cuts as much takes fewer all-reduces.
TEST_F(Megatron, NoChoiceThatCutsAsMuchTakesFewerCollectives) {
  const auto mesh = runtime_.make_mesh({{"tp", 2}});
  for (const int depth : {2, 3, 4, 5}) {
    mt::Mlp model(mt::MlpOptions{.in = 32, .hidden = 32, .out = 32, .layers = depth});
    const auto x = torch::randn({4, 32});
    const auto forward = [&] { return model->forward(x).square().mean(); };
    const auto report = mt::MegatronRule("tp").record(*model, mesh, forward);
    std::vector<at::Tensor> tensors;
    for (const auto& parameter : model->parameters()) tensors.push_back(parameter);
    std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
    for (int choice = 0; choice < (1 << depth); ++choice) {  // of each layer: column or row
      std::vector<P> specs;
      for (int layer = 0; layer < depth; ++layer) {
        const bool column = (choice >> layer & 1) != 0;
        specs.push_back(column ? P("tp") : P(mt::whole, "tp"));
        specs.push_back(column ? P("tp") : P());
      }
      const mt::StepCost cost = mt::measure_step(tensors, specs, mesh, forward);
      if (cost.moved.empty()) fewest = std::min(fewest, cost.forward + cost.backward);
    }
    // Pairs of layers are all cut; of an odd number one may cost more than it is worth.
    if (depth % 2 == 0) EXPECT_EQ(report.cut_elements, report.elements) << depth;
    EXPECT_GE(report.cut_elements * depth, report.elements * (depth - 1)) << depth;
    EXPECT_LE(report.cost.forward + report.cost.backward, fewest) << depth;
  }
}

TEST_F(Megatron, FrozenWeightsAreCutAsOthers) {
  const auto mesh = runtime_.make_mesh({{"tp", 2}});
  mt::Mlp model(mt::MlpOptions{.in = 32, .hidden = 64, .out = 32, .layers = 2});
  for (auto& parameter : model->parameters()) parameter.requires_grad_(false);
  const auto x = torch::randn({4, 32});
  const auto report =
      mt::MegatronRule("tp").record(*model, mesh, [&] { return model->forward(x); });
  EXPECT_EQ(report.entries.at("layers.0.weight").spec, P("tp"));
  EXPECT_EQ(report.entries.at("layers.1.weight").spec, P(mt::whole, "tp"));
}

struct TwoBlocksImpl : torch::nn::Module {
  TwoBlocksImpl() {
    blocks->push_back(families::BertLayer(64, 8));
    blocks->push_back(families::BertLayer(64, 2));
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks)
      x = block->as<families::BertLayer>()->forward(x, torch::zeros({1}));
    return x;
  }
  torch::nn::ModuleList blocks;
};

// Layers with other heads are other features.
TEST_F(Megatron, EachLayerHasItsOwnHeads) {
  const auto mesh = runtime_.make_mesh({{"tp", 4}});
  TwoBlocksImpl model;
  const auto x = torch::randn({2, 16, 64});
  const auto report =
      mt::MegatronRule("tp").record(model, mesh, [&] { return model.forward(x).sum(); });
  EXPECT_EQ(report.entries.at("blocks.0.query.weight").spec, P("tp"));
  EXPECT_EQ(report.entries.at("blocks.1.query.weight").spec, P());
  EXPECT_EQ(report.entries.at("blocks.1.intermediate.weight").spec, P("tp"));
}

TEST_F(Megatron, TiedWeightsAreOneFeature) {
  const auto mesh = runtime_.make_mesh({{"tp", 2}});
  mt::Gpt model(mt::GptOptions{
      .vocabulary = 64, .length = 32, .width = 64, .layers = 1, .heads = 4, .tied = true});
  const auto [x, y] = tokens();
  const auto report =
      mt::MegatronRule("tp").record(*model, mesh, [&, x = x, y = y] { return model->loss(x, y); });
  EXPECT_EQ(report.entries.at("tokens.weight").spec, P("tp"));
}

// q, k and v in one packed weight are not cut by heads; the report says so.
TEST_F(Megatron, PackedProjectionsOfLibtorchStayWholeAndTheFeedForwardIsCut) {
  const auto mesh = runtime_.make_mesh({{"tp", 2}});
  torch::nn::TransformerEncoder model(torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(64, 4).dropout(0), kLayers));
  const auto x = torch::randn({16, 4, 64});
  const auto report = mt::MegatronRule("tp").record(
      *model, mesh, [&] { return model->forward(x).square().mean(); });
  EXPECT_EQ(report.entries.at("layers.0.linear1.weight").spec, P("tp"));
  EXPECT_EQ(report.entries.at("layers.0.linear2.weight").spec, P(mt::whole, "tp"));
  EXPECT_EQ(report.entries.at("layers.0.self_attn.in_proj_weight").spec, P());
}

TEST_F(Megatron, WorksWithFsdpRuleBesideIt) {
  const auto mesh = runtime_.make_mesh({{"fsdp", 4}, {"tp", 2}});
  families::Llama model(64, 64, 4, 2, 1);
  const auto [x, y] = tokens();
  const auto report =
      mt::MegatronRule("tp").record(*model, mesh, [&, x = x, y = y] { return model->loss(x, y); });
  mt::shard(*model, mesh, {report.table(), mt::FsdpRule("fsdp", {.min_size = 4096})});
  EXPECT_EQ(mt::sharding_of(model->named_parameters()["layers.0.up_proj.weight"]).spec,
            P(mt::axes("tp", "fsdp")));
}

TEST_F(Megatron, APolicyBesideTheModelAsksForIt) {
  const auto mesh = runtime_.make_mesh({{"fsdp", 4}, {"tp", 2}});
  const auto policy = mt::Policy::parse(R"({"rules": [{"megatron": {"axis": "tp"}},
      {"fsdp": {"axis": "fsdp", "min_size": 4096}}], "zero": {"axis": "fsdp", "stage": 3}})");
  families::Bert model(64, 32, 64, 4, 1);
  const auto [x, y] = tokens();
  mt::apply(policy, *model, mesh, [&, x = x, y = y] { return model->loss(x, y); });
  const auto parameters = model->named_parameters();
  EXPECT_EQ(mt::sharding_of(parameters["encoder.0.intermediate.weight"]).spec,
            P(mt::axes("tp", "fsdp")));
  EXPECT_EQ(mt::sharding_of(parameters["encoder.0.intermediate.bias"]).spec, P("tp"));
  EXPECT_THAT(mt::message([&] { mt::apply(policy, *model, mesh); }), HasSubstr("megatron"));
}

TEST_F(Megatron, Errors) {
  const auto mesh = runtime_.make_mesh({{"tp", 2}});
  mt::Mlp model(mt::MlpOptions{.in = 8, .hidden = 8, .out = 8, .layers = 2});
  const auto x = torch::randn({4, 8});
  EXPECT_THAT(mt::message([&] {
                mt::MegatronRule("pp").record(*model, mesh, [&] { return model->forward(x); });
              }),
              HasSubstr("pp"));
  EXPECT_THAT(
      mt::message([&] { mt::MegatronRule("tp").record(*model, mesh, [&] { return x; }); }),
      testing::StartsWith("[MegatronRule] forward: gave a tensor that depends on no parameter"));
  EXPECT_THAT(mt::message([&] {
                mt::MegatronRule("tp").record(*model, mesh, [&] {
                  const auto y = model->forward(x);
                  return y * y.sum().item<double>();
                });
              }),
              HasSubstr("there are none in a meta run"));
  // What forward throws leaves the model as it was.
  EXPECT_THAT(mt::message([&] {
                mt::MegatronRule("tp").record(*model, mesh, [&]() -> at::Tensor {
                  model->forward(x);
                  throw std::runtime_error("mine");
                });
              }),
              testing::StrEq("mine"));
  EXPECT_FALSE(mt::is_sharded(model->parameters()[0]));
  EXPECT_NO_THROW(model->forward(x).sum().item<double>());
}

}  // namespace
