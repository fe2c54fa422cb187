// SPDX-License-Identifier: Apache-2.0
//
// Which device this thread works for: the dispatch opens a scope around what it runs on a device's
// locals. Memory accounts (memory.h) ask for it; a scope that names an op is a slice of the trace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <meshtorch/tensor/trace.h>

namespace meshtorch {

class device_scope {
 public:
  // `device`: its global number. `op` must live as long as the scope.
  explicit device_scope(std::int64_t device, const std::string* op = nullptr)
      : outer_(std::exchange(current_, device)), op_(op) {
    if (op != nullptr && Trace::active() != nullptr) begin_ = Trace::Clock::now();
  }
  ~device_scope() {
    if (begin_ != Trace::Time{}) trace();
    current_ = outer_;
  }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;

  // -1 outside of any: the host.
  static std::int64_t current() { return current_; }

 private:
  void trace() const;  // the op, and what the device holds after it

  std::int64_t outer_;
  const std::string* op_;
  Trace::Time begin_;
  inline static thread_local std::int64_t current_ = -1;
};

}  // namespace meshtorch
