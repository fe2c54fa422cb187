// SPDX-License-Identifier: Apache-2.0
//
// Two small values that name axes of one mesh by index: an unordered set and an ordered list.
// Both are trivially copyable and compare in one instruction, because they are part of every
// layout and of every key of the dispatch cache.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace meshtorch {

// A mesh has at most this many axes.
inline constexpr int kMaxAxes = 8;

// A set of mesh axes, by index.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  static constexpr AxisSet of(int axis) { return AxisSet(static_cast<std::uint8_t>(1u << axis)); }

  constexpr bool contains(int axis) const { return (bits_ >> axis) & 1u; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr void insert(int axis) { bits_ = static_cast<std::uint8_t>(bits_ | (1u << axis)); }
  constexpr void erase(int axis) { bits_ = static_cast<std::uint8_t>(bits_ & ~(1u << axis)); }
  constexpr std::uint8_t bits() const { return bits_; }

  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return AxisSet(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return AxisSet(a.bits_ & b.bits_); }
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return AxisSet(a.bits_ & ~b.bits_); }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;

  // Iterates the axes in increasing index: for (int axis : set).
  class Iterator {
   public:
    constexpr explicit Iterator(unsigned bits) : bits_(bits) {}
    constexpr int operator*() const { return std::countr_zero(bits_); }
    constexpr Iterator& operator++() {
      bits_ &= bits_ - 1;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    unsigned bits_;
  };
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr Iterator end() const { return Iterator(0); }

 private:
  constexpr explicit AxisSet(unsigned bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  std::uint8_t bits_ = 0;
};

// The axes that shard one tensor dimension, major to minor: with (a, b) the dimension is first cut
// over a, then each piece over b. Packed, one byte an axis (index + 1), the major axis lowest.
class AxisList {
 public:
  constexpr AxisList() = default;
  static constexpr AxisList of(int axis) {
    AxisList list;
    list.push_back(axis);
    return list;
  }

  constexpr int size() const { return (64 - std::countl_zero(packed_) + 7) / 8; }
  constexpr bool empty() const { return packed_ == 0; }
  constexpr int operator[](int i) const {
    return static_cast<int>((packed_ >> (8 * i)) & 0xff) - 1;
  }
  constexpr int front() const { return (*this)[0]; }
  constexpr int back() const { return (*this)[size() - 1]; }
  constexpr void push_back(int axis) {
    packed_ |= static_cast<std::uint64_t>(axis + 1) << (8 * size());
  }
  constexpr void pop_back() { packed_ &= ~(std::uint64_t{0xff} << (8 * (size() - 1))); }
  constexpr bool contains(int axis) const {
    for (int i = 0; i < size(); ++i) {
      if ((*this)[i] == axis) return true;
    }
    return false;
  }
  constexpr AxisSet set() const {
    AxisSet axes;
    for (int i = 0; i < size(); ++i) axes.insert((*this)[i]);
    return axes;
  }
  // Without the axes of `gone`; the order of the others is kept.
  constexpr AxisList without(AxisSet gone) const {
    AxisList kept;
    for (int i = 0; i < size(); ++i) {
      if (!gone.contains((*this)[i])) kept.push_back((*this)[i]);
    }
    return kept;
  }
  constexpr std::uint64_t packed() const { return packed_; }

  friend constexpr bool operator==(AxisList, AxisList) = default;

 private:
  std::uint64_t packed_ = 0;
};

}  // namespace meshtorch
