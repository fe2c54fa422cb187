// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <meshtorch/base/chart.h>
#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::string message(const Chart& chart) {
  try {
    to_svg(chart);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Ticks, AreRound) {
  EXPECT_THAT(ticks(0, 10, 6), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks(0, 600, 7), ElementsAre(0, 100, 200, 300, 400, 500, 600));
  EXPECT_THAT(ticks(1.3, 4.8, 4), ElementsAre(2, 3, 4));
  EXPECT_THAT(ticks(-1, 1, 5), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(Ticks, StayInsideAndFewForAnyRange) {
  for (const double low : {-1e6, -3.7, 0.0, 1e-7, 12345.678}) {
    for (const double span : {1e-6, 0.3, 7.0, 1e9}) {
      for (int at_most = 2; at_most < 10; ++at_most) {
        const auto values = ticks(low, low + span, at_most);
        EXPECT_LE(values.size(), static_cast<std::size_t>(at_most));
        EXPECT_GE(values.size(), at_most > 4 ? 2u : 0u) << low << " " << span << " " << at_most;
        for (const double value : values) {
          EXPECT_GE(value, low - 1e-8 * span - 1e-9 * std::abs(low));
          EXPECT_LE(value, low + span + 1e-8 * span + 1e-9 * std::abs(low));
        }
      }
    }
  }
}

TEST(Chart, GoldenLine) {
  const Chart chart{.title = "t",
                    .x_label = "",
                    .y_label = "",
                    .series = {{.name = "", .x = {0, 1}, .y = {0, 10}}},
                    .width = 184,
                    .height = 192};
  EXPECT_THAT(to_svg(chart), HasSubstr("points=\"64.0,135.5 164.0,44.5\"/>"));
  EXPECT_THAT(to_svg(chart), HasSubstr(">t</text>"));
}

TEST(Chart, EverySeriesIsDrawnAndNamed) {
  const auto svg = to_svg({.title = "fit",
                           .x_label = "x",
                           .y_label = "y",
                           .series = {{"data", {0, 1, 2}, {1, 2, 3}, Mark::points},
                                      {"model", {0, 1, 2}, {1, 2, 3}, Mark::line}}});
  EXPECT_EQ(count(svg, "<circle "), 3);
  EXPECT_EQ(count(svg, "<polyline "), 1);
  for (const char* word : {">fit<", ">x<", ">y<", ">data<", ">model<"}) {
    EXPECT_THAT(svg, HasSubstr(word));
  }
}

TEST(Chart, NotFiniteIsAGap) {
  const double nan = std::nan("");
  const auto svg = to_svg({.series = {{"a", {0, 1, 2, 3, 4}, {1, 2, nan, 4, HUGE_VAL}}}});
  EXPECT_EQ(count(svg, "<polyline "), 2);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(Chart, OnePointHasARange) {
  EXPECT_THAT(to_svg({.series = {{"a", {3}, {0}, Mark::points}}}), Not(HasSubstr("nan")));
}

TEST(Chart, WordsAreEscaped) {
  EXPECT_THAT(to_svg({.title = "a < b & \"c\"", .series = {{"s", {0}, {0}}}}),
              HasSubstr("a &lt; b &amp; &quot;c&quot;"));
}

TEST(Chart, Errors) {
  EXPECT_EQ(message({.series = {{"a", {0, 1}, {0}}}}),
            "[to_svg] series \"a\": 2 x values, 1 y values; give as many of one as of the other");
  EXPECT_EQ(message({.title = "loss"}),
            "[to_svg] \"loss\": no finite point to show; add a series with at least one point");
}

TEST(Chart, WritesAFileAndItsFolder) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "meshtorch_chart";
  const auto path = (folder / "deep" / "loss.svg").string();
  const Chart chart{.series = {{"a", {0, 1}, {1, 0}}}};
  write_svg(chart, path);
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  EXPECT_EQ(read.str(), to_svg(chart));

  try {
    write_svg(chart, path + "/under/a/file.svg");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[write_svg] " + path +
                  "/under/a/file.svg: cannot write the file; check that its "
                  "folder exists and is writable");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace meshtorch
