// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/gather_schedule.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/train/local_bytes.h>

namespace meshtorch {
namespace {

const Cause kCause{.op = "Zero::gather_parameters", .origin = Origin::asked, .where = ""};

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

// Evaluation gathers what it uses and is no part of a step's record.
bool training() { return at::GradMode::is_enabled() || in_backward(); }

class StoredSource final : public LocalSource {
 public:
  StoredSource(std::shared_ptr<GatherSchedule> schedule, std::size_t index, at::Tensor stored,
               Shape shape, Layout use)
      : schedule_(std::move(schedule)),
        index_(index),
        stored_(std::move(stored)),
        shape_(std::move(shape)),
        use_(std::move(use)) {}

  std::shared_ptr<const Shards> get() override { return schedule_->use(index_); }

  void written(const Shards& locals) override {
    at::AutoDispatchBelowADInplaceOrView below;
    const ShardedView& parts = *sharded_view(stored_);
    schedule_->forget(index_);  // first: a gather in flight reads the parts
    const Shards pieces = redistribute(parts.mesh(), shape_, use_, parts.layout(), locals, kCause);
    for (std::size_t d = 0; d < pieces.size() && !parts.meta(); ++d)
      parts.locals()[d].copy_(pieces[d]);
    ++parts.allocation()->version;
  }

  const at::Tensor& stored() const override { return stored_; }

  bool meta() const override { return sharded_view(stored_)->meta(); }

