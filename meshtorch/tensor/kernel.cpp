// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/kernel.h>

#include <ATen/ATen.h>

#include <algorithm>

#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {

const c10::IValue& KernelCall::argument(std::string_view name) const {
  return arguments[info.argument(name)];
}

bool KernelCall::meta() const {
  return std::any_of(locals.begin(), locals.end(), [](const Shards& s) { return is_meta(s); });
}

int KernelCall::operand(std::string_view name) const {
  return argument_operands[static_cast<std::size_t>(info.argument(name))].at(0);
}

torch::jit::Stack KernelCall::stack(std::size_t d) const {
  torch::jit::Stack local;
  local.reserve(info.arguments.size());
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const auto& mine = argument_operands[i];
    if (arguments[i].isDevice() && meta()) {
      local.emplace_back(at::Device(at::kMeta));  // asked for: the wrapper's device
    } else if (info.arguments[i].kind == ArgumentKind::attribute || arguments[i].isNone()) {
      local.push_back(arguments[i]);
    } else if (info.arguments[i].kind == ArgumentKind::tensor) {
      const auto& shards = locals[static_cast<std::size_t>(mine[0])];
      local.emplace_back(shards.empty() ? at::Tensor() : shards[d]);
    } else if (arguments[i].isTensorList()) {
      c10::List<at::Tensor> list;
      for (const int operand : mine) list.push_back(locals[static_cast<std::size_t>(operand)][d]);
      local.emplace_back(std::move(list));
    } else {
      c10::List<std::optional<at::Tensor>> list;
      for (const int operand : mine) {
        const auto& shards = locals[static_cast<std::size_t>(operand)];
        list.push_back(shards.empty() ? std::optional<at::Tensor>() : shards[d]);
      }
      local.emplace_back(std::move(list));
    }
  }
  for (const auto& [argument, value] : sizes[d]) local[static_cast<std::size_t>(argument)] = value;
  return local;
}

torch::jit::Stack KernelCall::run(torch::jit::Stack local) const {
  op.callBoxed(&local);
  return local;
}

AxisList ordered(AxisSet axes) {
  AxisList list;
  for (const int axis : axes) list.push_back(axis);
  return list;
}

Shards KernelCall::all_reduce(AxisSet axes, const Shards& shards, Reduction reduction) const {
  AxisSet real;
  for (const int axis : axes) {
    if (mesh.axis_size(axis) > 1) real.insert(axis);
  }
  if (real.empty()) return shards;
  const std::int64_t n = mesh.shards(real);
  const auto bytes = static_cast<std::int64_t>(shards.front().nbytes());
  return run_collective(Request::all_reduce(mesh, ordered(real), reduction), shards,
                        {.bytes = 2 * (n - 1) * bytes / n},
                        {.op = info.name, .origin = Origin::algorithm, .where = ""});
}

}  // namespace meshtorch
