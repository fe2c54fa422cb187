// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/walk.h>

#include <gtest/gtest.h>

#include <functional>

#include <meshtorch/base/testing.h>
#include <meshtorch/tree/rebuild.h>

namespace meshtorch {
namespace {

struct Weight {
  int value = 0;
};
struct Node {
  Weight weight;
  std::shared_ptr<Node> next;
};
struct Declared;
enum class Key { low = -1, high = 2 };
struct Tree {
  Weight first;
  std::vector<Node> nodes;
  std::deque<std::list<Weight>> lists;
  std::array<Weight, 2> array;
  std::tuple<Weight, std::string, std::pair<int, Weight>> tuple;
  std::map<std::string, Weight> map;
  std::map<Key, Weight, std::greater<>> by_enum;
  std::unordered_map<int, Weight> table;
  std::optional<Weight> here, gone;
  std::variant<int, Weight, std::vector<Weight>> either;
  std::unique_ptr<Node> owned, none;
  std::shared_ptr<const Weight> constant;
  std::shared_ptr<Declared> declared;
  std::shared_ptr<void> anything;
  std::vector<bool> bits;
  std::vector<std::unique_ptr<Weight>> pointers;
  Weight* raw = nullptr;
  std::string text;
};

struct Visitor {
  template <class T>
  static constexpr bool kLeaf = std::is_same_v<T, Weight>;
  void leaf(const std::string& path, const Weight& weight) {
    seen.emplace_back(path, weight.value);
  }
  std::vector<std::pair<std::string, int>> seen;
};

struct Times10 {
  template <class T>
  static constexpr bool kLeaf = std::is_same_v<T, Weight>;
  void leaf(const std::string&, Weight& weight) { weight.value *= 10; }
  void leaf(const std::string&, const Weight&) {}
};

template <class T>
std::vector<std::pair<std::string, int>> leaves(const T& tree) {
  Visitor visitor;
  walk(tree, visitor);
  return visitor.seen;
}

Tree make() {
  Tree tree;
  tree.first = {1};
  tree.nodes = {{{2}, nullptr}, {{3}, std::make_shared<Node>(Node{{4}, nullptr})}};
  tree.lists = {{}, {{5}, {6}}};
  tree.array = {Weight{7}, Weight{8}};
  tree.tuple = {{9}, "text", {1, {10}}};
  tree.map = {{"b", {12}}, {"a.x", {11}}};
  tree.by_enum = {{Key::low, {14}}, {Key::high, {13}}};
  for (const int key : {30, -4, 7, 12, 5}) tree.table[key] = {key};
  tree.here = Weight{15};
  tree.either = std::vector<Weight>{{16}, {17}};
  tree.owned = std::make_unique<Node>(Node{{18}, nullptr});
  tree.constant = std::make_shared<Weight>(Weight{19});
  tree.bits = {true};
  tree.pointers.push_back(std::make_unique<Weight>(Weight{20}));
  tree.pointers.push_back(nullptr);
  tree.text = "text";
  return tree;
}

const std::vector<std::pair<std::string, int>> kLeaves = {
    {"first", 1},      {"nodes.0.weight", 2}, {"nodes.1.weight", 3}, {"nodes.1.next.weight", 4},
    {"lists.1.0", 5},  {"lists.1.1", 6},      {"array.0", 7},        {"array.1", 8},
    {"tuple.0", 9},    {"tuple.2.1", 10},     {"map.a.x", 11},       {"map.b", 12},
    {"by_enum.2", 13}, {"by_enum.-1", 14},    {"table.-4", -4},      {"table.5", 5},
    {"table.7", 7},    {"table.12", 12},      {"table.30", 30},      {"here", 15},
    {"either.0", 16},  {"either.1", 17},      {"owned.weight", 18},  {"constant", 19},
    {"pointers.0", 20}};

TEST(Walk, VisitsEveryLeafWithItsPathInOrder) {
  const Tree tree = make();
  EXPECT_EQ(leaves(tree), kLeaves);
}

TEST(Walk, LeavesOfATreeThatIsNotConstCanBeWritten) {
  Tree tree = make();
  walk(tree, Times10());
  EXPECT_EQ(tree.first.value, 10);
  EXPECT_EQ(tree.table.at(-4).value, -40);
  EXPECT_EQ(tree.constant->value, 19);
}

TEST(Walk, ALeafAloneHasNoPath) {
  const Weight weight{3};
  EXPECT_EQ(leaves(weight), (std::vector<std::pair<std::string, int>>{{"", 3}}));
}

TEST(Walk, CyclesAreNotFollowedTwice) {
  auto node = std::make_shared<Node>(Node{{1}, nullptr});
  node->next = std::make_shared<Node>(Node{{2}, node});
  const std::vector<std::shared_ptr<Node>> twice{node, node};
  EXPECT_EQ(leaves(twice),
            (std::vector<std::pair<std::string, int>>{
                {"0.weight", 1}, {"0.next.weight", 2}, {"1.weight", 1}, {"1.next.weight", 2}}));
  node->next.reset();
}

struct Negative {
  template <class T>
  static constexpr bool kLeaf = std::is_same_v<T, Weight>;
  Weight leaf(const std::string& path, const Weight& old) {
    seen.emplace_back(path, old.value);
    return {-old.value};
  }
  void skip(const std::string& path, const Weight& old) { leaf(path, old); }
  std::vector<std::pair<std::string, int>> seen;
};

TEST(Rebuild, AsksForTheLeavesOfWalkAndMakesTheSameStructure) {
  const Tree tree = make();
  Negative negative;
  const Tree made = rebuild(tree, negative);
  EXPECT_EQ(negative.seen, kLeaves);
  auto expected = kLeaves;
  for (auto& [path, value] : expected) value = -value;
  EXPECT_EQ(leaves(made), expected);
  EXPECT_EQ(leaves(tree), kLeaves);  // nothing is shared
  EXPECT_EQ(std::get<1>(made.tuple), "text");
  EXPECT_EQ(made.text, "text");
  EXPECT_EQ(made.lists.size(), 2u);
  EXPECT_EQ(made.either.index(), 2u);
  EXPECT_EQ(made.bits, tree.bits);
  EXPECT_FALSE(made.gone.has_value() || made.none != nullptr || made.pointers[1] != nullptr);
}

TEST(Rebuild, WhatSeveralPointersHoldStaysOneNode) {
  auto node = std::make_shared<Node>(Node{{1}, nullptr});
  node->next = std::make_shared<Node>(Node{{2}, node});
  const std::pair<std::shared_ptr<Node>, std::shared_ptr<const Node>> tree{node, node->next};
  Negative negative;
  const auto made = rebuild(tree, negative);
  EXPECT_EQ(negative.seen, leaves(tree));
  EXPECT_EQ(made.first->next, made.second);
  EXPECT_EQ(made.second->next, made.first);
  EXPECT_NE(made.first, node);
  EXPECT_EQ(made.first->weight.value, -1);
  EXPECT_EQ(made.second->weight.value, -2);
  node->next.reset();
  made.first->next.reset();
}

// A class in which a cycle cannot be made: it has no default constructor.
struct Strict {
  Weight weight;
  std::reference_wrapper<const int> number;
  std::shared_ptr<Strict> next;
};

TEST(Rebuild, ACycleThatCannotBeMadeIsAnError) {
  const int number = 1;
  auto node = std::make_shared<Strict>(Strict{{1}, number, nullptr});
  node->next = node;
  EXPECT_EQ(
      message([&] { rebuild(node, Negative()); }),
      "[rebuild] next: a cycle of shared pointers through a class that has no default constructor "
      "or is not assignable; hold one of them by a weak_ptr");
  node->next.reset();
}

#if __has_include(<boost/describe.hpp>)
class Base {
 public:
  virtual ~Base() = default;
  int number = 7;

 private:
  Weight inner_{1};
  BOOST_DESCRIBE_CLASS(Base, (), (number), (), (inner_))
};
class Derived : public Base {
  std::vector<Weight> more_{{2}};
  BOOST_DESCRIBE_CLASS(Derived, (Base), (), (), (more_))
};

TEST(Rebuild, DescribedClasses) {
  const Derived tree;
  const Derived made = rebuild(tree, Negative());
  EXPECT_EQ(leaves(made),
            (std::vector<std::pair<std::string, int>>{{"inner_", -1}, {"more_.0", -2}}));
  EXPECT_EQ(made.number, 7);
}

TEST(Rebuild, APointerToABaseThatHoldsADerivedObjectIsAnError) {
  const std::vector<std::shared_ptr<Base>> tree{std::make_shared<Base>(),
                                                std::make_shared<Derived>()};
  EXPECT_EQ(message([&] { rebuild(tree, Negative()); }),
            "[rebuild] 1: a pointer to a base class holds an object of a derived one, which is not "
            "known here; hold it by a pointer to its own class, or in a std::variant");
}
#endif

}  // namespace
}  // namespace meshtorch
