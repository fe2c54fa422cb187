// SPDX-License-Identifier: Apache-2.0
//
// Something around the forward of a child of a torch::nn::Sequential, without the model's doing. A
// Sequential calls its children through AnyModule, which can be exchanged for one that does more; other
// containers call forward(), which is not virtual. For those write the line in the model:
//
//   x = mt::reshard(block(x), P("dp", "tp"));        x = mt::remat(block, x);
//
// The child must map one tensor to one tensor. Its parameters and buffers keep their paths, since the
// registry keeps the child itself; sequential->ptr(i) and at<T>(i) see the wrapper. A clone() of the
// Sequential has the same around its own children.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>

namespace meshtorch {

// From inside to outside: what remat runs again has no collectives of constraints in it.
enum class AroundKind { remat, constrain };

using TensorForward = std::function<at::Tensor(const at::Tensor& x)>;
using Around = std::function<at::Tensor(const TensorForward& forward, const at::Tensor& x)>;

struct SequentialPlace {
  std::string path;
  torch::nn::AnyModule* child;  // of the Sequential, until that is changed or gone
};

// The children of every Sequential in the module (itself too), by path. One that is reached by several
// paths is under each.
std::vector<SequentialPlace> sequential_children(torch::nn::Module& module);

// Puts `around` around the place's forward, in place of what was there of this kind; an empty one takes that
// off. The child is what it was when nothing is left.
void set_around(const SequentialPlace& place, AroundKind kind, Around around);

// What a wrapped child is seen as through Sequential's own accessors.
class SequentialChild : public torch::nn::Module {
 public:
  SequentialChild(std::string path, torch::nn::AnyModule inner);

  // Throws Error where the child returns something else than a tensor.
  at::Tensor forward(at::Tensor x);
  const torch::nn::AnyModule& inner() const { return inner_; }
  std::map<AroundKind, Around>& arounds() { return arounds_; }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;
  void train(bool on = true) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  std::string path_;
  torch::nn::AnyModule inner_;
  std::map<AroundKind, Around> arounds_;
};

}  // namespace meshtorch
