// SPDX-License-Identifier: Apache-2.0
//
// Values that live for one op, and views of them. A view of a tensor whose values are not there is made
// of meta tensors, for its sizes and strides; where its values are wanted, the base's are made and viewed.
#include <ATen/ATen.h>

#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/op_scope.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded_op.h>

namespace meshtorch {
namespace {

thread_local std::vector<std::pair<std::shared_ptr<LocalSource>, std::shared_ptr<const Shards>>>
    held;

}  // namespace

const Shards& op_scope::hold(const std::shared_ptr<LocalSource>& source) {
  for (const auto& [maker, locals] : held) {
    if (maker == source) return *locals;
  }
  std::shared_ptr<const Shards> locals = source->get();
  holds_ = true;
  return *held.emplace_back(source, std::move(locals)).second;
}

void op_scope::drop() {
  holds_ = false;
  held.clear();
}

namespace {

// What an op makes of a base's locals: its results on device d.
using ViewCall = std::function<torch::jit::Stack(std::size_t d, const at::Tensor& local)>;

class ViewSource final : public LocalSource {
 public:
  ViewSource(c10::intrusive_ptr<ShardedView> base, std::shared_ptr<const ViewCall> call,
             std::size_t output)
      : base_(std::move(base)), call_(std::move(call)), output_(output) {}

  std::shared_ptr<const Shards> get() override {
    at::AutoDispatchBelowADInplaceOrView below;
    const Shards& locals = base_->locals();
    Results results;
    for (std::size_t d = 0; d < locals.size(); ++d) {
      torch::jit::Stack stack = (*call_)(d, locals[d]);
      results.add(d, locals.size(), stack);
    }
    return std::make_shared<const Shards>(std::move(results.tensors.at(output_)));
  }

  // check_writable refuses before.
  void written(const Shards&) override {}

  const at::Tensor& stored() const override {
    static const at::Tensor none;
    return none;
  }

  bool meta() const override { return base_->meta(); }

 private:
  c10::intrusive_ptr<ShardedView> base_;
  std::shared_ptr<const ViewCall> call_;
  std::size_t output_;
};

}  // namespace

bool ShardedOp::views_a_source(const Frame& frame, const Decision& decision) const {
  if (!info_->gives_views() || decision.kernel != nullptr) return false;
  const auto& mine =
      frame.argument_operands[static_cast<std::size_t>(info_->returns[0].viewed_argument)];
  if (mine.size() != 1 || frame.tensors.size() != 1) return false;
  const ShardedView* base = frame.views[0];
  return base != nullptr && base->source() != nullptr &&
         base->layout() == decision.placement.operands[0];
}

void ShardedOp::run_view_of_source(const c10::OperatorHandle& op, const Frame& frame,
                                   const Decision& decision, torch::jit::Stack& stack) {
  const auto& positions = dispatch_.runtime().communicator().addressable(frame.mesh);
  const c10::intrusive_ptr<ShardedView> base =
      c10::intrusive_ptr<ShardedView>::reclaim_copy(frame.views[0]);
  const std::vector<Shards> models{without_values(base->models())};
  std::vector<torch::jit::Stack> calls;
  std::vector<Shape> shapes;  // of the views, where the rule says what they are
  for (std::size_t d = 0; d < positions.size(); ++d) {
    torch::jit::Stack call(frame.arguments, frame.arguments + info_->arguments.size());
    for (const auto& [argument, value] : decision.sizes[d])
      call[static_cast<std::size_t>(argument)] = value;
    calls.push_back(std::move(call));
    if (decision.rule.local_view) {
      shapes.push_back(shard_shape(frame.mesh, output_extents(decision.rule, 0),
                                   decision.placement.outputs[0], positions[d]));
    }
  }
  const auto viewed = static_cast<std::size_t>(info_->returns[0].viewed_argument);
  const auto call = std::make_shared<const ViewCall>(
      [this, op, viewed, calls = std::move(calls), shapes = std::move(shapes)](
          std::size_t d, const at::Tensor& local) {
        torch::jit::Stack arguments = calls[d];
        arguments[viewed] = local;
        if (!shapes.empty()) return torch::jit::Stack{at::reshape(local, shapes[d])};
        run_on_device(op, arguments, false);
        return arguments;
      });
  Results results;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    torch::jit::Stack made = (*call)(d, models[0][d]);
    results.add(d, positions.size(), made);
  }
  for (std::size_t output = 0; output < results.tensors.size(); ++output)
    results.sources.push_back(std::make_shared<ViewSource>(base, call, output));
  put_results(frame, &decision, results, models, stack);
}

}  // namespace meshtorch
