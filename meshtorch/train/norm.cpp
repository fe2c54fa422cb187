// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/norm.h>

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/kernel.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/redistribute.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

const Cause kCause{.op = "global_norm", .origin = Origin::asked, .where = ""};

// Every element of every shard counted once: where replicas hold the same, the first one counts.
bool counts(const Mesh& mesh, AxisSet sharded, std::int64_t position) {
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    if (!sharded.contains(axis) && mesh.coordinate(position, axis) != 0) return false;
  }
  return true;
}

at::Tensor squares(const at::Tensor& local) {
  const at::Tensor real = local.is_complex() ? at::view_as_real(local) : local;
  return at::linalg_vector_norm(real, 2, std::nullopt, false, at::kDouble).square();
}

// The sum of squares over the tensors of one mesh.
class MeshSum {
 public:
  explicit MeshSum(const Mesh& mesh)
      : mesh_(mesh), positions_(Runtime::current().communicator().addressable(mesh)) {}

  void add(const at::Tensor& tensor) {
    ShardedView& view = *sharded_view(tensor);
    Layout reduced = view.layout();
    reduced.unreduced = {};
    const Shards locals = redistribute(view, shape_of(tensor), reduced, kCause);
    meta_ = meta_ || is_meta(tensor);
    if (sums_.empty()) {
      for (std::size_t d = 0; d < positions_.size(); ++d)
        sums_.push_back(at::zeros({}, locals[0].options().dtype(at::kDouble)));
    }
    for (std::size_t d = 0; d < positions_.size() && !meta_; ++d) {
      if (counts(mesh_, reduced.sharded(), positions_[d])) sums_[d].add_(squares(locals[d]));
    }
  }

  std::optional<double> total() {
    Layout from = Layout::replicated(0);
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      if (mesh_.axis_size(axis) > 1) from.unreduced.insert(axis);
    }
    const Shards all = redistribute(mesh_, {}, from, Layout::replicated(0), sums_, kCause);
    return meta_ ? std::nullopt : std::optional(all[0].item<double>());
  }

 private:
  Mesh mesh_;
  std::vector<std::int64_t> positions_;
  Shards sums_;
  bool meta_ = false;
};

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace

std::optional<double> global_norm(const std::vector<at::Tensor>& tensors) {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  double plain = 0;
  std::vector<std::pair<Mesh, MeshSum>> meshes;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const ShardedView* view = sharded_view(tensor);
    if (view == nullptr) {
      plain += squares(tensor).item<double>();
      continue;
    }
    auto found = std::find_if(meshes.begin(), meshes.end(),
                              [&](const auto& each) { return each.first == view->mesh(); });
    if (found == meshes.end())
      found = meshes.emplace(meshes.end(), view->mesh(), MeshSum(view->mesh()));
    found->second.add(tensor);
  }
  std::optional<double> sum = plain;
  for (auto& [mesh, mine] : meshes) {
    const std::optional<double> more = mine.total();
    sum = sum && more ? std::optional(*sum + *more) : std::nullopt;
  }
  return sum ? std::optional(std::sqrt(*sum)) : std::nullopt;
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

void scale_all(const std::vector<at::Tensor>& tensors, double factor) {
  if (factor == 1) return;
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) tensor.mul_(factor);
  }
}

std::optional<double> clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm) {
  if (!(max_norm > 0)) {
    fail({.op = "clip_grad_norm_",
          .where = "max_norm",
          .what = text("got ", max_norm, ", expected a positive number"),
          .remedy = "give infinity to measure only"});
  }
  const auto gradients = gradients_of(parameters);
  const std::optional<double> norm = global_norm(gradients);
  if (norm) scale_all(gradients, clip_factor(*norm, max_norm));
  return norm;
}

}  // namespace meshtorch
