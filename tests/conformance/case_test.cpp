// SPDX-License-Identifier: Apache-2.0
#include "case.h"

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>

#include "instance.h"
#include "sizes.h"

namespace meshtorch::conformance {
namespace {

Case parse(const std::string& text) { return parse_case(text, "t.txt:1"); }

std::string error(const std::string& text) {
  try {
    const Case of = parse(text);
    Sizes sizes;
    for (const char letter : of.letters) sizes[letter] = 4;
    const Instance instance(of, sizes);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Case, LettersSizesAndOptions) {
  const Case of = parse("mm(self=<m,2*k>, mat2=<2*k,n>) ; min(m)=3 no-zero no-grad values=abs");
  EXPECT_EQ(of.op, "mm");
  EXPECT_EQ(of.letters, (std::vector<char>{'m', 'k', 'n'}));
  EXPECT_EQ(of.least.at('m'), 3);
  EXPECT_FALSE(of.zero);
  EXPECT_FALSE(of.gradients);
  EXPECT_EQ(of.compare, Compare::absolute);
  const Instance instance(of, {{'m', 3}, {'k', 2}, {'n', 5}});
  EXPECT_EQ(instance.shape(0), (Shape{3, 4}));
  EXPECT_EQ(instance.shape(1), (Shape{4, 5}));
  EXPECT_EQ(instance.name(1), "mat2");
}

TEST(Case, ValuesOfEveryType) {
  const Case of = parse(
      "convolution(input=<n,c,h,w>, weight=<o,c,3,3>, bias=?, stride=[1,1], padding=[h-3,0], "
      "dilation=[1,1], transposed=false, output_padding=[0,0], groups=1)");
  const Instance instance(of, {{'n', 1}, {'c', 2}, {'h', 4}, {'w', 5}, {'o', 2}});
  const auto stack = instance.stack(instance.values(1));
  ASSERT_EQ(stack.size(), 9u);
  EXPECT_TRUE(stack[2].isNone());
  EXPECT_EQ(stack[4].toIntVector(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_FALSE(stack[6].toBool());
  EXPECT_EQ(
      Instance(parse("sum(self=<a>, dtype=long)"), {{'a', 1}}).stack({at::ones({1})})[1].toInt(),
      static_cast<std::int64_t>(at::kLong));
  EXPECT_EQ(Instance(parse("gelu(self=<a>, approximate=\"tanh\")"), {{'a', 1}})
                .stack({at::ones({1})})[1]
                .toStringRef(),
            "tanh");
  // The schema's default, and an int for a list of two.
  EXPECT_EQ(
      Instance(parse("avg_pool2d(self=<a,b,c>, kernel_size=2)"), {{'a', 1}, {'b', 4}, {'c', 4}})
          .stack({at::ones({1, 4, 4})})[1]
          .toIntVector(),
      (std::vector<std::int64_t>{2, 2}));
}

TEST(Case, EqualSeedsGiveEqualValues) {
  const Case of = parse("mul.Tensor(self=<a,b>, other=<a,b>:index(b))");
  const Instance instance(of, {{'a', 3}, {'b', 2}});
  const Tensors first = instance.values(7), second = instance.values(7), third = instance.values(8);
  EXPECT_TRUE(at::equal(first[0], second[0]));
  EXPECT_FALSE(at::equal(first[0], third[0]));
  EXPECT_EQ(first[1].scalar_type(), at::kLong);
  EXPECT_LT(first[1].max().item<std::int64_t>(), 2);
}

TEST(Case, ErrorsNameTheLineAndWhatIsWrong) {
  EXPECT_EQ(error("mmm(self=<a>)"),
            "[conformance] t.txt:1: \"mmm\" is no op of aten; give the full overload name without "
            "aten::");
  EXPECT_EQ(error("mm(self=<a,b>, other=<b,a>)"),
            "[conformance] t.txt:1: mm has no argument \"other\"; use one of: self, mat2");
  EXPECT_EQ(error("mm(self=<a,b>, self=<b,a>)"),
            "[conformance] t.txt:1: argument \"self\" is given twice");
  EXPECT_NE(error("mm(self=<a,b>)").find("argument mat2 is missing"), std::string::npos);
  EXPECT_NE(error("mm(self=3, mat2=<a,b>)").find("argument self wants a tensor"),
            std::string::npos);
  EXPECT_NE(error("mm(self=<a,b>, mat2)").find("argument \"mat2\" has no value"),
            std::string::npos);
  EXPECT_NE(error("mm(self=<a,b, mat2=<b,c>)").find("cannot read \"mat2=<b\""), std::string::npos);
  EXPECT_NE(error("exp(self=<a>:number)").find("a tensor's values cannot be \"number\""),
            std::string::npos);
  EXPECT_NE(error("exp(self=<a>:index)").find("permutation(e) and int32(e) take a size"),
            std::string::npos);
  EXPECT_NE(error("exp(self=<a+>)").find("cannot read \"a+\" at column 3"), std::string::npos);
  EXPECT_NE(error("exp(self=<a>) ; no-zeros").find("\"no-zeros\" is no option"), std::string::npos);
  EXPECT_NE(error("exp(self=<a>) ; min(b)=3").find("min(b) names a letter that the call has not"),
            std::string::npos);
  EXPECT_NE(error("exp(self=<a>) no-zero").find("there is text behind the call"),
            std::string::npos);
  EXPECT_NE(error("sum.dim_IntList(self=<a>, dim=[0], keepdim=1)")
                .find("argument keepdim does not fit its type bool"),
            std::string::npos);
  EXPECT_NE(error("sum(self=<a>, dtype=quad)").find("\"quad\" is no dtype or format"),
            std::string::npos);
}

TEST(Sizes, Regimes) {
  const Case of = parse("mm(self=<m,k>, mat2=<k,n>) ; min(n)=3");
  const auto all = regimes(of, Mesh({{"x", 2}}));
  std::vector<std::string> names;
  for (const Regime& regime : all) names.push_back(regime.name + " " + describe(regime.sizes));
  EXPECT_EQ(names,
            (std::vector<std::string>{"even k=4 m=2 n=4", "uneven k=7 m=5 n=5", "small k=1 m=1 n=3",
                                      "zero m k=4 m=0 n=4", "zero k k=0 m=2 n=4"}));
}

}  // namespace
}  // namespace meshtorch::conformance
