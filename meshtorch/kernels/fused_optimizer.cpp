// SPDX-License-Identifier: Apache-2.0
//
// Fused optimizer steps: every parameter's tensors are brought to where the parameter lies, then one call
// per device updates that device's parts of all parameters.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <meshtorch/base/error.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {
namespace {

c10::OperatorHandle handle(const std::string& name) {
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      name.substr(0, dot).c_str(), dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
}

// Operands by (argument, position in its list); the layout each is used in.
class FusedStep {
 public:
  explicit FusedStep(Frame& frame) : frame_(frame), locals_(frame.tensors.size()) {}

  void run(torch::jit::Stack& stack) {
    check();
    for (std::size_t i = 0; i < frame_.info.arguments.size(); ++i) move(i);
    const c10::OperatorHandle op = handle(frame_.info.name);
    const std::size_t devices = Runtime::current().communicator().addressable(frame_.mesh).size();
    for (std::size_t d = 0; d < devices; ++d) {
      torch::jit::Stack local = arguments(d);
      op.callBoxed(&local);
    }
    bring_back();
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame_.info.arguments.size()),
                stack.end());
  }

 private:
  const std::vector<int>& parameters() const { return frame_.argument_operands[0]; }

  void check() const {
    for (std::size_t i = 0; i < frame_.info.arguments.size(); ++i) {
      if (!is_list(i)) continue;
      const std::size_t count = frame_.argument_operands[i].size();
      if (count == 0 || count == parameters().size()) continue;  // an option's list may be empty
      fail({.op = frame_.info.name,
            .where = frame_.info.arguments[i].name,
            .what = text("holds ", count, " tensors for ", parameters().size(), " parameters"),
            .remedy = "give one for each"});
    }
    for (std::size_t i = 0; i < frame_.info.arguments.size(); ++i) {
      if (!frame_.info.arguments[i].written) continue;
      for (const int operand : frame_.argument_operands[i]) {
        const auto o = static_cast<std::size_t>(operand);
        check_writable(frame_.info, frame_.operand_name(o), frame_.tensors[o]);
      }
    }
  }

  bool is_list(std::size_t argument) const {
    return frame_.info.arguments[argument].kind == ArgumentKind::tensor_list;
  }

  // Where the parameter and its states lie, or whole where they lie apart: what is written has to come
  // back. A partial sum is reduced. Step counts and scales are whole.
  Layout wanted(std::size_t argument, std::size_t k, const at::Tensor& tensor) const {
    const Layout whole = Layout::replicated(tensor.dim());
    const auto parameter = static_cast<std::size_t>(parameters()[is_list(argument) ? k : 0]);
    if (!is_list(argument) || tensor.sizes() != frame_.tensors[parameter].sizes()) return whole;
    const Layout layout = frame_.layout(parameter);
    for (std::size_t i = 0; i < frame_.info.arguments.size(); ++i) {
      if (!is_list(i) || !is_changed(frame_.info.arguments[i]) ||
          frame_.argument_operands[i].empty())
        continue;
      const auto state = static_cast<std::size_t>(frame_.argument_operands[i][k]);
      if (frame_.tensors[state].sizes() == tensor.sizes() && frame_.layout(state) != layout)
        return whole;
    }
    return layout.unreduced.empty() ? layout : whole;
  }

  void move(std::size_t argument) {
    for (std::size_t k = 0; k < frame_.argument_operands[argument].size(); ++k) {
      const auto operand = static_cast<std::size_t>(frame_.argument_operands[argument][k]);
      const at::Tensor& tensor = frame_.tensors[operand];
      if (!tensor.defined()) continue;
      const Layout layout = wanted(argument, k, tensor);
      ShardedView* view = frame_.views[operand];
      const Cause cause{frame_.info.name, Origin::implied, frame_.operand_name(operand)};
      locals_[operand] =
          view ? redistribute(*view, tensor.sizes().vec(), layout, cause,
                              frame_.info.arguments[argument].written && view->layout() != layout)
               : place(tensor, frame_.mesh, layout);
      moved_.emplace_back(operand, layout);
    }
  }

  torch::jit::Stack arguments(std::size_t d) const {
    torch::jit::Stack local;
    for (std::size_t i = 0; i < frame_.info.arguments.size(); ++i) {
      const auto& mine = frame_.argument_operands[i];
      if (is_list(i)) {
        c10::List<at::Tensor> list;
        for (const int operand : mine)
          list.push_back(locals_[static_cast<std::size_t>(operand)][d]);
        local.emplace_back(std::move(list));
      } else if (mine.empty() || locals_[static_cast<std::size_t>(mine[0])].empty()) {
        local.push_back(frame_.arguments[i]);
      } else {
        local.emplace_back(locals_[static_cast<std::size_t>(mine[0])][d]);
      }
    }
    return local;
  }

  // Gradients are written only where they are unscaled.
  bool is_changed(const ArgumentInfo& argument) const {
    if (!argument.written) return false;
    const int scale = frame_.info.argument("grad_scale");
    return argument.name != "grads" || (scale >= 0 && !frame_.arguments[scale].isNone());
  }

  void bring_back() {
    for (std::size_t i = 0; i < frame_.info.arguments.size(); ++i) {
      if (!is_changed(frame_.info.arguments[i])) continue;
      for (const int operand : frame_.argument_operands[i]) {
        const auto o = static_cast<std::size_t>(operand);
        ShardedView& view = *frame_.views[o];
        const Layout& from = layout_of(o);
        if (from != view.layout()) {
          const Shards back =
              redistribute(frame_.mesh, frame_.tensors[o].sizes().vec(), from, view.layout(),
                           locals_[o], {frame_.info.name, Origin::implied, frame_.operand_name(o)});
          for (std::size_t d = 0; d < back.size(); ++d) view.locals()[d].copy_(back[d]);
        }
        written(view);
      }
    }
  }

  const Layout& layout_of(std::size_t operand) const {
    for (const auto& [moved, layout] : moved_) {
      if (moved == operand) return layout;
    }
    fail({frame_.info.name, frame_.operand_name(operand), "was not placed", "report this"});
  }

  Frame& frame_;
  std::vector<Shards> locals_;
  std::vector<std::pair<std::size_t, Layout>> moved_;
};

// Divides the scale out of every gradient and notes whether one overflowed anywhere. A gradient that is
// a partial sum is looked at reduced and stays one.
void unscale(Frame& frame, torch::jit::Stack& stack) {
  const auto count = frame.argument_operands[0].size();
  at::Tensor found = frame.tensors[count];
  at::Tensor scale = frame.tensors[count + 1];
  if (is_sharded(scale)) scale = replicate(scale, frame.mesh);  // once for all
  for (std::size_t k = 0; k < count; ++k) {
    at::Tensor gradient = frame.tensors[k];
    found.masked_fill_(at::isfinite(gradient).logical_not().any(), 1);
    gradient.mul_(scale);
  }
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame.info.arguments.size()), stack.end());
}

}  // namespace

void install_fused_optimizer(Dispatch& dispatch) {
  for (const char* op : {"aten::_fused_sgd_", "aten::_fused_adagrad_", "aten::_fused_adam_",
                         "aten::_fused_adamw_"}) {
    for (const char* overload : {"", ".tensor_lr"}) {
      dispatch.add_override(std::string(op) + overload, [](Frame& frame, torch::jit::Stack& stack) {
        FusedStep(frame).run(stack);
      });
    }
  }
  dispatch.add_override("aten::_amp_foreach_non_finite_check_and_unscale_", unscale);
}

}  // namespace meshtorch
