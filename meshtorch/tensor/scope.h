// SPDX-License-Identifier: Apache-2.0
//
// named_scope: names a stretch of the program; the ledger's entries carry the path of open scopes.
//
//   mt::named_scope scope("microbatch");
//
// Strict: inside it (or with RuntimeOptions::mode) an implied gather is an error, not a slow success.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace meshtorch {

class named_scope {
 public:
  explicit named_scope(const std::string& name);
  ~named_scope();
  named_scope(const named_scope&) = delete;
  named_scope& operator=(const named_scope&) = delete;

  // "train/microbatch"; empty outside of any. Scopes are per thread.
  static const std::string& path();

 private:
  std::size_t outer_length_;
  std::chrono::steady_clock::time_point begin_;  // where it is traced
};

enum class Mode {
  automatic,  // operands are moved where an op needs it; the ledger tells
  strict,     // an implied all-gather, all-to-all or permute, or an op without a rule, is an Error
};

// Sets the mode for this thread until destroyed.
class mode_scope {
 public:
  explicit mode_scope(Mode mode);
  ~mode_scope();
  mode_scope(const mode_scope&) = delete;
  mode_scope& operator=(const mode_scope&) = delete;

 private:
  int outer_;
};

}  // namespace meshtorch
