// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/ops/call_text.h>
#include <meshtorch/ops/registry.h>

namespace meshtorch {
namespace {

#include <meshtorch/ops/golden.inl>

const OpRegistry& registry() {
  static const OpRegistry built_in = OpRegistry::built_in();
  return built_in;
}

OpRule rule(const char* call_text) {
  const OpCall call = CallText::parse(call_text);
  return registry().find(call.name)->rule(call);
}

std::string bound(const char* call_text) { return to_string(rule(call_text)); }

std::string error(const char* call_text) {
  try {
    rule(call_text);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Ops, Golden) {
  std::istringstream lines(kGolden);
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::size_t arrow = line.find(" => ");
    ASSERT_NE(arrow, std::string::npos) << line;
    const OpCall call = CallText::parse(line.substr(0, arrow));
    const OpEntry* entry = registry().find(call.name);
    ASSERT_NE(entry, nullptr) << line;
    EXPECT_EQ(line.substr(0, arrow) + " => " + to_string(entry->rule(call)), line);
    seen.insert(call.name);
  }
  for (const OpEntry& entry : registry().entries()) {
    EXPECT_TRUE(seen.contains(entry.name)) << entry.name << " has no line in golden.inl";
  }
}

TEST(Ops, TheTextOfAnEntryIsWellFormed) {
  for (const OpEntry& entry : registry().entries()) {
    EXPECT_EQ(RuleText::check(entry.text), nullptr) << entry.name << ": " << entry.text;
  }
}

TEST(Ops, OneRulePerOp) {
  OpRegistry rules;
  const OpEntry entry{"aten::mm", "matmul", "ik,kj->ij", nullptr};
  rules.add(entry);
  try {
    rules.add(entry);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[aten::mm] has a rule already, in family matmul; give the op one rule");
  }
  EXPECT_EQ(rules.find("aten::bmm"), nullptr);
  EXPECT_EQ(rules.entries().size(), 1u);
}

TEST(Ops, CoverageTable) {
  OpRegistry rules;
  rules.add({"aten::mm", "matmul", "ik,kj->ij; each", nullptr});
  rules.add({"aten::exp", "pointwise", "...->...", nullptr});
  EXPECT_EQ(coverage_table(rules),
            "## matmul\n\n| op | rule | linear |\n|---|---|---|\n| `mm` | `ik,kj->ij` | each |\n\n"
            "## pointwise\n\n| op | rule | linear |\n|---|---|---|\n| `exp` | `...->...` | |\n");
}

TEST(Ops, SizeArguments) {
  const OpRule view = rule("aten::view(self=<8,4>, size=[-1])");
  ASSERT_EQ(view.sizes.size(), 1u);
  EXPECT_EQ(view.sizes[0].argument, 1);
  EXPECT_EQ(view.sizes[0].output, 0);
  EXPECT_EQ(view.sizes[0].dim, -1);
  const OpRule embedding = rule(
      "aten::embedding_dense_backward(grad_output=<8,6>, indices=<8>, num_weights=50, "
      "scale_grad_by_freq=false)");
  ASSERT_EQ(embedding.sizes.size(), 1u);
  EXPECT_EQ(embedding.sizes[0].argument, 2);
  EXPECT_EQ(embedding.sizes[0].dim, 0);
  EXPECT_EQ(embedding.factors[embedding.outputs[0][0][0]].size, 50);
  for (const char* call :
       {"aten::expand(self=<1>, size=[8,4])", "aten::new_zeros(self=<8>, size=[4])",
        "aten::slice_backward(grad_output=<4>, input_sizes=[8], dim=0, start=0, end=4, step=1)",
        "aten::select_backward(grad_output=<>, input_sizes=[8], dim=0, index=0)"}) {
    EXPECT_EQ(rule(call).sizes.size(), 1u) << call;
    EXPECT_EQ(rule(call).sizes[0].argument, 1) << call;
  }
  EXPECT_TRUE(rule("aten::squeeze(self=<8,1>)").local_view);
  EXPECT_EQ(rule("aten::_pack_padded_sequence(input=<8,4,6>, lengths=<4>)").host_outputs,
            std::vector<int>{1});
}

TEST(Ops, SizesOfOneFactorAndOfOneElement) {
  const OpRule grouped = rule(
      "aten::convolution(input=<8,4,6>, weight=<6,2,3>, bias=?, stride=[1], padding=[1], "
      "dilation=[1], transposed=false, output_padding=[0], groups=2)");
  ASSERT_EQ(grouped.sizes.size(), 1u);
  EXPECT_EQ(grouped.sizes[0].argument, 8);
  EXPECT_EQ(grouped.factors[grouped.sizes[0].factor].size, 2);
  const OpRule norm = rule(
      "aten::native_group_norm(input=<8,4,6>, weight=<4>, bias=<4>, N=8, C=4, HxW=6, group=2)");
  ASSERT_EQ(norm.sizes.size(), 3u);
  EXPECT_EQ(norm.factors[norm.sizes[2].factor].size, 2);
  const OpRule grid = rule("aten::affine_grid_generator(theta=<8,2,3>, size=[8,3,6,5])");
  ASSERT_EQ(grid.sizes.size(), 1u);
  EXPECT_EQ(grid.sizes[0].element, 0);
  EXPECT_EQ(grid.factors[grid.outputs[0][1][0]].size, 6);
}

TEST(Ops, Slices) {
  const auto slice = [](const char* range) {
    return bound((std::string("aten::slice.Tensor(self=<8>, dim=0, ") + range + ")").c_str());
  };
  EXPECT_EQ(slice("start=0, end=9223372036854775807, step=1"), "a->a; each");
  EXPECT_EQ(slice("start=-8, end=none, step=1"), "a->a; each");
  EXPECT_EQ(slice("start=none, end=8, step=1"), "a->a; each");
  EXPECT_EQ(slice("start=0, end=-1, step=1"), "*->*; each");
  EXPECT_EQ(slice("start=0, end=8, step=2"), "*->*; each");
  const OpRule some = rule("aten::slice.Tensor(self=<8>, dim=0, start=1, end=8, step=3)");
  EXPECT_EQ(some.factors[some.outputs[0][0][0]].size, 3);
  const OpRule none = rule("aten::slice.Tensor(self=<8>, dim=0, start=6, end=2, step=1)");
  EXPECT_EQ(none.factors[none.outputs[0][0][0]].size, 0);
}

std::vector<AttributeRead> reads(const char* call_text) {
  const OpCall call = CallText::parse(call_text);
  registry().find(call.name)->rule(call);
  return call.reads();
}

// What changes from step to step is not looked at.
TEST(Ops, ReadsOfAttributes) {
  using Reads = std::vector<AttributeRead>;
  EXPECT_EQ(reads("aten::select.int(self=<8,4>, dim=0, index=3)"), Reads{{.argument = 1}});
  EXPECT_EQ(reads("aten::slice.Tensor(self=<8>, dim=0, start=2, end=4, step=1)"),
            (Reads{{.argument = 1}, {.argument = 0, .dim = 1, .start = 2, .end = 3, .step = 4}}));
  EXPECT_EQ(
      reads(
          "aten::slice_backward(grad_output=<2>, input_sizes=[8], dim=0, start=2, end=4, step=1)"),
      (Reads{{.argument = 1},
             {.argument = 2},
             {.argument = 1, .dim = 2, .start = 3, .end = 4, .step = 5}}));
  EXPECT_EQ(reads("aten::roll(self=<8>, shifts=[3], dims=[0])"), Reads{{.argument = 2}});
  EXPECT_TRUE(reads("aten::tril(self=<8,8>, diagonal=3)").empty());
}

TEST(Ops, Ranges) {
  const auto is = [](Range range, std::int64_t length, bool full) {
    return range.length == length && range.full == full;
  };
  EXPECT_TRUE(is(Range::of(std::nullopt, std::nullopt, 1, 8), 8, true));
  EXPECT_TRUE(is(Range::of(-3, -1, 1, 8), 2, false));
  EXPECT_TRUE(is(Range::of(1, std::numeric_limits<std::int64_t>::max(), 3, 8), 3, false));
  EXPECT_TRUE(is(Range::of(-20, 20, std::numeric_limits<std::int64_t>::max(), 8), 1, false));
  EXPECT_TRUE(is(Range::of(5, 2, 1, 8), 0, false));
  EXPECT_EQ(Range::of(0, 8, 0, 8).length, -1);
}

TEST(Ops, ConvolutionSizes) {
  const auto size = [](const char* call) {
    const OpRule conv = rule(call);
    return conv.factors[conv.outputs[0][2][0]].size;
  };
  EXPECT_EQ(
      size("aten::convolution(input=<1,3,9>, weight=<5,3,3>, bias=?, stride=[2], padding=[1], "
           "dilation=[1], transposed=false, output_padding=[0], groups=1)"),
      5);
  EXPECT_EQ(
      size("aten::convolution(input=<1,3,5>, weight=<3,5,3>, bias=?, stride=[2], padding=[1], "
           "dilation=[1], transposed=true, output_padding=[1], groups=1)"),
      10);
}

TEST(Ops, ScalarsAndReductionsOfThem) {
  EXPECT_EQ(bound("aten::sum(self=<>)"), "->; each");
  EXPECT_EQ(bound("aten::sum.dim_IntList(self=<>, dim=[-1], keepdim=true)"), "->; each");
  EXPECT_EQ(bound("aten::_softmax(self=<>, dim=0)"), "->");
  EXPECT_EQ(bound("aten::cumsum(self=<>, dim=0)"), "->; each");
  EXPECT_EQ(bound("aten::t(self=<>)"), "->; each");
  EXPECT_EQ(bound("aten::unsqueeze(self=<>, dim=-1)"), "->1; each");
  EXPECT_EQ(bound("aten::expand(self=<>, size=[8])"), "->a; each");
}

TEST(Ops, JoiningAndUnbindingNothing) {
  EXPECT_EQ(bound("aten::cat(tensors=<0><0>, dim=0)"), "*,*->*; joint");
  EXPECT_EQ(bound("aten::unbind.int(self=<0,3>, dim=0)"), "*a->a; each");
}

TEST(Ops, Messages) {
  EXPECT_EQ(error("aten::sum.dim_IntList(self=<8,4>, dim=[2], keepdim=false)"),
            "[aten::sum.dim_IntList] dim: got 2, expected one of -2 to 1");
  EXPECT_EQ(error("aten::view(self=<8,4>, size=[5])"),
            "[aten::view] size: got (5) for 32 elements");
  EXPECT_EQ(error("aten::select.int(self=<>, dim=0, index=0)"),
            "[aten::select.int] self: has no dims; give a tensor of rank 1 or more");
  EXPECT_EQ(error("aten::permute(self=<8>, order=[0])"),
            "[aten::permute] dims: is not an argument; use one of: self, order");
  EXPECT_EQ(error("aten::select.int(self=<8>, dim=true)"),
            "[aten::select.int] dim: is not an integer");
  EXPECT_EQ(error("aten::sum.dim_IntList(self=<8>, dim=true)"),
            "[aten::sum.dim_IntList] dim: is not a list of integers");
  EXPECT_EQ(error("aten::sum.dim_IntList(self=<8>, keepdim=3)"),
            "[aten::sum.dim_IntList] keepdim: is not a bool");
  EXPECT_EQ(error("aten::slice.Tensor(self=<8>, dim=0, start=0, end=8, step=0)"),
            "[aten::slice.Tensor] step: is below 1; give 1 or more");
  EXPECT_EQ(error("aten::matmul(self=<>, other=<8>)"),
            "[aten::matmul] self: has no dims; give a vector or a matrix");
  EXPECT_EQ(error("aten::sum(self=?)"), "[aten::sum] self: is absent; give a tensor");
  EXPECT_EQ(error("aten::sum(self=<8><8>)"),
            "[aten::sum] self: holds 2 tensors, expected 1; use Argument::operands");
  EXPECT_EQ(error("aten::cat(tensors=<>, dim=0)"), "[aten::cat] tensors: have no dims; stack them");
  EXPECT_EQ(error("aten::repeat(self=<8,4>, repeats=[2])"),
            "[aten::repeat] repeats: got 1 for rank 2");
  EXPECT_EQ(error("aten::native_layer_norm(input=<8>, normalized_shape=[8,8], weight=?, bias=?)"),
            "[aten::native_layer_norm] normalized_shape: got 2 dims for rank 1");
  EXPECT_EQ(error("aten::native_batch_norm(input=<8>, weight=?, bias=?, running_mean=?, "
                  "running_var=?, training=true)"),
            "[aten::native_batch_norm] input: got rank 1, expected at least 2");
  EXPECT_EQ(error("aten::convolution(input=<8,3>, weight=<3,3>, bias=?, groups=1)"),
            "[aten::convolution] input: got rank 2, expected at least 3");
  EXPECT_EQ(error("aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,6>, key=<8,4,6>, "
                  "value=<8,4,6>, attn_mask=?)"),
            "[aten::_scaled_dot_product_flash_attention_for_cpu] query: got rank 3, expected 4");
  EXPECT_EQ(error("aten::nll_loss_forward(self=<>, target=<>, weight=?, reduction=1)"),
            "[aten::nll_loss_forward] self: has no class dim; give scores of rank 1 or more");
}

}  // namespace
}  // namespace meshtorch
