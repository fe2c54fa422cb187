// SPDX-License-Identifier: Apache-2.0
//
// The op that runs now. What a LocalSource makes for it lives as long, and is made once: the dispatch
// opens a scope around every op, and everything is dropped where the outermost one ends.
#pragma once

#include <meshtorch/tensor/sharded.h>

namespace meshtorch {

class op_scope {
 public:
  op_scope() { ++depth_; }
  ~op_scope() {
    if (--depth_ == 0 && holds_) drop();
  }
  op_scope(const op_scope&) = delete;
  op_scope& operator=(const op_scope&) = delete;

  // What `source` makes; kept until the outermost scope ends, at least until the next one does.
  static const Shards& hold(const std::shared_ptr<LocalSource>& source);

 private:
  static void drop();

  inline static thread_local int depth_ = 0;
  inline static thread_local bool holds_ = false;
};

}  // namespace meshtorch
