// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/plan/stand_ins.h>

#include <ATen/ATen.h>

#include <set>

#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {

StandIns::StandIns(const std::vector<at::Tensor>& tensors, const Mesh& mesh,
                   const std::vector<PartitionSpec>& specs) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> models;  // made first: nothing is replaced where one cannot be
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor model =
        at::empty(tensors[i].sizes(), tensors[i].options().device(at::kMeta).requires_grad(false));
    models.push_back(device_put(model, {mesh, specs[i]}));
  }
  std::set<const void*> done;  // a tensor may be given under several names
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!done.insert(tensors[i].unsafeGetTensorImpl()).second) continue;
    originals_.push_back({tensors[i], tensors[i].detach()});
    convert(tensors[i], models[i]);
  }
}

StandIns::~StandIns() {
  for (const Original& original : originals_) convert(original.tensor, original.value);
}

}  // namespace meshtorch
