// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/visualize.h>

namespace meshtorch {
namespace {

using testing::HasSubstr;
using testing::Not;

class Visualize : public testing::Test {
 protected:
  std::string draw(std::vector<std::int64_t> shape, const PartitionSpec& spec, int width = 40) {
    return sharding_text(device_put(torch::zeros(shape), {mesh, spec}), {.width = width});
  }

  Runtime runtime{{.devices = 8}};
  Mesh mesh = runtime.make_mesh({{"dp", 4}, {"tp", 2}});
};

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(Visualize, AVectorIsOneRow) {
  EXPECT_EQ(draw({8}, P("dp")),
            "float [8], P(dp) on (dp=4, tp=2)\n"
            "    0:2       2:4       4:6       6:8\n"
            "┌─────────┬─────────┬─────────┬─────────┐\n"
            "│ CPU 0,1 │ CPU 2,3 │ CPU 4,5 │ CPU 6,7 │\n"
            "└─────────┴─────────┴─────────┴─────────┘\n");
}

TEST_F(Visualize, AMatrixOverBothAxes) {
  EXPECT_EQ(draw({8, 4}, P("dp", "tp")),
            "float [8, 4], P(dp, tp) on (dp=4, tp=2)\n"
            "           0:2              2:4\n"
            "    ┌────────────────┬────────────────┐\n"
            "0:2 │     CPU 0      │     CPU 1      │\n"
            "    ├────────────────┼────────────────┤\n"
            "2:4 │     CPU 2      │     CPU 3      │\n"
            "    ├────────────────┼────────────────┤\n"
            "4:6 │     CPU 4      │     CPU 5      │\n"
            "    ├────────────────┼────────────────┤\n"
            "6:8 │     CPU 6      │     CPU 7      │\n"
            "    └────────────────┴────────────────┘\n");
}

TEST_F(Visualize, ReplicatedIsOneCellThatWraps) {
  EXPECT_EQ(draw({4, 4}, P(), 20),
            "float [4, 4], P() on (dp=4, tp=2)\n"
            "          0:4\n"
            "    ┌──────────────┐\n"
            "0:4 │ CPU 0,1,2,3, │\n"
            "    │   4,5,6,7    │\n"
            "    └──────────────┘\n");
}

TEST_F(Visualize, UnevenPiecesAreInProportionAndEmptyOnesListed) {
  EXPECT_EQ(draw({2, 5}, P("dp", "tp"), 36),
            "float [2, 5], P(dp, tp) on (dp=4, tp=2)\n"
            "            0:3            3:5\n"
            "    ┌─────────────────┬───────────┐\n"
            "0:1 │      CPU 0      │   CPU 1   │\n"
            "    ├─────────────────┼───────────┤\n"
            "1:2 │      CPU 2      │   CPU 3   │\n"
            "    └─────────────────┴───────────┘\n"
            "no elements: CPU 4,5,6,7\n");
}

TEST_F(Visualize, SummandsAreJoinedByPlus) {
  EXPECT_EQ(draw({4}, P("tp").unreduced("dp")),
            "float [4], P(tp) unreduced(dp) on (dp=4, tp=2)\n"
            "unreduced over dp: + joins summands\n"
            "        0:2                2:4\n"
            "┌──────────────────┬──────────────────┐\n"
            "│   CPU 0+2+4+6    │   CPU 1+3+5+7    │\n"
            "└──────────────────┴──────────────────┘\n");
  EXPECT_THAT(draw({4}, P().unreduced("dp")), HasSubstr(" CPU 0,1+2,3+4,5+6,7 "));
}

TEST_F(Visualize, OfMoreDimsTheShardedOnesOthersAtZero) {
  EXPECT_EQ(draw({2, 3, 4, 5}, P(whole, "tp", whole, "dp"), 30),
            "float [2, 3, 4, 5], P(-, tp, -, dp) on (dp=4, tp=2)\n"
            "shown: the slice [0, :, 0, :]\n"
            "       0:2      2:4      4:5\n"
            "    ┌────────┬────────┬───────┐\n"
            "0:2 │ CPU 0  │ CPU 2  │ CPU 4 │\n"
            "    ├────────┼────────┼───────┤\n"
            "2:3 │ CPU 1  │ CPU 3  │ CPU 5 │\n"
            "    └────────┴────────┴───────┘\n"
            "no elements: CPU 6,7\n");
}

TEST_F(Visualize, DevicesOutsideOfTheSliceAreNotShown) {
  mesh = runtime.make_mesh({{"a", 2}, {"b", 2}, {"c", 2}});
  const std::string picture = draw({2, 2, 2}, P("a", "b", "c"));
  EXPECT_THAT(picture, HasSubstr("shown: the slice [:, :, 0]\n"));
  EXPECT_THAT(picture, HasSubstr(" CPU 6 "));
  EXPECT_THAT(picture, Not(HasSubstr("CPU 7")));
}

TEST_F(Visualize, ScalarsAndTensorsWithoutElements) {
  EXPECT_EQ(draw({}, P(), 24),
            "float [], P() on (dp=4, tp=2)\n"
            "┌──────────────────────┐\n"
            "│ CPU 0,1,2,3,4,5,6,7  │\n"
            "└──────────────────────┘\n");
  EXPECT_EQ(draw({0}, P("dp")),
            "float [0], P(dp) on (dp=4, tp=2)\nno elements: CPU 0,1,2,3,4,5,6,7\n");
}

TEST_F(Visualize, ColoursOnlyWhenAsked) {
  const auto x = device_put(torch::zeros({2}), {mesh, P("tp")});
  EXPECT_THAT(sharding_text(x, {.color = true}), HasSubstr("\x1b[30;48;5;153m"));
  EXPECT_THAT(sharding_text(x), Not(HasSubstr("\x1b")));
}

TEST(VisualizeWide, ManyPiecesAreAbridged) {
  Runtime runtime({.devices = 32});
  const auto x = device_put(torch::zeros({64, 2}), {runtime.make_mesh({{"dp", 32}}), P("dp")});
  const std::string picture = sharding_text(x);
  EXPECT_THAT(picture, HasSubstr("CPU 13 "));
  EXPECT_THAT(picture, HasSubstr("... │"));
  EXPECT_THAT(picture, HasSubstr("CPU 31 "));
  EXPECT_THAT(picture, Not(HasSubstr("CPU 14 ")));
}

TEST_F(Visualize, SvgHoldsEveryCell) {
  const std::string svg = sharding_svg(device_put(torch::zeros({8, 4}), {mesh, P("dp", "tp")}));
  for (int device = 0; device < 8; ++device)
    EXPECT_THAT(svg, HasSubstr(text(">CPU ", device, "</text>")));
  EXPECT_THAT(svg, HasSubstr("float [8, 4], P(dp, tp) on (dp=4, tp=2)"));
  EXPECT_THAT(svg, HasSubstr(">2:4</text>"));
}

TEST_F(Visualize, PrintsWhatTheTextSays) {
  testing::internal::CaptureStdout();
  const auto x = device_put(torch::zeros({8}), {mesh, P("dp")});
  visualize_sharding(x);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed, sharding_text(x));
}

TEST_F(Visualize, Errors) {
  EXPECT_EQ(message([] { visualize_sharding(torch::zeros({2})); }),
            "[visualize_sharding] x: is a plain tensor, expected a sharded one; device_put it onto "
            "a mesh first");
  EXPECT_EQ(
      message([] { sharding_svg({}); }),
      "[sharding_svg] x: is undefined, expected a sharded tensor; device_put it onto a mesh first");
  EXPECT_EQ(message([&] { draw({2}, P("tp"), 0); }),
            "[sharding_text] width: got 0, expected at least 1; give the terminal's width");
}

}  // namespace
}  // namespace meshtorch
