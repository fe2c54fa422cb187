// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/scope.h>

#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/trace.h>

namespace meshtorch {
namespace {

thread_local std::string scope_path;
thread_local int thread_mode = -1;  // a Mode, or -1: the runtime's option

}  // namespace

named_scope::named_scope(const std::string& name) : outer_length_(scope_path.size()) {
  if (!scope_path.empty()) scope_path += '/';
  scope_path += name;
  if (Trace::active() != nullptr) begin_ = Trace::Clock::now();
}

named_scope::~named_scope() {
  if (Trace* trace = Trace::active(); trace != nullptr && begin_ != Trace::Time{}) {
    const std::size_t begin = outer_length_ == 0 ? 0 : outer_length_ + 1;
    trace->scope(scope_path.substr(begin), begin_, Trace::Clock::now());
  }
  scope_path.resize(outer_length_);
}

const std::string& named_scope::path() { return scope_path; }

mode_scope::mode_scope(Mode mode) : outer_(thread_mode) { thread_mode = static_cast<int>(mode); }

mode_scope::~mode_scope() { thread_mode = outer_; }

Mode Runtime::mode() const {
  return thread_mode < 0 ? options_.mode : static_cast<Mode>(thread_mode);
}

}  // namespace meshtorch
