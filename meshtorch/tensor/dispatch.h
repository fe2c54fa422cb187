// SPDX-License-Identifier: Apache-2.0
//
// The dispatch: one boxed kernel for every op of libtorch that has no composite form. It finds the
// op's rule, decides layouts (once per op, layouts and shapes), moves operands, runs the op on each
// addressable device's locals and wraps what comes out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/library.h>

#include <meshtorch/tensor/kernel.h>

namespace meshtorch {

class Runtime;
struct Frame;

class Dispatch {
 public:
  // Registers with libtorch's dispatcher; undone on destruction.
  explicit Dispatch(Runtime& runtime);
  ~Dispatch();

  // `op` is the base name: "aten::mean.dim". Throws Error where there is one already.
  void add_kernel(const std::string& op, Kernel kernel);
  const Kernel* find_kernel(const std::string& op) const;

  // An op that runs another way altogether: it takes its arguments from the stack and leaves results.
  using Override = std::function<void(Frame&, torch::jit::Stack&)>;
  // `op` is the full name: "aten::normal_".
  void add_override(const std::string& op, Override run);
  const Override* find_override(const std::string& op) const;

  Runtime& runtime() { return runtime_; }

  // Decisions kept, over all ops: stops growing after the first step of a steady program.
  std::size_t cached_decisions() const { return cached_decisions_; }
  void count_decisions(std::ptrdiff_t change) {
    cached_decisions_ += static_cast<std::size_t>(change);
  }

  // The library of the sharded kernels themselves, for composites that are replaced.
  torch::Library& library() { return library_; }
  // The library that custom autograd kernels are registered through.
  torch::Library& autograd_library() { return autograd_; }
  // The library that shape functions are registered through, for ops that libtorch has none for.
  torch::Library& meta_library() { return meta_; }

 private:
  Runtime& runtime_;
  std::map<std::string, Kernel> kernels_;
  std::map<std::string, Override> overrides_;
  std::size_t cached_decisions_ = 0;
  torch::Library library_;
  torch::Library fallback_;
  torch::Library autograd_;
  torch::Library autograd_fallback_;
  torch::Library meta_;
  torch::Library mode_;  // of meta_scope
};

}  // namespace meshtorch
