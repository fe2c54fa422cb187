// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/layout/shard.h>

#include <algorithm>

#include <gtest/gtest.h>

namespace meshtorch {
namespace {

using Intervals = std::vector<Interval>;

AxisList list(std::initializer_list<int> axes) {
  AxisList all;
  for (const int axis : axes) all.push_back(axis);
  return all;
}

Intervals shards(const Mesh& mesh, std::int64_t size, AxisList axes) {
  Intervals all;
  for (const std::int64_t p : mesh.group(0, axes)) {
    all.push_back(shard_interval(mesh, size, axes, p));
  }
  return all;
}

// Concatenated in rank order, the shards are the whole.
void expect_partition(const Intervals& shards, std::int64_t size) {
  std::int64_t at = 0;
  for (const Interval& shard : shards) {
    EXPECT_TRUE(shard.size() == 0 || shard.begin == at);
    EXPECT_GE(shard.size(), 0);
    EXPECT_LE(shard.size(), shards.front().size());
    at += shard.size();
  }
  EXPECT_EQ(at, size);
}

TEST(Shard, ChunksAreCeil) {
  EXPECT_EQ(chunk({0, 5}, 0, 2), (Interval{0, 3}));
  EXPECT_EQ(chunk({0, 5}, 1, 2), (Interval{3, 5}));
  EXPECT_EQ(chunk({3, 5}, 1, 2), (Interval{4, 5}));
  EXPECT_EQ(chunk({0, 2}, 3, 4).size(), 0);
  EXPECT_EQ(chunk({0, 0}, 1, 2), (Interval{0, 0}));
}

TEST(Shard, GatherOfShardsIsTheWholeForEverySize) {
  for (std::int64_t n = 1; n <= 8; ++n) {
    const Mesh mesh{{"a", n}};
    for (std::int64_t size = 0; size <= 3 * n + 1; ++size) {
      expect_partition(shards(mesh, size, list({0})), size);
    }
  }
}

TEST(Shard, GatherOfNestedShardsIsTheWholeForEverySize) {
  const Mesh mesh{{"a", 2}, {"b", 3}, {"c", 4}};
  for (const AxisList axes : {list({0, 1}), list({1, 0}), list({2, 0}), list({2, 1, 0})}) {
    for (std::int64_t size = 0; size <= 3 * mesh.size() + 1; ++size) {
      expect_partition(shards(mesh, size, axes), size);
    }
  }
}

TEST(Shard, FiveElementsOnTwoByTwo) {
  const Mesh mesh{{"a", 2}, {"b", 2}};
  EXPECT_EQ(shards(mesh, 5, list({0, 1})), (Intervals{{0, 2}, {2, 3}, {3, 4}, {4, 5}}));
  // Position order when b is the major axis.
  Intervals by_position;
  for (std::int64_t p = 0; p < 4; ++p) {
    by_position.push_back(shard_interval(mesh, 5, list({1, 0}), p));
  }
  EXPECT_EQ(by_position, (Intervals{{0, 2}, {3, 4}, {2, 3}, {4, 5}}));
}

TEST(Shard, VocabularyOverTwo) {
  EXPECT_EQ(shards(Mesh{{"tp", 2}}, 50257, list({0})), (Intervals{{0, 25129}, {25129, 50257}}));
}

TEST(Shard, BoxesAndShapes) {
  const Mesh mesh{{"a", 2}, {"b", 3}};
  const Layout layout = resolve(mesh, P("b", whole, "a"), 3);
  EXPECT_EQ(shard_box(mesh, {7, 2, 5}, layout, 5), (Box{{6, 7}, {0, 2}, {3, 5}}));
  EXPECT_EQ(shard_shape(mesh, {7, 2, 5}, layout, 5), (Shape{1, 2, 2}));
  EXPECT_EQ(shard_box(mesh, {}, Layout::replicated(0), 4), Box());
  EXPECT_EQ(intersect({{0, 4}, {1, 3}}, {{2, 6}, {0, 2}}), (Box{{2, 4}, {1, 2}}));
  EXPECT_EQ(volume(intersect({{0, 2}}, {{3, 5}})), 0);
  EXPECT_EQ(shape_of({{2, 4}, {1, 2}}), (Shape{2, 1}));
}

TEST(Shard, CountsElements) {
  EXPECT_EQ(numel(Shape{}), 1);
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(numel({2, 0, 4}), 0);
  EXPECT_EQ(volume(Box()), 1);
  EXPECT_EQ(volume({{1, 3}, {0, 5}}), 10);
}

TEST(Shard, PositionZeroHoldsTheLargest) {
  const Mesh mesh{{"a", 2}, {"b", 3}};
  for (const char* form : {"P()", "P((a, b))", "P((b, a))", "P(b, a)", "P(-, (a, b))"}) {
    const Layout layout = resolve(mesh, P::parse(form), 2);
    for (const Shape& shape : {Shape{7, 5}, Shape{1, 9}, Shape{0, 4}, Shape{6, 6}}) {
      std::int64_t most = 0;
      for (std::int64_t p = 0; p < mesh.size(); ++p) {
        most = std::max(most, numel(shard_shape(mesh, shape, layout, p)));
      }
      EXPECT_EQ(max_shard_numel(mesh, shape, layout), most);
    }
  }
}

}  // namespace
}  // namespace meshtorch
