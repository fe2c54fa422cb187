// SPDX-License-Identifier: Apache-2.0
//
// What the parity tests share: meshes, values against dense ones.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <meshtorch/meshtorch.h>

namespace meshtorch {

inline std::string name_of(const std::vector<MeshAxis>& axes) {
  std::string name;
  for (const auto& axis : axes) name += axis.name + std::to_string(axis.size) + "_";
  return name;
}

// Of several processes each holds a part of every mesh: smaller ones are none of theirs.
inline bool reaches_all(const Runtime& runtime, const std::vector<MeshAxis>& axes) {
  return Mesh(axes).size() >= runtime.processes();
}

// Equal to torch::allclose's formula, and of the same shape and dtype. Undefined equals undefined.
inline void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what,
                         double rtol = 1e-5, double atol = 1e-6) {
  ASSERT_EQ(got.defined(), expected.defined()) << what;
  if (!expected.defined()) return;
  const at::Tensor value = full(got.detach());
  const at::Tensor dense = expected.detach();
  ASSERT_EQ(value.sizes(), dense.sizes()) << what;
  ASSERT_EQ(value.scalar_type(), dense.scalar_type()) << what;
  if (dense.numel() == 0 || torch::allclose(value, dense, rtol, atol, true)) return;
  ADD_FAILURE() << what << " differs by up to "
                << (value.to(torch::kDouble) - dense.to(torch::kDouble)).abs().max().item<double>()
                << " of " << dense.to(torch::kDouble).abs().max().item<double>() << ", layout "
                << (is_sharded(got) ? sharding_of(got).spec.to_string() : "plain");
}

inline void expect_close(const torch::nn::Module& got, const torch::nn::Module& expected,
                         double rtol = 1e-5, double atol = 1e-6) {
  const auto parameters = got.named_parameters();
  for (const auto& item : expected.named_parameters()) {
    const auto& mine = parameters[item.key()];
    expect_close(mine, item.value(), item.key(), rtol, atol);
    expect_close(mine.grad(), item.value().grad(), "gradient of " + item.key(), rtol, atol);
  }
  const auto buffers = got.named_buffers();
  for (const auto& item : expected.named_buffers())
    expect_close(buffers[item.key()], item.value(), item.key(), rtol, atol);
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace meshtorch
