// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/precision.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>

#include <meshtorch/base/testing.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

constexpr auto f32 = torch::kFloat, bf16 = torch::kBFloat16, f16 = torch::kHalf,
               f64 = torch::kDouble;

TEST(Precision, Parses) {
  const std::pair<const char*, Precision> cases[]{
      {"params=float32,compute=bfloat16,output=float32,reduce=float32,accumulate=float32",
       {f32, bf16, f32, f32, f32}},
      {"accumulate=float64,output=half,params=bf16", {bf16, bf16, f16, f32, f64}},
      // The three of jmp's documentation, with its answers for what is left out.
      {"compute=f16", {f32, f16, f16, f32, f32}},
      {"params=f16,compute=f16", {f16, f16, f16, f32, f32}},
      {"params=f16,compute=bf16", {f16, bf16, bf16, f32, f32}},
      {"bfloat16", {bf16, bf16, bf16, f32, f32}},
      {"f32", Precision()},
      {"double", {f64, f64, f64, f64, f64}},
      {"params=f64", {f64, f64, f64, f64, f64}},
      {"params=f64,reduce=bf16", {f64, f64, f64, bf16, f64}},
      {" params = float ,\tcompute = f16 ", {f32, f16, f16, f32, f32}},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(Precision::parse(text), expected) << text << " is " << Precision::parse(text);
  }
}

TEST(Precision, Prints) {
  EXPECT_EQ(Precision().to_string(),
            "params=float32,compute=float32,output=float32,reduce=float32,accumulate=float32");
  EXPECT_EQ((Precision{bf16, f16, f64, f32, bf16}).to_string(),
            "params=bfloat16,compute=float16,output=float64,reduce=float32,accumulate=bfloat16");
}

TEST(Precision, EveryValueIsItsText) {
  const std::array all{f32, bf16, f16, f64};
  for (const auto a : all)
    for (const auto b : all)
      for (const auto c : all)
        for (const auto d : all)
          for (const auto e : all) {
            const Precision precision{a, b, c, d, e};
            ASSERT_EQ(Precision::parse(precision.to_string()), precision);
          }
}

TEST(Precision, Errors) {
  const auto complaint = [](std::string_view text) {
    return message([&] { Precision::parse(text); });
  };
  const std::string keys = "; use some of: params, compute, output, reduce, accumulate";
  const std::string dtypes = "; use one of: float32, bfloat16, float16, float64";
  const std::string form = "; write it as \"params=float32,compute=bfloat16,output=float32\"";
  const std::pair<const char*, std::string> cases[]{
      {"", "has no dtype" + dtypes},
      {"int8", "got \"int8\", expected a floating point dtype" + dtypes},
      {"Float32", "got \"Float32\", expected a floating point dtype" + dtypes},
      {"param=f32", "\"param\" is not a key" + keys},
      {"=f32", "a dtype has no key" + keys},
      {"params=int64", "params: got \"int64\", expected a floating point dtype" + dtypes},
      {"params=f32=f32", "params: got \"f32=f32\", expected a floating point dtype" + dtypes},
      {"params=", "params: has no dtype" + dtypes},
      {"params=,compute=f16", "params: has no dtype" + dtypes},
      {"params=f32,params=f32", "params is given twice; give it once"},
      {"params=f32,", "a part between commas is empty" + form},
      {",params=f32", "a part between commas is empty" + form},
      {"params=f32,,compute=f32", "a part between commas is empty" + form},
      {"f32\x80", "got \"f32?\", expected a floating point dtype" + dtypes},
      {",", "a part between commas is empty" + form},
      {"params=f32,bf16", "\"bf16\" has no key" + form},
      {"params=f32;compute=f16",
       "params: got \"f32;compute=f16\", expected a floating point dtype" + dtypes},
  };
  for (const auto& [text, expected] : cases) {
    std::string shown(text);
    std::ranges::replace(shown, '\x80', '?');
    EXPECT_EQ(complaint(text), "[Precision] \"" + shown + "\": " + expected);
  }
}

