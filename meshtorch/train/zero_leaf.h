// SPDX-License-Identifier: Apache-2.0
//
// One parameter under ZeRO: where its values are used, kept and updated. Three layouts of one value, any
// of which may be the same, and then they are the same memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include <meshtorch/layout/layout.h>
#include <meshtorch/train/precision.h>
#include <meshtorch/train/zero.h>

namespace meshtorch {

struct Allocation;
class GatherSchedule;

class ZeroLeaf {
 public:
  // Changes the parameter: its dtype to the precision's, and where `stores` (stage 3), what it keeps.
  // `index`: of the leaf, in the schedule.
  ZeroLeaf(at::Tensor parameter, const ZeroOptions& options, std::size_t index,
           const std::shared_ptr<GatherSchedule>& schedule);

  const at::Tensor& parameter() const { return parameter_; }  // the module's
  const at::Tensor& stored() const { return stored_; }        // what it keeps: itself, or its parts
  const at::Tensor& shard() const { return shard_; }          // what the optimizer updates
  bool frozen() const { return frozen_; }
  // No device holds all of what an op uses of the parameter.
  bool is_split() const { return split_; }

  Layout use_layout() const;     // as ops see it
  Layout stored_layout() const;  // of stored()
  Layout state_layout() const;   // of shard()

  // Takes over what the program wrote into the parameter since the last update. Throws Error where the
  // parameter is another tensor now.
  void take_outside_change();
  // The shard's value is on its way into the parameter.
  void updated();
  // Whether shard() and stored() are one memory.
  bool shares() const { return shares_; }

 private:
  void sync();

  std::size_t index_;
  at::Tensor parameter_, stored_, shard_;
  bool frozen_ = false, split_ = false, shares_ = false;
  // Of the parameter, when the shard was last equal to it.
  std::weak_ptr<const Allocation> allocation_;
  std::uint64_t version_ = 0;
};

}  // namespace meshtorch
