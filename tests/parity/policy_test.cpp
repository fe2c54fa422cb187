// SPDX-License-Identifier: Apache-2.0
//
// Policies: their text, what is refused in it, and what they do to a model.
#include <meshtorch/train/policy.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include <meshtorch/base/fuzz.h>
#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace mt = meshtorch;
namespace nn = torch::nn;
using mt::axes;
using mt::P;
using mt::Policy;
using mt::whole;

namespace {

Policy everything() {
  return {
      .rules = {mt::PathRules{{R"(\.(q|k|v)\.weight$)", P("tp"), 8},
                              {"out", P(whole, "tp"), {8, 1}}}
                    .otherwise(mt::Unmatched::replicate),
                mt::LogicalAxes{{"embed", "fsdp"}, {"batch", axes("dp", "fsdp")}, {"length", whole}}
                    .with_names({{"tokens", {"-", "embed"}}}),
                mt::SpecTable("mine", {{"head.weight", {P("tp"), "column", 2}}, {"b", {P()}}}),
                mt::AutoMegatron{"tp"}, mt::FsdpRule("fsdp", {.min_size = 1 << 16})},
      .otherwise = mt::Unmatched::replicate,
      .even = true,
      .precision = mt::Precision::parse("params=float32,compute=bfloat16"),
      .activations = {{.pattern = "norm", .input = P("dp", "tp")},
                      {.pattern = "tokens", .output = P().unreduced("tp"), .op = "embedding"}},
      .remat = {R"(^blocks\.\d+$)"},
      .zero = mt::ZeroPolicy{.axis = "fsdp",
                             .stage = 3,
                             .clip_norm = 0.1,
                             .reduce = mt::Reduce::each,
                             .keep_gathered = true,
                             .bucket_bytes = 1000,
                             .overlap = false,
                             .skip_nonfinite = true}};
}

constexpr char kText[] = R"x({
  "rules": [
    {
      "paths": [
        {
          "pattern": "\\.(q|k|v)\\.weight$",
          "spec": "P(tp)",
          "heads": 8
        },
        {
          "pattern": "out",
          "spec": "P(-, tp)",
          "heads": {
            "count": 8,
            "dim": 1
          }
        }
      ],
      "otherwise": "replicate"
    },
    {
      "logical": {
        "axes": [
          [
            "embed",
            "fsdp"
          ],
          [
            "batch",
            [
              "dp",
              "fsdp"
            ]
          ],
          [
            "length",
            null
          ]
        ],
        "names": [
          {
            "pattern": "tokens",
            "names": [
              "-",
              "embed"
            ]
          }
        ]
      }
    },
    {
      "table": {
        "name": "mine",
        "specs": {
          "b": "P()",
          "head.weight": {
            "spec": "P(tp)",
            "note": "column",
            "heads": 2
          }
        }
      }
    },
    {
      "megatron": {
        "axis": "tp"
      }
    },
    {
      "fsdp": {
        "axis": "fsdp",
        "min_size": 65536
      }
    }
  ],
  "otherwise": "replicate",
  "even": true,
  "precision": "params=float32,compute=bfloat16,output=bfloat16,reduce=float32,accumulate=float32",
  "activations": [
    {
      "pattern": "norm",
      "input": "P(dp, tp)"
    },
    {
      "pattern": "tokens",
      "output": "P() unreduced(tp)",
      "op": "embedding"
    }
  ],
  "remat": [
    "^blocks\\.\\d+$"
  ],
  "zero": {
    "axis": "fsdp",
    "stage": 3,
    "clip_norm": 0.1,
    "reduce": "each",
    "keep_gathered": true,
    "bucket_bytes": 1000,
    "overlap": false,
    "skip_nonfinite": true
  }
}
)x";

TEST(Policy, PrintsAndReads) {
  EXPECT_EQ(everything().to_string(), kText);
  EXPECT_EQ(Policy::parse(kText), everything());
  EXPECT_EQ(Policy{}.to_string(), "{}\n");
  EXPECT_EQ(Policy::parse(" {} "), Policy{});
  const Policy endless{.zero =
                           mt::ZeroPolicy{.clip_norm = std::numeric_limits<double>::infinity()}};
  EXPECT_EQ(Policy::parse(endless.to_string()), endless);
}

