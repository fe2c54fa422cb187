// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/constrain.h>

#include <torch/torch.h>

#include <algorithm>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sequential_child.h>
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
    if (match.op == "module") continue;
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

at::Tensor moved(const at::Tensor& x, const PartitionSpec& spec, const Mesh& home,
                 const std::string& where) {
  const ShardedView* view = sharded_view(x);
  const Mesh& mesh = view != nullptr ? view->mesh() : home;
  const Layout layout = resolve(mesh, spec, x.dim(), "constrain", where);
  if (view == nullptr) return device_put(x, {mesh, spec});
  if (without_single(mesh, layout) == without_single(mesh, view->layout())) return x;
  return shared_reshard(x, spec);
}

at::Tensor moved(const at::Tensor& x, const PartitionSpec& spec, const ShardedView& parameter,
                 const char* which, const char* op) {
  return moved(x, spec, parameter.mesh(),
               text(parameter.allocation()->constraint->path, ", ", which, " of ", op));
}

Around around(const ActivationMatch& match, const Mesh& mesh) {
  if (!match.input && !match.output) return nullptr;
  return [match, mesh](const TensorForward& forward, const at::Tensor& x) {
    const at::Tensor y =
        forward(match.input ? moved(x, *match.input, mesh, match.path + ", input") : x);
    return match.output ? moved(y, *match.output, mesh, match.path + ", output") : y;
  };
}

// The places that rules fire for, each child once.
std::vector<std::pair<SequentialPlace, ActivationMatch>> wrapped_by(
    const ConstraintReport& report, const std::vector<SequentialPlace>& places) {
  std::map<const void*, ActivationMatch> given;
  std::vector<std::pair<SequentialPlace, ActivationMatch>> all;
  for (const ActivationMatch& match : report.matches) {
    if (match.op != "module") continue;
    const auto place = std::ranges::find(places, match.path, &SequentialPlace::path);
    const auto [found, fresh] = given.emplace(place->child, match);
    if (fresh) all.emplace_back(*place, match);
    if (found->second.input == match.input && found->second.output == match.output) continue;
    fail({.op = "constrain",
          .where = match.path,
          .what = text("is the same module as ", found->second.path,
                       ", for which another rule fires"),
          .remedy = "make one rule of both"});
  }
  return all;
}

std::vector<std::string> paths_of(const std::vector<SequentialPlace>& places) {
  std::vector<std::string> paths;
  for (const SequentialPlace& place : places) paths.push_back(place.path);
  return paths;
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
  const auto places = sequential_children(module);
  const ConstraintReport report =
      match_activations(rules, parameters.mesh, parameters.paths, paths_of(places));
  const auto wrapped = wrapped_by(report, places);
  for (Wanted& wanted : wanted_by(report, parameters)) {
    sharded_view(wanted.parameter)->allocation()->constraint =
        std::make_shared<const Constraint>(std::move(wanted.path), std::move(wanted.uses));
  }
  for (const auto& [place, match] : wrapped)
    set_around(place, AroundKind::constrain, around(match, parameters.mesh));
  return report;
}

void unconstrain(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    const ShardedView* view = sharded_view(parameter);
    if (view != nullptr) view->allocation()->constraint.reset();
  }
  for (const SequentialPlace& place : sequential_children(module))
    set_around(place, AroundKind::constrain, nullptr);
}

at::Tensor constrained_input(const char* op, const at::Tensor& parameter, const at::Tensor& x) {
  if (!is_constrained(parameter)) return x;
  const ShardedView& view = *sharded_view(parameter);
  const Constraint::Use* use = view.allocation()->constraint->find(op);
  return use && use->input ? moved(x, *use->input, view, "input", op) : x;
}

at::Tensor constrained_output(const char* op, const at::Tensor& parameter, const at::Tensor& y) {
  if (!is_constrained(parameter)) return y;
  const ShardedView& view = *sharded_view(parameter);
  const Constraint::Use* use = view.allocation()->constraint->find(op);
  return use && use->output ? moved(y, *use->output, view, "output", op) : y;
}

}  // namespace meshtorch
