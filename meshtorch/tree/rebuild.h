// SPDX-License-Identifier: Apache-2.0
//
// A tree like another one (walk.h), with other leaves:
//
//   struct Doubled {
//     template <class T> static constexpr bool kLeaf = std::is_same_v<T, Weight>;
//     Weight leaf(const std::string& path, const Weight& old) { return 2 * old; }
//     void skip(const std::string& path, const Weight& old) {}   // of a node that was made already
//   };
//   Tree twice = rebuild(tree, Doubled{});
//
// leaf() and skip() together are called for the leaves that walk() visits, in its order. The tree is new
// down to the leaves: nothing is shared with the old one. A node that several shared_ptrs hold becomes one
// new node that several hold, cycles included. Variants keep their alternative, pointers and optionals
// whether they hold something, and what is no tree is copied. So nodes need to be:
//
//   aggregates           nothing: copying is not needed (a std::unique_ptr is made anew)
//   described classes    copyable, and their members assignable
//   behind a unique_ptr  of its exact type and with the default deleter
//   in a cycle           default constructible, and movable
#pragma once

#include <typeindex>
#include <typeinfo>

#include <meshtorch/base/error.h>
#include <meshtorch/tree/walk.h>

namespace meshtorch {

template <class Visitor>
class Rebuilder {
 public:
  explicit Rebuilder(Visitor& visitor) : visitor_(visitor) {}

  template <class Node>
  Node node(const Node& old) {
    constexpr NodeKind kKind = kNodeKind<Node>;
    if constexpr (Visitor::template kLeaf<Node>) {
      return visitor_.leaf(std::as_const(path_), old);
    } else if constexpr (kKind == NodeKind::sequence) {
      return sequence(old);
    } else if constexpr (kKind == NodeKind::tuple) {
      return tuple(old, std::make_index_sequence<std::tuple_size_v<Node>>{});
    } else if constexpr (kKind == NodeKind::map) {
      Node made(old.key_comp());
      for (const auto& [key, value] : old)
        made.emplace_hint(made.end(), key, child(walk_detail::key_text(key), value));
      return made;
    } else if constexpr (kKind == NodeKind::unordered_map) {
      Node made(old.bucket_count(), old.hash_function(), old.key_eq());
      for (const auto* entry : walk_detail::sorted(old))
        made.emplace(entry->first, child(walk_detail::key_text(entry->first), entry->second));
      return made;
    } else if constexpr (kKind == NodeKind::optional) {
      return old.has_value() ? Node(node(*old)) : Node();
    } else if constexpr (kKind == NodeKind::pointer) {
      return old == nullptr ? Node() : pointer(old);
    } else if constexpr (kKind == NodeKind::variant) {
      return variant(old);
    } else if constexpr (kKind == NodeKind::fields) {
      return fields(old);
    } else {
      static_assert(std::is_copy_constructible_v<Node>,
                    "a tree with a part that cannot be copied can be walked, not made anew");
      return old;
    }
  }

 private:
  template <class Node>
  Node child(std::string_view name, const Node& old) {
    const std::size_t length = path_.size();
    if (length > 0) path_ += '.';
    path_ += name;
    Node made = node(old);
    path_.resize(length);
    return made;
  }

  template <class Node>
  Node sequence(const Node& old) {
    if constexpr (requires(Node made) {
                    made.emplace_back(std::declval<typename Node::value_type>());
                  }) {
      Node made;
      std::size_t i = 0;
      for (const auto& element : old) made.emplace_back(child(std::to_string(i++), element));
      return made;
    } else {
      return array(old, std::make_index_sequence<std::tuple_size_v<Node>>{});
    }
  }
  template <class Node, std::size_t... i>
  Node array(const Node& old, std::index_sequence<i...>) {
    return Node{{child(std::to_string(i), old[i])...}};
  }

  template <class Node, std::size_t... i>
  Node tuple(const Node& old, std::index_sequence<i...>) {
    return Node{child(std::to_string(i), std::get<i>(old))...};
  }