 private:
  std::shared_ptr<GatherSchedule> schedule_;
  std::size_t index_;
  at::Tensor stored_;
  Shape shape_;
  Layout use_;
};

}  // namespace

void GatherSchedule::store(const std::shared_ptr<GatherSchedule>& schedule, std::size_t index,
                           const at::Tensor& parameter, const at::Tensor& stored) {
  const ShardedView& view = *sharded_view(parameter);
  auto& leaves = schedule->leaves_;
  if (leaves.size() <= index) leaves.resize(index + 1);
  leaves[index] = {.stored = stored,
                   .shape = shape_of(parameter),
                   .use = view.layout(),
                   .bytes = local_bytes(parameter)};
  auto source =
      std::make_shared<StoredSource>(schedule, index, stored, shape_of(parameter), view.layout());
  rebind(parameter, shape_of(parameter),
         c10::make_intrusive<ShardedView>(view.mesh(), view.shared_dims(),
                                          without_values(view.locals()), view.allocation(),
                                          std::move(source)));
}

void GatherSchedule::unstore(const at::Tensor& parameter) {
  const ShardedView& view = *sharded_view(parameter);
  if (view.source() == nullptr) return;
  Shards locals;
  for (const at::Tensor& local : view.locals()) locals.push_back(local.clone());
  auto allocation = std::make_shared<Allocation>();
  allocation->placed = true;
  allocation->constraint = view.allocation()->constraint;
  rebind(parameter, shape_of(parameter),
         c10::make_intrusive<ShardedView>(view.mesh(), view.shared_dims(), std::move(locals),
                                          std::move(allocation)));
}

Move GatherSchedule::move_of(const Leaf& leaf) const {
  const ShardedView& parts = *sharded_view(leaf.stored);
  return {.shape = leaf.shape, .from = parts.layout(), .to = leaf.use, .locals = parts.locals()};
}

std::shared_ptr<const Shards> GatherSchedule::use(std::size_t index) {
  Leaf& leaf = leaves_.at(index);
  if (leaf.kept) return leaf.kept;
  const bool record = training() && !retired_;
  if (record) recorded_.push_back({.leaf = index, .backward = in_backward()});
  auto values = record && !planned_.empty() ? next_planned(index) : nullptr;
  if (!values) values = leaf.live.lock();
  if (!values) values = gather_alone(index);
  leaf.live = values;
  if (options_.keep && record) leaf.kept = values;
  return values;
}

std::shared_ptr<const Shards> GatherSchedule::gather_alone(std::size_t index) {
  const use_scope use(Use::parameters);
  const named_scope scope("zero");
  std::vector<Move> moves{move_of(leaves_[index])};
  const Mesh mesh = sharded_view(leaves_[index].stored)->mesh();
  redistribute_all(mesh, moves, kCause);
  return std::make_shared<const Shards>(std::move(moves[0].locals));
}

// Null where the step goes another way than the one before.
std::shared_ptr<const Shards> GatherSchedule::next_planned(std::size_t index) {
  const bool same = position_ < planned_.size() && planned_[position_].leaf == index &&
                    planned_[position_].backward == in_backward();
  if (!same) {
    leave_plan();
    return nullptr;
  }
  const Access& now = planned_[position_++];
  launch(now.group);
  if (options_.overlap && now.group + 1 < groups_.size()) launch(now.group + 1);
  land(now.group);
  Group& group = groups_[now.group];
  const auto member = std::find(group.leaves.begin(), group.leaves.end(), index);
  auto& value = group.values[static_cast<std::size_t>(member - group.leaves.begin())];
  return now.last ? std::exchange(value, nullptr) : value;
}

void GatherSchedule::launch(std::size_t number) {
  Group& group = groups_[number];
  if (group.flight || group.landed) return;
  const named_scope scope("zero");
  std::vector<Move> moves;
  for (const std::size_t leaf : group.leaves) moves.push_back(move_of(leaves_[leaf]));
  group.flight.emplace(sharded_view(leaves_[group.leaves[0]].stored)->mesh(), std::move(moves),
                       kCause);
}

void GatherSchedule::land(std::size_t number) {
  Group& group = groups_[number];
  if (group.landed) return;
  const use_scope use(Use::parameters);
  const named_scope scope("zero");
  const Mesh mesh = sharded_view(leaves_[group.leaves[0]].stored)->mesh();
  for (Move& move : group.flight->wait()) {
    if (MemoryAccount* account = MemoryAccount::active()) {
      for (std::size_t d = 0; d < move.locals.size(); ++d)
        account->assign(move.locals[d], device_number(mesh, d), Use::parameters);
    }
    group.values.push_back(std::make_shared<const Shards>(std::move(move.locals)));
  }
  group.flight.reset();
  group.landed = true;
}

// What is gathered in vain is waited for all the same: the program may write the parts that it reads.
void GatherSchedule::settle() {
  for (Group& group : groups_) {
    if (group.flight) group.flight->wait();
  }
}

void GatherSchedule::leave_plan() {
  settle();
  planned_.clear();
  groups_.clear();
}

void GatherSchedule::end_step() {
  settle();
  for (Leaf& leaf : leaves_) {
    leaf.kept.reset();
    leaf.live.reset();
  }
  plan();
}

void GatherSchedule::retire() {
  leave_plan();
  recorded_.clear();
  retired_ = true;
}

void GatherSchedule::forget(std::size_t index) {
  leaves_.at(index).kept.reset();
  leaves_[index].live.reset();
  leave_plan();  // a group may have gathered the old value
}

void GatherSchedule::plan() {
  if (!recorded_.empty()) planned_ = std::exchange(recorded_, {});
  groups_.clear();
  position_ = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    Access& use = planned_[i];
    const std::int64_t more = leaves_[use.leaf].bytes;
    auto* group = groups_.empty() ? nullptr : &groups_.back();
    const bool held =
        group != nullptr && std::count(group->leaves.begin(), group->leaves.end(), use.leaf) > 0;
    if (group == nullptr || planned_[i - 1].backward != use.backward ||
        (!held && bytes + more > options_.bucket_bytes)) {
      group = &groups_.emplace_back();
      bytes = 0;
    }
    if (std::count(group->leaves.begin(), group->leaves.end(), use.leaf) == 0) {
      group->leaves.push_back(use.leaf);
      bytes += more;
    }
    use.group = groups_.size() - 1;
    use.last = true;
    for (std::size_t k = i; k-- > 0 && planned_[k].group == use.group;) {
      if (planned_[k].leaf == use.leaf) planned_[k].last = false;
    }
  }
}

std::vector<GatherSchedule::GatherGroup> GatherSchedule::groups() const {
  std::vector<GatherGroup> all;
  for (const Access& use : planned_) {
    if (use.group == all.size())
      all.push_back({.leaves = groups_[use.group].leaves, .backward = use.backward});
  }
  return all;
}

}  // namespace meshtorch
