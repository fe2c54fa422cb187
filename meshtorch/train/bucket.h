// SPDX-License-Identifier: Apache-2.0
//
// What goes together in one collective: up to a number of bytes, in the order in which it comes. What
// sends gradients and parameters, and what explains a step, cut the same buckets.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace meshtorch {

template <class Item>
class Bucket {
 public:
  explicit Bucket(std::int64_t limit) : limit_(limit) {}

  // Calls send(std::vector<Item>) for what is full: before an item that has no room, which goes alone
  // where it is larger than the limit, and at the limit.
  template <class Send>
  void add(Item item, std::int64_t bytes, const Send& send) {
    if (bytes_ + bytes > limit_) flush(send);
    items_.push_back(std::move(item));
    bytes_ += bytes;
    if (bytes_ >= limit_) flush(send);
  }
  // Of what is there, if anything.
  template <class Send>
  void flush(const Send& send) {
    bytes_ = 0;
    if (!items_.empty()) send(std::exchange(items_, {}));
  }
  void clear() {
    bytes_ = 0;
    items_.clear();
  }

 private:
  std::int64_t limit_, bytes_ = 0;
  std::vector<Item> items_;
};

}  // namespace meshtorch
