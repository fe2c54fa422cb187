// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/cli/line_tagger.h>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

TEST(LineTagger, TagsWholeLines) {
  LineTagger tagger("[1] ");
  EXPECT_EQ(tagger.feed("a\n\nbc\n"), "[1] a\n[1] \n[1] bc\n");
  EXPECT_EQ(tagger.finish(), "");
}

TEST(LineTagger, IsTheSameForAnyPieces) {
  const std::string text = "one\ntwo\n\nthree";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    LineTagger tagger("[0] ");
    std::string out;
    for (std::size_t i = 0; i < text.size(); i += size) out += tagger.feed(text.substr(i, size));
    EXPECT_EQ(out, "[0] one\n[0] two\n[0] \n") << size;
    EXPECT_EQ(tagger.finish(), "[0] three\n") << size;
    EXPECT_EQ(tagger.finish(), "") << size;
  }
}

TEST(LineTagger, BreaksALineAtTheGreatestLength) {
  LineTagger tagger("[0] ");
  const std::string longest(LineTagger::kLongest, 'x');
  EXPECT_EQ(tagger.feed(longest + "yz"), "[0] " + longest + "\n");
  EXPECT_EQ(tagger.feed("\n"), "[0] yz\n");
}

TEST(LineTagger, KeepsBytes) {
  LineTagger tagger("[0] ");
  EXPECT_EQ(tagger.feed(std::string("\0\xff\r\n", 4)), std::string("[0] \0\xff\r\n", 8));
}

}  // namespace
}  // namespace meshtorch
