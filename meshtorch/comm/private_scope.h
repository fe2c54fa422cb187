// SPDX-License-Identifier: Apache-2.0
//
// While one lives, what this thread does is its process's own affair: the other processes need not do
// the same (the ranks of a local_map, which each process has its own of). Communicator::record then
// records nothing, and a collective that needs another process is an Error.
#pragma once

namespace meshtorch {

class private_scope {
 public:
  private_scope() { ++depth_; }
  ~private_scope() { --depth_; }
  private_scope(const private_scope&) = delete;
  private_scope& operator=(const private_scope&) = delete;

  static bool active() { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};

}  // namespace meshtorch