TEST(Policy, ZeroOptions) {
  const mt::ZeroOptions options = everything().zero_options();
  EXPECT_EQ(options.axis, "fsdp");
  EXPECT_EQ(options.stage, 3);
  EXPECT_EQ(options.clip_norm, 0.1);
  EXPECT_EQ(options.reduce, mt::Reduce::each);
  EXPECT_TRUE(options.keep_gathered);
  EXPECT_EQ(options.bucket_bytes, 1000);
  EXPECT_FALSE(options.overlap);
  EXPECT_TRUE(options.skip_nonfinite);
  EXPECT_EQ(options.precision->compute, at::kBFloat16);
  EXPECT_EQ(Policy{}.zero_options().stage, mt::ZeroOptions{}.stage);
  EXPECT_FALSE(Policy{}.zero_options().precision);
}

std::string complaint(const std::string& text) {
  return mt::message([&] { Policy::parse(text); });
}

TEST(Policy, RefusesWhatIsNoJson) {
  const std::string remedy = "; check quotes, commas and brackets";
  EXPECT_EQ(complaint(""), "[Policy] line 1, column 1: the text ends too early" + remedy);
  EXPECT_EQ(complaint("{\"even\":\n tru"),
            "[Policy] line 2, column 5: the text ends too early" + remedy);
  EXPECT_EQ(complaint("{\n\"even\": maybe}"),
            "[Policy] line 2, column 9: no JSON from here on" + remedy);
  EXPECT_EQ(complaint("{\"even\": true, \"even\": false}"),
            "[Policy] key \"even\": is there twice in one object; keep one of them");
  EXPECT_EQ(complaint("{\"zero\": {\"clip_norm\": 1e999}}"),
            "[Policy] a number that is out of range; write one that a double can hold");
}

TEST(Policy, RefusesUnknownKeysAndOtherTypes) {
  const std::string doc = "; see docs/policy.md";
  EXPECT_EQ(complaint("[]"), "[Policy] the text: got array, expected an object" + doc);
  EXPECT_EQ(complaint(R"x({"rule": []})x"),
            "[Policy] \"rule\" is not a key here; use some of: rules, otherwise, even, precision, "
            "activations, remat, zero");
  EXPECT_EQ(complaint(R"x({"rules": [{"paths": [{"pattern": "a", "specs": "P()"}]}]})x"),
            "[Policy] rules[0].paths[0]: \"specs\" is not a key here; use some of: pattern, spec, "
            "heads");
  EXPECT_EQ(complaint(R"x({"rules": [{"paths": [{"pattern": "a"}]}]})x"),
            "[Policy] rules[0].paths[0]: has no \"spec\"; say it");
  EXPECT_EQ(complaint(R"x({"rules": [{"fsdp": {"axis": "dp", "min_size": 1.5}}]})x"),
            "[Policy] rules[0].fsdp.min_size: got number, expected an integer" + doc);
  EXPECT_EQ(
      complaint(R"x({"rules": [{"fsdp": {"axis": "dp", "min_size": 18446744073709551615}}]})x"),
      "[Policy] rules[0].fsdp.min_size: got number, expected an integer of 64 bits" + doc);
  EXPECT_EQ(complaint(R"x({"rules": [{"pahts": []}]})x"),
            "[Policy] rules[0]: got object, expected one of the kinds paths, logical, table, fsdp, "
            "megatron" +
                doc);
  EXPECT_EQ(complaint(R"x({"rules": [{"logical": {"axes": [["embed"]]}}]})x"),
            "[Policy] rules[0].logical.axes[0]: got array, expected a name and its axes" + doc);
  EXPECT_EQ(complaint(R"x({"otherwise": "whole"})x"),
            "[Policy] otherwise: got string, expected \"error\" or \"replicate\"" + doc);
  EXPECT_EQ(complaint(R"x({"zero": {"stage": -1}})x"),
            "[Policy] zero.stage: got number, expected an integer from 0 to 1000" + doc);
  EXPECT_EQ(complaint(R"x({"remat": "blocks"})x"),
            "[Policy] remat: got string, expected an array" + doc);
}