  template <class Node>
  Node variant(const Node& old) {
    if (old.valueless_by_exception()) return old;
    return alternative<0>(old);
  }
  template <std::size_t i, class Node>
  Node alternative(const Node& old) {
    if constexpr (i + 1 < std::variant_size_v<Node>) {
      if (old.index() != i) return alternative<i + 1>(old);
    }
    return Node(std::in_place_index<i>, node(std::get<i>(old)));
  }

  template <class Node>
  Node fields(const Node& old) {
    if constexpr (fields_detail::kDescribed<Node>) {
      Node made = old;
      for_each_member<Node>(
          [&](std::string_view name, auto member) { made.*member = child(name, old.*member); });
      return made;
    } else {
      return aggregate(old, std::make_index_sequence<field_count<Node>()>{});
    }
  }
  template <class Node, std::size_t... i>
  Node aggregate(const Node& old, std::index_sequence<i...>) {
    [[maybe_unused]] const auto all = fields_detail::tie(old);
    return Node{child(kFieldNames<Node>[i], std::get<i>(all))...};
  }

  template <class Node>
  void check_exact(const Node& node) const {
    if constexpr (std::is_polymorphic_v<Node>) {
      if (typeid(node) == typeid(Node)) return;
      fail({.op = "rebuild",
            .where = path_,
            .what = "a pointer to a base class holds an object of a derived one, which is not "
                    "known here",
            .remedy = "hold it by a pointer to its own class, or in a std::variant"});
    }
  }

  template <class T, class D>
  std::unique_ptr<T, D> pointer(const std::unique_ptr<T, D>& old) {
    static_assert(std::is_same_v<D, std::default_delete<T>>,
                  "a std::unique_ptr with a deleter of its own can be walked, not made anew");
    check_exact(*old);
    return std::make_unique<T>(node<std::remove_const_t<T>>(*old));
  }

  // The new nodes behind shared pointers, and those that are being made.
  using Key = std::pair<const void*, std::type_index>;
  template <class T>
  std::shared_ptr<T> pointer(const std::shared_ptr<T>& old) {
    using Plain = std::remove_const_t<T>;
    const Key key{old.get(), typeid(Plain)};
    const bool inside = std::find(open_.begin(), open_.end(), key.first) != open_.end();
    if (const auto found = made_.find(key); found != made_.end()) {
      if (!inside) skip(*old, key.first);
      return std::static_pointer_cast<Plain>(found->second);
    }
    if (inside) return knot<Plain>(key);
    check_exact(*old);
    open_.push_back(key.first);
    Plain made = node<Plain>(*old);
    open_.pop_back();
    auto& slot = made_[key];
    if (slot == nullptr) {
      slot = std::make_shared<Plain>(std::move(made));
    } else if constexpr (std::is_move_assignable_v<Plain>) {
      *std::static_pointer_cast<Plain>(slot) = std::move(made);
    }
    return std::static_pointer_cast<Plain>(slot);
  }
  // A pointer back into what is being made: to an object that gets its value when that is done.
  template <class T>
  std::shared_ptr<T> knot(const Key& key) {
    if constexpr (std::is_default_constructible_v<T> && std::is_move_assignable_v<T>) {
      auto empty = std::make_shared<T>();
      made_[key] = empty;
      return empty;
    } else {
      fail({.op = "rebuild",
            .where = path_,
            .what = "a cycle of shared pointers through a class that has no default constructor or "
                    "is not assignable",
            .remedy = "hold one of them by a weak_ptr"});
    }
  }

  struct Skipping {
    template <class T>
    static constexpr bool kLeaf = Visitor::template kLeaf<T>;
    template <class T>
    void leaf(const std::string& path, const T& old) {
      visitor.skip(path, old);
    }
    Visitor& visitor;
  };
  template <class Node>
  void skip(const Node& old, const void* address) {
    Skipping skipping{visitor_};
    auto open = open_;
    open.push_back(address);
    Walker<Skipping>(skipping, path_, std::move(open)).node(old);
  }

  Visitor& visitor_;
  std::string path_;
  std::vector<const void*> open_;
  std::map<Key, std::shared_ptr<void>> made_;
};

template <class Tree, class Visitor>
Tree rebuild(const Tree& tree, Visitor&& visitor) {
  Rebuilder<std::remove_reference_t<Visitor>> rebuilder(visitor);
  return rebuilder.node(tree);
}

}  // namespace meshtorch
