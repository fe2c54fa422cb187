// SPDX-License-Identifier: Apache-2.0
//
// Visits every leaf of a tree, with its dotted path. What a leaf is, the visitor says:
//
//   struct Specs {
//     template <class T> static constexpr bool kLeaf = std::is_same_v<T, PartitionSpec>;
//     void leaf(const std::string& path, const PartitionSpec& spec) { ... }
//   };
//   walk(tree, Specs{});        // "layers.0.up", "layers.0.down", "head.weight"
//
// A tree is a leaf, or one of these of trees, nested freely:
//
//   node                                       its children's names
//   std::vector, deque, list, array            0, 1, 2, ...
//   std::tuple, pair                           0, 1, 2, ...
//   std::map                                   the keys, in the map's order
//   std::unordered_map                         the keys, sorted with <, so that all processes agree
//   std::optional, unique_ptr, shared_ptr      none of its own: the path is that of what it holds
//   std::variant                               the same, of the alternative that it holds
//   an aggregate, a described class            the fields' names, in order (fields.h)
//
// Keys are strings, integers or enums (as their number). A key is written as it is: one that holds a dot
// looks like two levels, which only matters to who reads paths back. Everything else (numbers, strings,
// raw and weak pointers, functions, classes that are not described) has no leaves and is passed over; so
// are empty optionals and null pointers.
//
// A shared_ptr that is reached again from inside what it points to (a cycle) is not followed again;
// one that is reached twice by different ways is visited twice, under both paths.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <meshtorch/tree/fields.h>

namespace meshtorch {

enum class NodeKind {
  opaque,
  sequence,
  tuple,
  map,
  unordered_map,
  pointer,
  optional,
  variant,
  fields
};

namespace walk_detail {

template <class T>
inline constexpr NodeKind kKind = HasFields<T> ? NodeKind::fields : NodeKind::opaque;
template <class T, class A>
inline constexpr NodeKind kKind<std::vector<T, A>> = NodeKind::sequence;
// Its elements are no objects.
template <class A>
inline constexpr NodeKind kKind<std::vector<bool, A>> = NodeKind::opaque;
template <class T, class A>
inline constexpr NodeKind kKind<std::deque<T, A>> = NodeKind::sequence;
template <class T, class A>
inline constexpr NodeKind kKind<std::list<T, A>> = NodeKind::sequence;
template <class T, std::size_t n>
inline constexpr NodeKind kKind<std::array<T, n>> = NodeKind::sequence;
template <class... Ts>
inline constexpr NodeKind kKind<std::tuple<Ts...>> = NodeKind::tuple;
template <class T, class U>
inline constexpr NodeKind kKind<std::pair<T, U>> = NodeKind::tuple;
template <class K, class T, class C, class A>
inline constexpr NodeKind kKind<std::map<K, T, C, A>> = NodeKind::map;
template <class K, class T, class H, class E, class A>
inline constexpr NodeKind kKind<std::unordered_map<K, T, H, E, A>> = NodeKind::unordered_map;
template <class T>
inline constexpr NodeKind kKind<std::optional<T>> = NodeKind::optional;
// Neither void, nor an array, nor a class that is only declared here.
template <class T>
concept Pointee = std::is_object_v<T> && !std::is_array_v<T> && requires {
  sizeof(T);
};
template <class T, class D>
inline constexpr NodeKind kKind<std::unique_ptr<T, D>> =
    Pointee<T> ? NodeKind::pointer : NodeKind::opaque;
template <class T>
inline constexpr NodeKind kKind<std::shared_ptr<T>> =
    Pointee<T> ? NodeKind::pointer : NodeKind::opaque;
template <class... Ts>
inline constexpr NodeKind kKind<std::variant<Ts...>> = NodeKind::variant;

template <class T>
inline constexpr bool kShared = false;
template <class T>
inline constexpr bool kShared<std::shared_ptr<T>> = true;

template <class Key>
std::string key_text(const Key& key) {
  if constexpr (std::is_convertible_v<const Key&, std::string_view>) {
    return std::string(std::string_view(key));
  } else if constexpr (std::is_enum_v<Key>) {
    return std::to_string(static_cast<std::underlying_type_t<Key>>(key));
  } else {
    static_assert(std::is_integral_v<Key>, "a key of a tree is a string, an integer or an enum");
    return std::to_string(key);
  }
}

// The entries of an unordered map, by their keys.
template <class Map>
auto sorted(Map& map) {
  std::vector<decltype(&*map.begin())> entries;
  for (auto& entry : map) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](auto* a, auto* b) { return a->first < b->first; });
  return entries;
}

}  // namespace walk_detail