TEST(Policy, SaysWhereARuleIsRefused) {
  EXPECT_EQ(complaint(R"x({"rules": [{"megatron": {"axis": "tp"}},
                                    {"paths": [{"pattern": "a", "spec": "P(tp"}]}]})x"),
            "[Policy] rules[1].paths[0].spec: \"P(tp\": expected \")\" at column "
            "5, got the end; write it as \"P(dp, (fsdp, tp), -, pp) unreduced(ep)\"");
  EXPECT_EQ(
      complaint(R"x({"rules": [{"paths": [{"pattern": "(", "spec": "P()"}]}]})x"),
      "[Policy] rules[0].paths[0].pattern: not a regular expression, unbalanced ( or ), or * + ? { "
      "with nothing to repeat; escape what is meant literally, as in \"\\.weight\"");
  EXPECT_EQ(complaint(R"x({"remat": ["a", "b)"]})x").substr(0, 43),
            "[Policy] remat[1]: not a regular expression");
  EXPECT_EQ(complaint(R"x({"activations": [{"pattern": "[a"}]})x").substr(0, 46),
            "[Policy] activations[0].pattern: not a regular");
  EXPECT_EQ(complaint(R"x({"precision": "float31"})x").substr(0, 29),
            "[Policy] precision: \"float31\"");
  EXPECT_EQ(complaint(R"x({"rules": [{"fsdp": {"axis": "dp", "min_size": -1}}]})x"),
            "[Policy] rules[0].fsdp: min_size: -1 elements; take 0 to shard whatever divides");
  EXPECT_EQ(
      mt::message([] {
        const Policy policy{
            .rules = {mt::FsdpRule("dp"), mt::PolicyRule([](const mt::Leaf&) { return P(); })}};
        policy.to_string();
      }),
      "[Policy] rules[1]: is a PolicyRule, which is a function and has no text; add it "
      "to the rules in the program");
  const auto norm_complaint = [](double norm) {
    return mt::message([&] { Policy{.zero = mt::ZeroPolicy{.clip_norm = norm}}.to_string(); });
  };
  const std::string norm = "[Policy] zero.clip_norm: is ",
                    no_text = ", which has no text; give a number, or infinity";
  EXPECT_EQ(norm_complaint(-std::numeric_limits<double>::infinity()), norm + "-inf" + no_text);
  EXPECT_EQ(norm_complaint(std::numeric_limits<double>::quiet_NaN()), norm + "nan" + no_text);
  EXPECT_EQ(mt::message([] { Policy{.remat = {"\xff"}}.to_string(); }),
            "[Policy] a pattern, a path or a name is no UTF-8; write it in UTF-8");
}

TEST(Policy, MutatedTextIsAnErrorOrAPolicy) {
  const std::vector<std::string> corpus{
      kText,
      everything().to_string(),
      "{}",
      R"x({"otherwise": "replicate"})x",
      R"x({"rules": [{"paths": [{"pattern": "a", "spec": "P(tp)"}]}]})x",
      R"x({"rules": [{"fsdp": {"axis": "dp", "min_size": 10}}], "even": false})x",
      R"x({"rules": [{"logical": {"axes": [["embed", "fsdp"], ["batch", null]]}}]})x",
      R"x({"rules": [{"table": {"specs": {"a": "P()", "b": {"spec": "P(dp)", "heads": 3}}}}]})x",
      R"x({"activations": [{"pattern": "a", "input": "P()"}], "remat": ["a|b"]})x",
      R"x({"zero": {"stage": 2, "clip_norm": 1e3, "reduce": "once"}, "precision": "bf16"})x"};
  mt::Mutator mutate(5);
  constexpr int kCases = 20000;
  int read = 0;
  for (int i = 0; i < kCases; ++i) {
    const std::string text = mutate(corpus, 3000);
    read += mt::only_errors([&] {
      const Policy policy = Policy::parse(text);
      EXPECT_EQ(Policy::parse(policy.to_string()), policy) << text;
    });
  }
  EXPECT_GT(read, kCases / 5);
  EXPECT_LT(read, kCases * 9 / 10);
}

struct BlockImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x + down(torch::gelu(up(x)));
  }
  nn::Linear up = register_module("up", nn::Linear(8, 32));
  nn::Linear down = register_module("down", nn::Linear(32, 8));
  int runs = 0;
};
TORCH_MODULE(Block);

class ApplyPolicy : public testing::Test {
 protected:
  std::string spec(const std::string& path) {
    return mt::sharding_of(model->named_parameters()[path]).spec.to_string();
  }

  mt::Runtime runtime{{.devices = 8}};
  mt::Mesh mesh = runtime.make_mesh({{"fsdp", 4}, {"tp", 2}});
  Block first, second;
  nn::Sequential model{first, second};
  at::Tensor x = torch::randn({8, 4, 8});
};

