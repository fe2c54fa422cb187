// SPDX-License-Identifier: Apache-2.0
//
// Someone who watches ops run: told of each op that ran by a rule on sharded tensors of more than one device.
// Random ops, fills and out= forms pass by it; what they are made of does not. For plans that are made by
// recording a program (plan/feature_graph.h).
#pragma once

#include <utility>

#include <ATen/core/stack.h>

#include <meshtorch/tensor/decision.h>

namespace meshtorch {

class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Before the op runs; `rule` is null where it has none.
  virtual void reads(const Frame& frame, const OpRule* rule) = 0;
  // After it: the results, in schema order.
  virtual void ran(at::ArrayRef<c10::IValue> results) = 0;

  static OpObserver* current() { return current_; }

 private:
  friend class observing;
  inline static thread_local OpObserver* current_ = nullptr;
};

// While it lives, `observer` is told of this thread's ops.
class observing {
 public:
  explicit observing(OpObserver& observer)
      : outer_(std::exchange(OpObserver::current_, &observer)) {}
  ~observing() { OpObserver::current_ = outer_; }
  observing(const observing&) = delete;
  observing& operator=(const observing&) = delete;

 private:
  OpObserver* outer_;
};

}  // namespace meshtorch
