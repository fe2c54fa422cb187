// SPDX-License-Identifier: Apache-2.0
//
// Dry runs. A sharded tensor may have meta shards (comm/meta.h): sizes, dtypes and layouts without
// values. A program on such tensors makes the shapes, layouts and ledger of the real run, at no cost in
// memory and next to none in time. Meta shards get: a meta tensor that is placed, everything that is
// placed where RuntimeOptions::meta is set, and what ops make of them.
//
//   mt::Runtime runtime({.devices = 64, .meta = true});
//   mt::Gpt model{nullptr};
//   {
//     mt::meta_scope meta;                     // a model of any size, without memory
//     model = mt::Gpt(options);
//   }
//   mt::shard(*model, mesh, mt::gpt_sharding());
//   ... the training step as ever; then runtime.ledger() tells what it costs
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace meshtorch {

// While it lives, what this thread creates without naming a device (torch::empty, a module's
// parameters) is a meta tensor. Throws Error where there is no runtime.
class meta_scope {
 public:
  meta_scope();
  meta_scope(const meta_scope&) = delete;
  meta_scope& operator=(const meta_scope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard mode_;
};

// What a call does within a meta_scope: the kernel of its dispatch key.
void create_on_meta(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// A plain meta tensor, or a sharded one whose shards are.
bool is_meta(const at::Tensor& tensor);

// What scalar.item() gives. Where there is no value: `otherwise`, and the collectives that reading one
// takes.
c10::Scalar item_or(const at::Tensor& scalar, const c10::Scalar& otherwise);

// The one message for what cannot be told without values.
[[noreturn]] void fail_without_values(const std::string& op, const std::string& where,
                                      const std::string& what);

}  // namespace meshtorch
