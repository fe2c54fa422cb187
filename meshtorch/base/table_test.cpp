// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>

namespace meshtorch {
namespace {

TEST(Table, ColumnsAlign) {
  Table table({{"path"}, {"bytes", Align::right}, {"note"}});
  table.add({"layers.0.weight", "4096", ""});
  table.add({"b", "16", "uneven"});
  EXPECT_EQ(table.to_string(),
            "path             bytes  note\n"
            "---------------  -----  ------\n"
            "layers.0.weight   4096\n"
            "b                   16  uneven\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"a"}, {"b"}});
  table.add({"é×", "x"});
  table.add({"abc", "y"});
  EXPECT_EQ(table.to_string(), "a    b\n---  -\né×   x\nabc  y\n");
}

TEST(Table, WithoutRows) { EXPECT_EQ(Table({{"a"}, {"bc"}}).to_string(), "a  bc\n-  --\n"); }

TEST(Table, RowOfAnotherLengthIsAnError) {
  Table table({{"a"}, {"b"}});
  try {
    table.add({"1"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[Table] row 0: 1 cells, expected 2; give one cell per column");
  }
}

TEST(WithCommas, GroupsByThree) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(-1234), "-1,234");
  EXPECT_EQ(with_commas(-123), "-123");
}

}  // namespace
}  // namespace meshtorch
