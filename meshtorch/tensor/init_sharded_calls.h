// SPDX-License-Identifier: Apache-2.0
//
// What a maker asks libtorch for, call by call. Internal to init_sharded.
//
// The maker runs twice under the mode key, so that every call comes here first. The first time,
// factory calls give meta tensors, and it is noted what becomes of each. A tensor may be sharded
// from its birth where what is done to it gives, on shards, the bits of the dense run: fills,
// random numbers, arithmetic with a number, copies. The second time, the same calls come in the
// same order, and the factories that were given a layout in between give sharded tensors.
//
// Modules also look at their tensors' sizes through views (weight[0][0].numel()). Views at whose
// values nobody looks are meta tensors the second time; of a row that is filled (Embedding's
// padding), the devices that hold it fill it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <meshtorch/layout/layout.h>

namespace meshtorch {

class InitCalls {
 public:
  enum class Pass { first, second };

  // While it lives, the calls of this thread come to `calls`. Throws Error inside another.
  class Scope {
   public:
    Scope(InitCalls& calls, Pass pass);
    ~Scope() { current_ = nullptr; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    c10::impl::IncludeDispatchKeyGuard mode_;
  };

  // Null outside of a scope.
  static InitCalls* current() { return current_; }

  // One call, with the mode key excluded. Throws Error: in the first pass, one that needs values;
  // in the second, another call than the first pass made there.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  // Between the passes, while the tree of the first one lives.
  //
  // A number for each factory call that can be sharded, and the shape that it makes.
  std::map<std::size_t, Shape> births();
  // Those that this tensor of the first pass had its memory from, now and when it was made.
  std::vector<std::size_t> births_of(const at::Tensor& leaf) const;
  void shard(std::size_t birth, const Mesh& mesh, const Layout& layout);
  // After all shard(): makes plain what a plain tensor is copied from.
  void settle();
  // The op because of which this tensor is made whole; empty where none is known.
  std::string reason(const at::Tensor& leaf) const;

  // Throws Error where the second pass made fewer calls.
  void check_ended() const;

 private:
  struct Birth {
    Shape shape;
    at::ScalarType dtype;
    std::string whole;         // the op that forbids to shard it
    std::optional<Mesh> mesh;  // none: plain
    Layout layout;
  };
  struct Call {
    std::string name;
    std::optional<Birth> birth;
    std::optional<std::size_t> views;  // the birth that its results are views of
    bool fills_row = false;            // that view is a row, and is filled
  };
  struct View {
    std::size_t call, birth;
    bool row;  // one index of one dim of the whole tensor
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> handle;
  };
  struct Row {
    at::Tensor sharded;
    std::int64_t dim, index;
  };
  using Operands = std::vector<at::Tensor>;

  void run_first(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void run_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) const;
  void give_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) const;
  void run_second(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  [[noreturn]] void fail_for_order(const std::string& now) const;

  // The birth whose memory, or a copy of it, this is.
  std::optional<std::size_t> owner(const at::Tensor& tensor) const;
  bool is_whole(const at::Tensor& tensor, std::size_t birth) const;
  void judge(const c10::OperatorHandle& op, const Operands& operands);
  void judge_view(const c10::OperatorHandle& op, const View& view, const Operands& operands);
  void judge_copy(const Operands& operands);
  void forbid(std::size_t birth, const std::string& op);
  void note_result(const c10::OperatorHandle& op, const Operands& operands,
                   const at::Tensor& result, bool factory);

  void give_birth(const Birth& birth, const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void look(const Call& call, const c10::OperatorHandle& op, torch::jit::Stack& stack);
  bool fill_row(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  Pass pass_ = Pass::first;
  std::vector<Call> calls_;
  std::size_t next_ = 0;  // of the second pass
  // By address. What is there is kept from being freed, so none is used twice; by weak pointers,
  // since libtorch takes over a fresh tensor only where nobody holds it.
  std::map<const void*, std::size_t> storages_, handles_;  // of which birth
  std::map<const void*, std::string> makers_;              // of other storages: by which op
  std::map<const void*, View> views_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> kept_storages_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> kept_handles_;
  std::vector<std::pair<std::size_t, std::size_t>> copies_;  // births: to, from
  std::map<const void*, Row> rows_;
  Operands stand_ins_;  // of rows_

  inline static thread_local InitCalls* current_ = nullptr;
};

}  // namespace meshtorch