TEST_F(ApplyPolicy, TrainsAsTheDenseModel) {
  const at::Tensor expected = model->forward(x);
  expected.square().sum().backward();
  const at::Tensor gradient = first->up->weight.grad().clone();
  model->zero_grad();
  first->runs = second->runs = 0;

  const Policy policy = Policy::parse(R"x({
    "rules": [{"paths": [{"pattern": "up\\.", "spec": "P(tp)"},
                         {"pattern": "down\\.weight", "spec": "P(-, tp)"},
                         {"pattern": "down\\.bias", "spec": "P()"}]},
              {"fsdp": {"axis": "fsdp", "min_size": 100}}],
    "activations": [{"pattern": "^1$", "output": "P(fsdp, tp)", "op": "module"}],
    "remat": ["^0$"]})x");
  const mt::PolicyReport report = mt::apply(policy, *model, mesh);
  EXPECT_EQ(report.to_string(),
            "path           shape    rule  spec              bytes per device  note\n"
            "-------------  -------  ----  ----------------  ----------------  "
            "---------------------------------\n"
            "0.up.weight    [32, 8]   0+3  P((tp, fsdp))                  128\n"
            "0.up.bias      [32]        0  P(tp)                           64  not over fsdp: 32 "
            "elements of 100\n"
            "0.down.weight  [8, 32]   1+3  P(-, (tp, fsdp))               128\n"
            "0.down.bias    [8]         2  P()                             32  not over fsdp: 8 "
            "elements of 100\n"
            "1.up.weight    [32, 8]   0+3  P((tp, fsdp))                  128\n"
            "1.up.bias      [32]        0  P(tp)                           64  not over fsdp: 32 "
            "elements of 100\n"
            "1.down.weight  [8, 32]   1+3  P(-, (tp, fsdp))               128\n"
            "1.down.bias    [8]         2  P()                             32  not over fsdp: 8 "
            "elements of 100\n"
            "8 leaves, 704 bytes per device\n"
            "\n"
            "path  op      rule  input  output       note\n"
            "----  ------  ----  -----  -----------  ----\n"
            "1     module     0         P(fsdp, tp)\n"
            "\n"
            "run again in backward: 0\n");
  const at::Tensor y = model->forward(mt::device_put(x, {mesh, P("fsdp")}));
  EXPECT_EQ(mt::sharding_of(y).spec, P("fsdp", "tp"));
  EXPECT_TRUE(torch::allclose(mt::full(y), expected, 1e-5, 1e-6));
  y.square().sum().backward();
  EXPECT_EQ(first->runs, 2);
  EXPECT_EQ(second->runs, 1);
  EXPECT_TRUE(torch::allclose(mt::full(first->up->weight.grad()), gradient, 1e-4, 1e-5));
}

TEST_F(ApplyPolicy, MegatronIsMadeByTheHook) {
  const Policy policy{.rules = {mt::AutoMegatron{"tp"}}, .otherwise = mt::Unmatched::replicate};
  EXPECT_EQ(
      mt::message([&] { mt::apply(policy, *model, mesh); }),
      "[apply] megatron: its specs come from watching the model run, which nothing here does; "
      "give PolicyHooks{.megatron}, which makes a SpecTable");
  mt::apply(policy, *model, mesh, {.megatron = [](const mt::AutoMegatron& megatron) {
              return mt::SpecTable("megatron", {{"0.up.weight", {P(megatron.axis)}}});
            }});
  EXPECT_EQ(spec("0.up.weight"), "P(tp)");
  EXPECT_EQ(spec("1.up.weight"), "P()");
}

TEST_F(ApplyPolicy, PatternsAreCheckedBeforeAnythingIsChanged) {
  const auto refused = [&](Policy policy) {
    policy.otherwise = mt::Unmatched::replicate;
    const std::string message = mt::message([&] { mt::apply(policy, *model, mesh); });
    EXPECT_FALSE(mt::is_sharded(first->up->weight)) << message;
    return message;
  };
  EXPECT_EQ(
      refused({.remat = {"^0$", "blocks"}}),
      "[apply] remat 1 \"blocks\": fires for no child of a Sequential; correct it: paths are as "
      "0");
  EXPECT_EQ(refused({.remat = {"("}}).substr(0, 45),
            "[apply] remat 0 \"(\": not a regular expression");
  EXPECT_EQ(refused({.activations = {{"norm", P()}}}).substr(0, 60),
            "[constrain] rule 0 \"norm\": fires for no parameter and for no");
  EXPECT_EQ(refused({.rules = {mt::FsdpRule("dp")}}).substr(0, 35),
            "[FsdpRule] 0.up.weight: axis \"dp\" i");
}

}  // namespace
