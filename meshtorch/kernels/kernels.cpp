// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/kernels/kernels.h>

#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {

void install_kernels(Runtime& runtime) {
  Dispatch& dispatch = runtime.dispatch();
  install_meta(dispatch);
  install_random(dispatch);
  install_distributions(dispatch);
  install_embedding(dispatch);
  install_softmax(dispatch);
  install_nll(dispatch);
  install_mean(dispatch);
  install_convolution(dispatch);
  install_margin(dispatch);
  install_fused_optimizer(dispatch);
  install_batch_norm(dispatch);
  install_reduce(dispatch);
  install_moments(dispatch);
  install_linear(dispatch);
  install_constrained(dispatch);
  install_ctc(dispatch);
  install_buffers(dispatch);
  install_recurrent(dispatch);
  install_host(dispatch);
}

}  // namespace meshtorch
