// SPDX-License-Identifier: Apache-2.0
//
// The fields of a struct and their names, at compile time, so that a struct of tensors is a tree without
// anything written for it:
//
//   struct Mlp { Tensor up, down; std::optional<Tensor> bias; };
//   for_each_field(mlp, [](std::string_view name, auto& field) { ... });   // "up", "down", "bias"
//
// A class with private members joins by one line of Boost.Describe, of its own or of a base class
// (Boost >= 1.77; Debian's libboost1.81-dev):
//
//   class Block { ... BOOST_DESCRIBE_CLASS(Block, (Base), (), (), (weight_, bias_)) };
//
// Fields are in the order of their declaration, those of described bases first. A described class is
// what it is described as, also where it is an aggregate.
//
// Aggregates must be what a structured binding takes apart: at most kMaxFields fields, no base class,
// no C array (std::array is one field), no reference, no bit-field. The first three are a static_assert
// that says so; what to do about it is BOOST_DESCRIBE_CLASS, or kOpaque<T> where the struct holds no leaf.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#if __has_include(<boost/describe.hpp>)
#include <boost/describe.hpp>
#include <boost/mp11/algorithm.hpp>
#endif

namespace meshtorch {

inline constexpr std::size_t kMaxFields = 40;

// True for types that are no trees though they look like some: a struct of options with a C array.
//   template <> inline constexpr bool meshtorch::kOpaque<Options> = true;
template <class T>
inline constexpr bool kOpaque = false;

namespace fields_detail {

// Converts to whatever a field is initialized from. Never called; clang wants it defined.
struct AnyField {
  template <class T>
  operator T() const noexcept {
    std::abort();
  }
};
template <class Derived>
struct AnyBase {
  template <class T>
  requires(std::is_base_of_v<T, Derived> && !std::is_same_v<T, Derived>) operator T()
      const noexcept;
};

template <class T, std::size_t... i>
constexpr bool takes(std::index_sequence<i...>) {
  return requires { T{(static_cast<void>(i), AnyField{})...}; };
}
template <class T, std::size_t... i, std::size_t... j>
constexpr bool takes_empty_between(std::index_sequence<i...>, std::index_sequence<j...>) {
  return requires {
    T{(static_cast<void>(i), AnyField{})..., {}, (static_cast<void>(j), AnyField{})...};
  };
}

// The largest number of initializers, which C arrays make larger than the number of fields.
template <class T, std::size_t n = kMaxFields + 1>
constexpr std::size_t initializers() {
  if constexpr (n == 0 || takes<T>(std::make_index_sequence<n>{})) {
    return n;
  } else {
    return initializers<T, n - 1>();
  }
}

// {} takes a whole array, which leaves too few fields for the initializers that elision allows.
template <class T, std::size_t n, std::size_t at = 0>
constexpr bool has_array() {
  if constexpr (at >= n) {
    return false;
  } else {
    using Before = std::make_index_sequence<at>;
    constexpr bool kStarts = takes_empty_between<T>(Before{}, std::index_sequence<>{});
    constexpr bool kFits = takes_empty_between<T>(Before{}, std::make_index_sequence<n - at - 1>{});
    return (kStarts && !kFits) || has_array<T, n, at + 1>();
  }
}

template <class T>
constexpr bool has_base() {
  return requires { T{AnyBase<T>{}}; };
}

#if __has_include(<boost/describe.hpp>)
template <class T>
inline constexpr bool kDescribed = boost::describe::has_describe_members<T>::value;
#else
template <class T>
inline constexpr bool kDescribed = false;
#endif

}  // namespace fields_detail

// Classes whose fields can be told apart: aggregates (not arrays, not unions) and described classes.
template <class T>
concept HasFields = std::is_class_v<T> && !kOpaque<T> &&
                    (fields_detail::kDescribed<T> ||
                     (std::is_aggregate_v<T> && !requires { std::tuple_size<T>::value; }));

// Of an aggregate.
template <class T>
constexpr std::size_t field_count() {
  if constexpr (std::is_empty_v<T>) return 0;
  static_assert(
      !fields_detail::has_base<T>(),
      "a struct with a base class: describe it (BOOST_DESCRIBE_CLASS), hold the base as a "
      "field, or set meshtorch::kOpaque<T> where it holds no leaf");
  constexpr std::size_t kCount = fields_detail::initializers<T>();
  static_assert(
      kCount <= kMaxFields,
      "a struct with more than meshtorch::kMaxFields fields (elements of C arrays count): "
      "group them in structs, or describe it (BOOST_DESCRIBE_CLASS)");
  static_assert(
      !fields_detail::has_array<T, kCount>(),
      "a struct with a C array: use std::array, or set meshtorch::kOpaque<T> where it holds "
      "no leaf");
  return kCount;
}

namespace fields_detail {

// References to all fields of an aggregate.
template <class T>
constexpr auto tie([[maybe_unused]] T& object) {
  constexpr std::size_t kCount = field_count<std::remove_const_t<T>>();
  if constexpr (kCount == 0) return std::tuple<>();
#include <meshtorch/tree/fields_tie.inl>
}

// The compiler prints a pointer to a member of an object by the member's name. The object is nowhere
// defined, as only its members' addresses are named.
template <class T>
struct Outside {
  T value;
};
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
template <class T>
extern const Outside<T> outside;

template <class T>
struct Pointer {
  const T* to;
};
template <class T>
Pointer(const T*) -> Pointer<T>;

template <auto pointer>
constexpr std::string_view printed() {
  return __PRETTY_FUNCTION__;
}

constexpr bool in_identifier(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// g++: "... .Mlp::up)}; std::string_view = ...]", clang: "...value.up}]".
constexpr std::string_view last_identifier(std::string_view text) {
  std::size_t end = text.rfind('}');
  while (!in_identifier(text[end - 1])) --end;
  std::size_t begin = end;
  while (in_identifier(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

template <class T, std::size_t i>
constexpr std::string_view name() {
  return last_identifier(printed<Pointer{&std::get<i>(tie(outside<T>.value))}>());
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

template <class T, std::size_t... i>
constexpr auto names(std::index_sequence<i...>) {
  return std::array<std::string_view, sizeof...(i)>{name<T, i>()...};
}

struct Probe {
  int first_field;
  std::array<char, 2> _second;
};

}  // namespace fields_detail

// Of an aggregate, in order.
template <class T>
inline constexpr auto kFieldNames =
    fields_detail::names<T>(std::make_index_sequence<field_count<T>()>{});

static_assert(kFieldNames<fields_detail::Probe>[0] == "first_field" &&
                  kFieldNames<fields_detail::Probe>[1] == "_second",
              "this compiler prints pointers to members in another way than fields.h reads");

#if __has_include(<boost/describe.hpp>)
// fn(name, pointer to member) for every member of a described class.
template <class T, class Fn>
requires fields_detail::kDescribed<T>
constexpr void for_each_member(Fn&& fn) {
  using Members = boost::describe::describe_members<T, boost::describe::mod_any_access |
                                                           boost::describe::mod_inherited>;
  boost::mp11::mp_for_each<Members>(
      [&](auto member) { fn(std::string_view(member.name), member.pointer); });
}
#endif

// fn(name, field) for every field of an aggregate or a described class.
template <class T, class Fn>
requires HasFields<std::remove_const_t<T>>
constexpr void for_each_field(T& object, Fn&& fn) {
  using Plain = std::remove_const_t<T>;
  if constexpr (fields_detail::kDescribed<Plain>) {
    for_each_member<Plain>([&](std::string_view name, auto member) { fn(name, object.*member); });
  } else {
    const auto fields = fields_detail::tie(object);
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (fn(kFieldNames<Plain>[i], std::get<i>(fields)), ...);
    }
    (std::make_index_sequence<field_count<Plain>()>{});
  }
}

}  // namespace meshtorch
