// SPDX-License-Identifier: Apache-2.0
//
// All of meshtorch.
#pragma once

#include <meshtorch/base/error.h>
#include <meshtorch/checkpoint/module.h>
#include <meshtorch/checkpoint/state.h>
#include <meshtorch/comm/ledger.h>
#include <meshtorch/kernels/random.h>
#include <meshtorch/mesh/named_sharding.h>
#include <meshtorch/plan/megatron.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/display.h>
#include <meshtorch/tensor/init_sharded.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/module.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sequential_child.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/state.h>
#include <meshtorch/tensor/trace.h>
#include <meshtorch/tensor/tree.h>
#include <meshtorch/tensor/vector.h>
#include <meshtorch/tensor/visualize.h>
#include <meshtorch/train/explain.h>
#include <meshtorch/train/local_map.h>
#include <meshtorch/train/norm.h>
#include <meshtorch/train/pmap.h>
#include <meshtorch/train/policy.h>
#include <meshtorch/train/remat.h>
#include <meshtorch/train/train_step.h>
#include <meshtorch/train/value_and_grad.h>
#include <meshtorch/train/zero.h>
#include <meshtorch/tree/by_structure.h>
#include <meshtorch/tree/rules.h>
