// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/init_sharded.h>

#include <torch/torch.h>

#include <map>
#include <optional>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/draws.h>
#include <meshtorch/tensor/init_sharded_calls.h>
#include <meshtorch/tensor/init_sharded_stream.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tree/leaf_checks.h>

namespace meshtorch {
namespace {

bool lies_so(const at::Tensor& tensor, const Mesh& mesh, const Layout& layout) {
  const ShardedView* view = sharded_view(tensor);
  return view != nullptr && view->mesh() == mesh && view->layout() == layout;
}

}  // namespace

struct InitPlan::Parts {
  Mesh mesh;
  Rules rules;
  InitOptions options;
  bool dry;
  Draws before = Draws::of({});
  InitCalls calls;
  MatchReport report;
  std::vector<std::string> reasons;  // of the report's matches
  bool complete = false;

  Layout layout(std::size_t match) const {
    const Match& of = report.matches[match];
    return resolve(mesh, of.spec, static_cast<std::int64_t>(of.leaf.shape.size()), "init_sharded",
                   of.leaf.path);
  }
  void place(std::size_t match, const at::Tensor& tensor);
};

struct InitPlan::Scope {
  Scope(InitCalls& calls, InitCalls::Pass pass, std::int64_t chunk)
      : stream(chunk), calls(calls, pass) {}
  init_stream_scope stream;
  InitCalls::Scope calls;
};

void InitPlan::Close::operator()(Scope* scope) const { delete scope; }

InitPlan::InitPlan(const Mesh& mesh, const Rules& rules, const InitOptions& options) {
  if (options.chunk < 1) {
    fail({.op = "init_sharded",
          .where = "chunk",
          .what = text("is ", options.chunk, " bytes"),
          .remedy = "give a positive number"});
  }
  process_box({mesh, P()}, {});  // checks the mesh
  parts_ = std::make_unique<Parts>(Parts{
      .mesh = mesh, .rules = rules, .options = options, .dry = Runtime::current().options().meta});
}

InitPlan::~InitPlan() {
  if (parts_ != nullptr && !parts_->complete) parts_->before.restore();
}

bool InitPlan::dry() const { return parts_->dry; }

std::unique_ptr<InitPlan::Scope, InitPlan::Close> InitPlan::open_first() {
  return std::unique_ptr<Scope, Close>(new Scope(parts_->calls, InitCalls::Pass::first, 0));
}

std::unique_ptr<InitPlan::Scope, InitPlan::Close> InitPlan::open_second() {
  return std::unique_ptr<Scope, Close>(
      new Scope(parts_->calls, InitCalls::Pass::second, parts_->options.chunk));
}

void InitPlan::match(const TreeSlots& tree) {
  parts_->before.restore();
  parts_->report = parts_->rules.match(parts_->mesh, tree.leaves());
  InitCalls& calls = parts_->calls;
  const std::map<std::size_t, Shape> births = calls.births();
  std::set<std::size_t> leaf_births;
  std::map<Shape, Layout> by_shape;
  std::size_t match = 0;
  for (const TreeSlot& slot : tree.slots) {
    if (!slot.tensor.defined()) continue;
    const Layout layout = parts_->layout(match++);
    by_shape.emplace(slot.tensor.sizes().vec(), layout);
    parts_->reasons.push_back(calls.reason(slot.tensor));
    for (const std::size_t birth : calls.births_of(slot.tensor)) {
      if (leaf_births.insert(birth).second) calls.shard(birth, parts_->mesh, layout);
    }
  }
  // What a leaf is copied from (modules that are cloned) or would have been is as large as it is.
  for (const auto& [birth, shape] : births) {
    const auto like = by_shape.find(shape);
    if (!leaf_births.contains(birth) && like != by_shape.end())
      calls.shard(birth, parts_->mesh, like->second);
  }
  calls.settle();
}

void InitPlan::Parts::place(std::size_t match, const at::Tensor& tensor) {
  Match& of = report.matches[match];
  const Layout wanted = layout(match);
  const bool whole = sharded_view(tensor) == nullptr;
  if (!lies_so(tensor, mesh, wanted))
    tree_detail::replace_value(tensor, device_put(tensor.detach(), {mesh, of.spec}));
  sharded_view(tensor)->allocation()->placed = true;
  account_for(tensor, Use::parameters);
  const bool cut = max_shard_numel(mesh, of.leaf.shape, wanted) < numel(of.leaf.shape);
  if (!whole || !cut || dry) return;
  add_note(of.note, "made whole: " + (reasons[match].empty() ? "on the host" : reasons[match]));
}

void InitPlan::place(const TreeSlots& tree) {
  const torch::NoGradGuard no_grad;
  if (!parts_->dry) parts_->calls.check_ended();
  std::set<const void*> done;
  std::size_t match = 0;
  for (const TreeSlot& slot : tree.slots) {
    if (!slot.tensor.defined()) continue;
    if (match == parts_->report.matches.size() ||
        parts_->report.matches[match].leaf.path != slot.path) {
      fail({.op = "init_sharded",
            .where = slot.path,
            .what = "is no leaf of the maker's first run",
            .remedy = "let it make the same tree every time"});
    }
    if (done.insert(slot.tensor.unsafeGetTensorImpl()).second) parts_->place(match, slot.tensor);
    ++match;
  }
  parts_->complete = true;
  if (parts_->options.report != nullptr) *parts_->options.report = parts_->report;
}

}  // namespace meshtorch
