// SPDX-License-Identifier: Apache-2.0
//
// A module is one object, and its members are handles of tensors that nobody can exchange; but one rank runs at
// a time. So a module's tensors are the rank's while the rank has its turn: each handle is given the rank's value
// and a life in autograd of the rank's own, with a count of writes, and gets its own back afterwards. Nothing is copied, and
// any module will do. Internal to local_map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace meshtorch {

class RankBindings {
 public:
  // `values`: by rank, one for each handle. No handle twice.
  RankBindings(std::vector<at::Tensor> handles, std::vector<std::vector<at::Tensor>> values);
  ~RankBindings();
  RankBindings(const RankBindings&) = delete;
  RankBindings& operator=(const RankBindings&) = delete;

  // Between these the handles are a rank's.
  void enter(std::size_t rank);
  void leave(std::size_t rank);
  // The program's writes so far are in the ranks' values. Of those that come later each rank's graph hears,
  // as of its own.
  void settle();

  // While it lives enter() may be called; afterwards the handles are what they were before.
  class Loan {
   public:
    explicit Loan(RankBindings& bindings);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;

   private:
    const RankBindings& bindings_;
    std::vector<at::Tensor> before_;
  };

 private:
  struct Life;  // of a leaf, in autograd

  void see_writes();

  std::vector<at::Tensor> handles_;
  std::vector<std::uint32_t> versions_;  // of the handles, settled
  std::vector<std::vector<at::Tensor>> values_;
  std::vector<std::vector<Life>> lives_;  // as values_; while a rank has its turn, the handles' own
};

}  // namespace meshtorch