// Deletes, doubles, swaps and overwrites bytes.
std::string mutate(std::string text, std::mt19937& random) {
  const std::string letters = "=, \tpcoraf36bhint_\x80" + std::string(1, '\0');
  for (auto left = random() % 4 + 1; left > 0 && !text.empty(); --left) {
    const auto at = random() % text.size(), to = random() % text.size();
    switch (random() % 5) {
      case 0:
        text.erase(at, random() % 9);
        break;
      case 1:
        text.insert(at, text.substr(to, random() % 20));
        break;
      case 2:
        std::swap(text[at], text[to]);
        break;
      case 3:
        text[at] = letters[random() % letters.size()];
        break;
      default:
        text.insert(at, 1, letters[random() % letters.size()]);
    }
  }
  return text;
}

TEST(Precision, AnyTextIsAValueOrAnError) {
  const std::array seeds{std::string("params=float32,compute=bfloat16,output=float32"),
                         std::string("bf16"), std::string("reduce = f64 , accumulate = double"),
                         Precision().to_string()};
  std::mt19937 random(7);
  int values = 0, errors = 0;
  for (int round = 0; round < 100000; ++round) {
    const std::string text = mutate(seeds[random() % seeds.size()], random);
    try {
      const Precision value = Precision::parse(text);
      ASSERT_EQ(Precision::parse(value.to_string()), value) << text;
      ++values;
    } catch (const Error& error) {
      std::string shown = text;
      for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
      ASSERT_TRUE(std::string(error.what()).starts_with("[Precision] \"" + shown + "\": "))
          << error.what();
      ASSERT_NE(std::string(error.what()).find("; "), std::string::npos);
      ++errors;
    }
  }
  EXPECT_GT(values, 1000);
  EXPECT_GT(errors, 1000);
}

TEST(Precision, CastsFloatingPointOnly) {
  const Precision precision{bf16, f16, f64, f32, f32};
  const auto x = torch::tensor({1.0f, 2.5f});
  EXPECT_EQ(precision.cast_to_params(x).scalar_type(), bf16);
  EXPECT_EQ(precision.cast_to_compute(x).scalar_type(), f16);
  EXPECT_EQ(precision.cast_to_output(x).scalar_type(), f64);
  EXPECT_TRUE(torch::equal(precision.cast_to_output(x), torch::tensor({1.0, 2.5}, f64)));
  const std::vector<at::Tensor> others{torch::tensor({1, 2}), torch::tensor({true}), at::Tensor(),
                                       torch::zeros({2}, torch::kComplexFloat),
                                       torch::zeros({2}, f16)};
  const auto cast = precision.cast_to_compute(others);
  ASSERT_EQ(cast.size(), others.size());
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_TRUE(cast[i].is_same(others[i])) << i;
}

TEST(Precision, CastsAreDifferentiableAndKeepTheLayout) {
  Runtime runtime({.devices = 4});
  const auto mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
  const auto x = device_put(torch::ones({4, 6}), {mesh, P("dp", "tp")}).set_requires_grad(true);
  const auto y = Precision::parse("compute=bf16").cast_to_compute(x);
  EXPECT_EQ(y.scalar_type(), bf16);
  EXPECT_EQ(sharding_of(y), sharding_of(x));
  (y * 3).sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), f32);
  EXPECT_TRUE(torch::equal(full(x.grad()), torch::full({4, 6}, 3.0f)));
}

TEST(Precision, OnlyFloat16NeedsALossScale) {
  EXPECT_TRUE(Precision::parse("compute=f16").needs_loss_scale());
  EXPECT_FALSE(Precision::parse("params=f16,compute=f32").needs_loss_scale());
  EXPECT_FALSE(Precision::parse("compute=bf16").needs_loss_scale());
}

}  // namespace
}  // namespace meshtorch
