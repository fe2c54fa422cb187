// SPDX-License-Identifier: Apache-2.0
//
// The families of sharded kernels; install_kernels (kernels.cpp) is the one list of them.
#pragma once

namespace meshtorch {

class Dispatch;

void install_meta(Dispatch& dispatch);    // shape functions, where libtorch has none
void install_random(Dispatch& dispatch);  // bernoulli, normal, uniform, dropout: by global element
void install_distributions(Dispatch& dispatch);  // made of those
void install_embedding(Dispatch& dispatch);      // rows sharded: masked lookup, unreduced result
void install_softmax(Dispatch& dispatch);        // class dim sharded: maximum and sum over its axes
void install_nll(Dispatch& dispatch);   // negative log likelihood over sharded classes and batch
void install_mean(Dispatch& dispatch);  // means and mean losses: sum over the global count
void install_convolution(Dispatch& dispatch);      // channels sharded: devices without any
void install_margin(Dispatch& dispatch);           // losses per row: as well
void install_fused_optimizer(Dispatch& dispatch);  // each parameter's tensors where it lies
void install_batch_norm(Dispatch& dispatch);       // statistics of the global batch
void install_reduce(Dispatch& dispatch);   // extremes, any, all, products: joined over the devices
void install_moments(Dispatch& dispatch);  // norms, variances, log-sum-exp: as well
void install_linear(Dispatch& dispatch);   // products that keep their leading dims
void install_constrained(Dispatch& dispatch);  // ops whose activations a rule may lay out
void install_ctc(Dispatch& dispatch);      // of a sharded batch
void install_buffers(Dispatch& dispatch);  // plain buffers written from sharded tensors
void install_recurrent(Dispatch& dispatch);  // states that nobody laid out
void install_host(Dispatch& dispatch);       // composites that read an operand on the host

}  // namespace meshtorch