// What walk() sees in a T that is no leaf.
template <class T>
inline constexpr NodeKind kNodeKind = walk_detail::kKind<std::remove_cv_t<T>>;

// Visits one tree; const trees give const leaves.
template <class Visitor>
class Walker {
 public:
  // `path` and `open`: where the tree is in a larger one, and which shared pointers hold it there.
  explicit Walker(Visitor& visitor, std::string path = {}, std::vector<const void*> open = {})
      : visitor_(visitor), path_(std::move(path)), open_(std::move(open)) {}

  template <class Node>
  void node(Node& tree) {
    using Plain = std::remove_const_t<Node>;
    constexpr NodeKind kKind = kNodeKind<Plain>;
    if constexpr (Visitor::template kLeaf<Plain>) {
      visitor_.leaf(std::as_const(path_), tree);
    } else if constexpr (kKind == NodeKind::sequence) {
      sequence(tree);
    } else if constexpr (kKind == NodeKind::tuple) {
      children(tree, std::make_index_sequence<std::tuple_size_v<Plain>>{});
    } else if constexpr (kKind == NodeKind::map) {
      for (auto& [key, value] : tree) child(walk_detail::key_text(key), value);
    } else if constexpr (kKind == NodeKind::unordered_map) {
      for (auto* entry : walk_detail::sorted(tree))
        child(walk_detail::key_text(entry->first), entry->second);
    } else if constexpr (kKind == NodeKind::optional) {
      if (tree.has_value()) node(*tree);
    } else if constexpr (kKind == NodeKind::pointer) {
      pointer(tree);
    } else if constexpr (kKind == NodeKind::variant) {
      if (!tree.valueless_by_exception()) std::visit([&](auto& held) { node(held); }, tree);
    } else if constexpr (kKind == NodeKind::fields) {
      for_each_field(tree, [&](std::string_view name, auto& field) { child(name, field); });
    }
  }

 private:
  template <class Node>
  static constexpr bool kNothing =
      !Visitor::template kLeaf<std::remove_const_t<Node>> && kNodeKind<Node> == NodeKind::opaque;

  template <class Node>
  void child(std::string_view name, Node& tree) {
    if constexpr (!kNothing<Node>) {
      const std::size_t length = path_.size();
      if (length > 0) path_ += '.';
      path_ += name;
      node(tree);
      path_.resize(length);
    }
  }

  template <class Node>
  void sequence(Node& tree) {
    if constexpr (!kNothing<typename Node::value_type>) {
      std::size_t i = 0;
      for (auto& element : tree) child(std::to_string(i++), element);
    }
  }

  template <class Node, std::size_t... i>
  void children(Node& tree, std::index_sequence<i...>) {
    (child(std::to_string(i), std::get<i>(tree)), ...);
  }

  template <class Pointer>
  void pointer(Pointer& held) {
    if (held == nullptr) return;
    const void* address = held.get();
    if (std::find(open_.begin(), open_.end(), address) != open_.end()) return;
    if constexpr (walk_detail::kShared<std::remove_const_t<Pointer>>) open_.push_back(address);
    node(*held);
    if constexpr (walk_detail::kShared<std::remove_const_t<Pointer>>) open_.pop_back();
  }

  Visitor& visitor_;
  std::string path_;
  std::vector<const void*> open_;  // shared pointers that we are inside of
};

// Every leaf in the order above; of the same type and structure, always the same paths.
template <class Tree, class Visitor>
void walk(Tree& tree, Visitor&& visitor) {
  Walker<std::remove_reference_t<Visitor>> walker(visitor);
  walker.node(tree);
}

}  // namespace meshtorch
