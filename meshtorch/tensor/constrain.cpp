// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/constrain.h>

#include <torch/torch.h>

#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tensor/shared_reshard.h>

namespace meshtorch {
namespace {

struct Parameters {
  std::vector<std::string> paths;
  std::map<std::string, at::Tensor> tensors;
  Mesh mesh;
};

Parameters parameters_of(const torch::nn::Module& module) {
  Parameters parameters;
  for (const auto& item : module.named_parameters()) {
    const ShardedView* view = sharded_view(item.value());
    if (view == nullptr) {
      fail({.op = "constrain",
            .where = item.key(),
            .what = "is a plain tensor",
            .remedy = "shard(module, mesh, rules) first"});
    }
    if (!parameters.mesh.defined()) parameters.mesh = view->mesh();
    if (view->mesh() != parameters.mesh) {
      fail({.op = "constrain",
            .where = item.key(),
            .what = text("is on mesh ", view->mesh(), ", ", parameters.paths[0], " on ",
                         parameters.mesh),
            .remedy = "constrain the modules of each mesh by themselves"});
    }
    parameters.paths.push_back(item.key());
    parameters.tensors[item.key()] = item.value();
  }
  return parameters;
}

struct Wanted {
  at::Tensor parameter;
  std::string path;
  std::vector<Constraint::Use> uses;
};

void add_use(Wanted& wanted, const ActivationMatch& match) {
  for (const Constraint::Use& use : wanted.uses) {
    const bool same_op = use.op == match.op || use.op.empty() || match.op.empty();
    if (match.path == wanted.path || !same_op) continue;
    if (use.input == match.input && use.output == match.output) return;
    fail({.op = "constrain",
          .where = match.path,
          .what = text("is the same tensor as ", wanted.path, ", for which another rule fires"),
          .remedy = "say in both rules for which op they are"});
  }
  wanted.uses.push_back({match.input, match.output, match.op});
}

std::vector<Wanted> wanted_by(const ConstraintReport& report, const Parameters& parameters) {
  std::map<const void*, std::size_t> place;
  std::vector<Wanted> all;
  for (const ActivationMatch& match : report.matches) {
    const at::Tensor& tensor = parameters.tensors.at(match.path);
    const auto [found, fresh] = place.emplace(tensor.unsafeGetTensorImpl(), all.size());
    if (fresh) all.push_back({.parameter = tensor, .path = match.path, .uses = {}});
    add_use(all[found->second], match);
  }
  return all;
}

// Axes of one device move nothing.
Layout without_single(const Mesh& mesh, const Layout& layout) {
  Layout moving = Layout::replicated(static_cast<std::int64_t>(layout.dims.size()));
  for (std::size_t d = 0; d < layout.dims.size(); ++d) {
    for (int i = 0; i < layout.dims[d].size(); ++i) {
      if (mesh.axis_size(layout.dims[d][i]) > 1) moving.dims[d].push_back(layout.dims[d][i]);
    }
  }
  for (const int axis : layout.unreduced) {
    if (mesh.axis_size(axis) > 1) moving.unreduced.insert(axis);
  }
  return moving;
}

struct Asked {
  const ShardedView& parameter;
  const char* op;
  const char* which;
};

at::Tensor moved(const at::Tensor& x, const PartitionSpec& spec, const Asked& asked) {
  const ShardedView* view = sharded_view(x);
  const Mesh& mesh = view != nullptr ? view->mesh() : asked.parameter.mesh();
  const Layout layout = resolve(
      mesh, spec, x.dim(), "constrain",
      text(asked.parameter.allocation()->constraint->path, ", ", asked.which, " of ", asked.op));
  if (view == nullptr) return device_put(x, {mesh, spec});
  if (without_single(mesh, layout) == without_single(mesh, view->layout())) return x;
  return shared_reshard(x, spec);
}

}  // namespace

Constraint::Constraint(std::string path, std::vector<Use> uses)
    : path(std::move(path)), uses(std::move(uses)) {
  ++alive_;
}

Constraint::~Constraint() { --alive_; }

const Constraint::Use* Constraint::find(std::string_view op) const {
  const auto found =
      std::ranges::find_if(uses, [&](const Use& use) { return use.op.empty() || use.op == op; });
  return found == uses.end() ? nullptr : &*found;
}

ConstraintReport constrain(torch::nn::Module& module, const std::vector<ActivationRule>& rules) {
  const Parameters parameters = parameters_of(module);
  const ConstraintReport report = match_activations(rules, parameters.mesh, parameters.paths);
  for (Wanted& wanted : wanted_by(report, parameters)) {
    sharded_view(wanted.parameter)->allocation()->constraint =
        std::make_shared<const Constraint>(std::move(wanted.path), std::move(wanted.uses));
  }
  return report;
}

void unconstrain(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    const ShardedView* view = sharded_view(parameter);
    if (view != nullptr) view->allocation()->constraint.reset();
  }
}

at::Tensor constrained_input(const char* op, const at::Tensor& parameter, const at::Tensor& x) {
  if (!is_constrained(parameter)) return x;
  const ShardedView& view = *sharded_view(parameter);
  const Constraint::Use* use = view.allocation()->constraint->find(op);
  return use && use->input ? moved(x, *use->input, {view, op, "input"}) : x;
}

at::Tensor constrained_output(const char* op, const at::Tensor& parameter, const at::Tensor& y) {
  if (!is_constrained(parameter)) return y;
  const ShardedView& view = *sharded_view(parameter);
  const Constraint::Use* use = view.allocation()->constraint->find(op);
  return use && use->output ? moved(y, *use->output, {view, op, "output"}) : y;
}

}  // namespace meshtorch
