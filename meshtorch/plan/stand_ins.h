// SPDX-License-Identifier: Apache-2.0
//
// A program's parameters without their values: while it lives, each tensor is a meta shard on a simulated
// mesh, for every handle of it. What runs meanwhile is a dry run of the program as it is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <meshtorch/mesh/named_sharding.h>

namespace meshtorch {

class StandIns {
 public:
  // `specs[i]` is that of tensors[i]. Tensors keep whether they require gradients; their .grad is neither
  // read nor written.
  StandIns(const std::vector<at::Tensor>& tensors, const Mesh& mesh,
           const std::vector<PartitionSpec>& specs);
  ~StandIns();  // every tensor is what it was
  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

 private:
  struct Original {
    at::Tensor tensor, value;
  };
  std::vector<Original> originals_;
};

}  // namespace meshtorch
