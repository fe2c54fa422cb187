// SPDX-License-Identifier: Apache-2.0
//
// When parameters that are stored in parts (stage 3) are gathered. The uses of a step, one per op that
// reads a parameter, are recorded; in the next step consecutive ones are gathered together, a group of
// bucket_bytes ahead of the program, and each is dropped after its last use in the group. Where a step
// uses other parameters than the one before, the rest of it gathers one by one, as the first step does.
//
// A group does not reach from forward into backward: a parameter is gathered anew there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <meshtorch/tensor/coalesce.h>

namespace meshtorch {

class GatherSchedule {
 public:
  struct Options {
    std::int64_t bucket_bytes = 0;  // local, gathered
    bool overlap = true;            // a group ahead
    bool keep = false;              // gathered until step()
  };
  explicit GatherSchedule(Options options) : options_(options) {}

  // Stores the parameter's parts in `stored` (a sharded tensor) and makes the parameter's values come
  // from here. `index` names it, from 0.
  static void store(const std::shared_ptr<GatherSchedule>& schedule, std::size_t index,
                    const at::Tensor& parameter, const at::Tensor& stored);

  // Undoes it, where it was done: every device keeps what ops see of the parameter.
  static void unstore(const at::Tensor& parameter);

  // The values of a parameter, for as long as they are held. They are those of use: laid out as ops see
  // the parameter.
  std::shared_ptr<const Shards> use(std::size_t index);

  // The step is over, stored values change after this: nothing is in flight or kept any more.
  void end_step();
  // There are no steps any more: nothing is recorded.
  void retire();
  // A stored value is changed by the program.
  void forget(std::size_t index);

  // What the next step gathers together where it goes as the last one did, in that order.
  struct GatherGroup {
    std::vector<std::size_t> leaves;
    bool backward;
  };
  std::vector<GatherGroup> groups() const;

 private:
  struct Leaf {
    at::Tensor stored;
    Shape shape;
    Layout use;
    std::int64_t bytes = 0;  // gathered, local
    std::shared_ptr<const Shards> kept;
    std::weak_ptr<const Shards> live;
  };
  struct Access {
    std::size_t leaf;
    bool backward;
    std::size_t group = 0;
    bool last = false;  // of its leaf in the group
  };

  Move move_of(const Leaf& leaf) const;
  std::shared_ptr<const Shards> gather_alone(std::size_t index);
  std::shared_ptr<const Shards> next_planned(std::size_t index);
  void launch(std::size_t group);
  void land(std::size_t group);
  void settle();
  void leave_plan();
  void plan();

  Options options_;
  std::vector<Leaf> leaves_;
  std::vector<Access> recorded_;  // in this step
  std::vector<Access> planned_;   // of the step before; empty: gather one by one
  std::size_t position_ = 0;      // in planned_
  bool retired_ = false;
  struct Group {
    std::vector<std::size_t> leaves;
    std::optional<Flight> flight;
    bool landed = false;
    std::vector<std::shared_ptr<const Shards>> values;  // one for each leaf, until its last use
  };
  std::vector<Group> groups_;
};

}  // namespace meshtorch
