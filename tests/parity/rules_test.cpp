// SPDX-License-Identifier: Apache-2.0
//
// A GPT laid out by each kind of rule trains as on one device by plain libtorch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include <meshtorch/meshtorch.h>
#include <meshtorch/models/gpt.h>
#include <meshtorch/tree/rules.h>

namespace mt = meshtorch;
using mt::axes;
using mt::P;
using mt::whole;

namespace {

const mt::GptOptions kOptions{.vocabulary = 32, .length = 16, .width = 32, .layers = 2, .heads = 8};
constexpr int kSteps = 10;

mt::Gpt make_gpt() {
  torch::manual_seed(7);
  return mt::Gpt(kOptions);
}

mt::Batch make_batch(int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  const auto tokens = torch::randint(kOptions.vocabulary, {8, kOptions.length + 1}, torch::kLong);
  return {tokens.slice(1, 0, kOptions.length).contiguous(), tokens.slice(1, 1).contiguous()};
}

template <class Place, class Optimizer>
std::vector<double> train(mt::Gpt& model, Optimizer& optimizer, Place place) {
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = make_batch(step);
    const auto loss = model->loss(place(batch.inputs), place(batch.targets));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

const std::vector<double>& dense_losses() {
  static const std::vector<double> losses = [] {
    mt::Gpt model = make_gpt();
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
    return train(model, optimizer, [](const at::Tensor& x) { return x; });
  }();
  return losses;
}

mt::LogicalAxes logical() {
  return mt::LogicalAxes{{"batch", axes("dp", "fsdp")},
                         {"length", whole},
                         {"vocab", "tp"},
                         {"heads", "tp"},
                         {"mlp", "tp"},
                         {"embed", whole}}
      .with_names({{R"(^(tokens|head)\.weight$)", {"vocab", "embed"}},
                   {R"(^positions\.weight$)", {"length", "embed"}},
                   {R"(\.(q|k|v)\.weight$)", {"heads", "embed"}},
                   {R"(\.(q|k|v)\.bias$)", {"heads"}},
                   {R"(\.out\.weight$)", {"embed", "heads"}},
                   {R"(\.up\.weight$)", {"mlp", "embed"}},
                   {R"(\.up\.bias$)", {"mlp"}},
                   {R"(\.down\.weight$)", {"embed", "mlp"}},
                   {R"(norm[12]?\.(weight|bias)$|\.(out|down)\.bias$)", {"embed"}}});
}

mt::SpecTable table() {
  std::map<std::string, mt::SpecTable::Entry> entries;
  for (const std::string layer : {"0", "1"}) {
    for (const std::string q : {"q", "k", "v"})
      entries["layers." + layer + ".attention." + q + ".weight"] = {P("tp"), "column",
                                                                    kOptions.heads};
    entries["layers." + layer + ".attention.out.weight"] = {
        P(whole, "tp"), "row", {kOptions.heads, 1}};
  }
  return mt::SpecTable("attention", std::move(entries));
}

mt::PolicyRule largest_over_tp() {
  return mt::PolicyRule("largest", [](const mt::Leaf& leaf) -> std::optional<P> {
    if (leaf.shape.size() != 2) return std::nullopt;
    return leaf.shape[0] >= leaf.shape[1] ? P("tp") : P(whole, "tp");
  });
}

struct Case {
  std::string name;
  mt::Rules rules;
};

class RulesOnGpt : public testing::TestWithParam<Case> {
 protected:
  mt::Runtime runtime{{.devices = 8}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
};

TEST_P(RulesOnGpt, TrainsAsDense) {
  const auto place = [&](const at::Tensor& x) {
    return mt::device_put(x, {mesh, P(axes("dp", "fsdp"))});
  };
  mt::Gpt model = make_gpt();
  const mt::MatchReport report = mt::shard(*model, mesh, GetParam().rules);
  for (const mt::Match& match : report.matches) {
    const auto sharding = mt::sharding_of(model->named_parameters()[match.leaf.path]);
    EXPECT_EQ(sharding.spec, match.spec) << match.leaf.path;
  }
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  const std::vector<double> losses = train(model, optimizer, place);
  for (int step = 0; step < kSteps; ++step)
    EXPECT_NEAR(losses[step] / dense_losses()[step], 1, 1e-6) << step;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RulesOnGpt,
    testing::Values(Case{"logical", logical()},
                    Case{"logical_fsdp", {logical(), mt::FsdpRule("fsdp", {.min_size = 512})}},
                    Case{"paths_fsdp_dp",
                         {mt::gpt_sharding(), mt::FsdpRule("fsdp"), mt::FsdpRule("dp")}},
                    Case{"fsdp", mt::FsdpRule("fsdp", {.min_size = 0})},
                    Case{"table", mt::Rules(table()).otherwise(mt::Unmatched::replicate)},
                    Case{"table_function_fsdp",
                         mt::Rules{table(), largest_over_tp(), mt::FsdpRule("fsdp")}.otherwise(
                             mt::Unmatched::replicate)}),
    [](const auto& info) { return info.param.name; });

TEST(LogicalAxes, SayWhatTheTableOfPathsSays) {
  mt::Gpt model = make_gpt();
  std::vector<mt::Leaf> leaves;
  for (const auto& item : model->named_parameters())
    leaves.push_back({item.key(), item.value().sizes().vec()});
  const mt::Mesh mesh({{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
  const auto by_name = mt::Rules(logical()).match(mesh, leaves);
  const auto by_path = mt::gpt_sharding().match(mesh, leaves);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    EXPECT_EQ(by_name.matches[i].spec, by_path.matches[i].spec) << leaves[i].path;
  EXPECT_TRUE(by_name.unused_entries.empty());
  EXPECT_EQ(logical().spec({"batch", "length", "embed"}), P(axes("dp", "fsdp")));
}

TEST(LogicalAxes, ConstrainActivations) {
  mt::Runtime runtime({.devices = 8});
  const mt::Mesh mesh = runtime.make_mesh({{"dp", 2}, {"fsdp", 2}, {"tp", 2}});
  mt::Gpt model = make_gpt();
  const double dense = model->loss(make_batch(0).inputs, make_batch(0).targets).item<double>();
  mt::shard(*model, mesh, {logical(), mt::FsdpRule("fsdp", {.min_size = 512})});
  const mt::LogicalAxes sequence{{"batch", axes("dp", "fsdp")}, {"length", "tp"}, {"embed", whole}};
  mt::constrain(*model, {{R"(norm[12]?\.weight$)", sequence.spec({"batch", "length", "embed"})}});
  const auto place = [&](const at::Tensor& x) {
    return mt::device_put(x, {mesh, sequence.spec({"batch"})});
  };
  const auto loss = model->loss(place(make_batch(0).inputs), place(make_batch(0).targets));
  EXPECT_NEAR(loss.item<double>() / dense, 1, 1e-6);
}

}  // namespace
