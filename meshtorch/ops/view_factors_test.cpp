// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/ops/view_factors.h>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/rule/propagate.h>

namespace meshtorch {
namespace {

OpRule view(const Shape& from, const Shape& to) {
  OpCall call;
  call.name = "aten::view";
  return view_rule(call, from, to);
}

std::string factors(const Shape& from, const Shape& to) { return to_string(view(from, to)); }

TEST(ViewFactors, OfManySizes) {
  EXPECT_EQ(factors({6, 4}, {6, 4}), "ab->ab; each");
  EXPECT_EQ(factors({6, 4}, {24}), "ab->(ab); each");
  EXPECT_EQ(factors({24}, {2, 3, 4}), "(abc)->abc; each");
  EXPECT_EQ(factors({6, 4}, {3, 8}), "(ab)c->a(bc); each");
  EXPECT_EQ(factors({4, 6}, {6, 4}), "(a*)*->(a*)*; each");
  EXPECT_EQ(factors({3, 4}, {4, 3}), "**->**; each");
  EXPECT_EQ(factors({5, 3, 4}, {5, 4, 3}), "a**->a**; each");
  EXPECT_EQ(factors({3, 4, 5}, {4, 3, 5}), "**a->**a; each");
  EXPECT_EQ(factors({8, 16, 64}, {8, 16, 4, 16}), "ab(cd)->abcd; each");
  EXPECT_EQ(factors({8, 16, 4, 16}, {128, 64}), "abcd->(ab)(cd); each");
  EXPECT_EQ(factors({2, 1, 3}, {2, 3}), "a1b->ab; each");
  EXPECT_EQ(factors({2, 3}, {1, 2, 1, 3, 1}), "ab->1a1b1; each");
  EXPECT_EQ(factors({1, 6}, {1, 2, 3}), "a(bc)->abc; each");
  EXPECT_EQ(factors({2, 1, 3}, {6}), "a1b->(ab); each");
  EXPECT_EQ(factors({1}, {}), "1->; each");
  EXPECT_EQ(factors({}, {1, 1}), "->11; each");
  EXPECT_EQ(factors({}, {}), "->; each");
  EXPECT_EQ(factors({4, 0, 8}, {4, 0}), "ab*->ab; each");
  EXPECT_EQ(factors({0}, {3, 0}), "*->**; each");
}

TEST(ViewFactors, Sizes) {
  OpCall call;
  call.name = "aten::view";
  EXPECT_EQ(resolve_size(call, {6, 4}, {-1, 8}), (Shape{3, 8}));
  EXPECT_EQ(resolve_size(call, {0, 4}, {-1, 4}), (Shape{0, 4}));
  EXPECT_EQ(resolve_size(call, {}, {-1}), (Shape{1}));
  EXPECT_THROW(resolve_size(call, {6, 4}, {-1, 5}), Error);
}

// Row-major positions, in order, of what a device holds.
std::vector<std::int64_t> held(const Mesh& mesh, const Shape& shape, const Layout& layout,
                               std::int64_t position) {
  std::vector<std::int64_t> indices = {0};
  const Box box = shard_box(mesh, shape, layout, position);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t index : indices) {
      for (std::int64_t i = box[d].begin; i < box[d].end; ++i) next.push_back(index * shape[d] + i);
    }
    indices = std::move(next);
  }
  return indices;
}

std::vector<Shape> shapes_of(std::int64_t elements, std::size_t rank) {
  if (rank == 0) return elements == 1 ? std::vector<Shape>{{}} : std::vector<Shape>{};
  std::vector<Shape> shapes;
  for (std::int64_t size = 1; size <= elements; ++size) {
    if (elements % size != 0) continue;
    for (Shape rest : shapes_of(elements / size, rank - 1)) {
      rest.insert(rest.begin(), size);
      shapes.push_back(rest);
    }
  }
  return shapes;
}

std::vector<Layout> layouts_of(std::size_t rank) {
  std::vector<Layout> layouts;
  for (std::size_t x = 0; x <= rank; ++x) {
    for (std::size_t y = 0; y <= rank; ++y) {
      Layout layout = Layout::replicated(static_cast<std::int64_t>(rank));
      if (x < rank) layout.dims[x].push_back(0);
      if (y < rank) layout.dims[y].push_back(1);
      layouts.push_back(layout);
      if (x == y && x < rank) {
        layout.dims[x] = AxisList::of(1);
        layout.dims[x].push_back(0);
        layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

// Whatever layouts propagation asks for, a device's piece of the result is its piece of the
// operand, element by element.
TEST(ViewFactors, ShardsViewAlone) {
  int local = 0;
  for (const Mesh& mesh :
       {Mesh{{"x", 2}, {"y", 2}}, Mesh{{"x", 3}, {"y", 2}}, Mesh{{"x", 2}, {"y", 1}}}) {
    for (const std::int64_t elements : {1, 12, 16, 36}) {
      std::vector<Shape> shapes = {{elements}};
      for (const std::size_t rank : {2, 3}) {
        for (const Shape& shape : shapes_of(elements, rank)) shapes.push_back(shape);
      }
      for (const Shape& from : shapes) {
        for (const Shape& to : shapes) {
          const OpRule rule = view(from, to);
          for (const Layout& layout : layouts_of(from.size())) {
            const auto placement = propagate(rule, mesh, {Operand{from, layout}});
            ASSERT_TRUE(placement);
            local += placement->operands[0] == layout && !layout.is_replicated();
            for (std::int64_t p = 0; p < mesh.size(); ++p) {
              ASSERT_EQ(held(mesh, from, placement->operands[0], p),
                        held(mesh, to, placement->outputs[0], p))
                  << to_string(rule) << " (" << join(from) << ") -> (" << join(to) << ") "
                  << to_string(mesh, placement->operands[0]);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(local, 1000);
}

}  // namespace
}  // namespace meshtorch
