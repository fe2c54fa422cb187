// SPDX-License-Identifier: Apache-2.0
//
// Which device this thread works for: the dispatch opens a scope around what it runs on a device's
// locals. Memory accounts (memory.h) ask for it.
#pragma once

#include <cstdint>
#include <utility>

namespace meshtorch {

class device_scope {
 public:
  // `device`: its global number.
  explicit device_scope(std::int64_t device) : outer_(std::exchange(current_, device)) {}
  ~device_scope() { current_ = outer_; }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  // -1 outside of any: the host.
  static std::int64_t current() { return current_; }

 private:
  std::int64_t outer_;
  inline static thread_local std::int64_t current_ = -1;
};

}  // namespace meshtorch
