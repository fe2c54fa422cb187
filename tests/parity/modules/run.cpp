// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <numeric>

#include "../compare.h"

namespace meshtorch::modules {
namespace {

constexpr double kRelative = 1e-8;
constexpr double kAbsolute = 1e-9;

// What the runtime records from here on.
class Record {
 public:
  Record() { Runtime::current().ledger().clear(); }

  std::vector<std::string> moved() const {
    const std::vector<std::string> without_rule = fallbacks();
    std::vector<std::string> lines;
    const auto add = [&](std::string line) {
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
    };
    for (const auto& entry : Runtime::current().ledger().entries()) {
      const std::string line = std::string(name(entry.kind)) + " `" + short_name(entry.op) + "`";
      const bool has_rule = std::ranges::find(without_rule, entry.op) == without_rule.end();
      if (entry.origin != Origin::implied) {
        add(line);
      } else if (has_rule) {
        add("**" + line + "**");
      }
    }
    for (const auto& op : without_rule) add("**no rule `" + short_name(op) + "`**");
    return lines;
  }

 private:
  static std::string short_name(const std::string& op) {
    return op.starts_with("aten::") ? op.substr(6) : op;
  }

  // The ops that fell back since.
  std::vector<std::string> fallbacks() const {
    std::vector<std::string> ops;
    const auto& reports = Runtime::current().fallbacks();
    for (std::size_t i = 0; i < reports.size(); ++i) {
      if (i >= before_.size() || reports[i].count != before_[i].count) ops.push_back(reports[i].op);
    }
    return ops;
  }

  std::vector<FallbackReport> before_ = Runtime::current().fallbacks();
};

bool has_axis(const Mesh& mesh, const std::string& axis) {
  return std::ranges::any_of(mesh.axes(), [&](const auto& a) { return a.name == axis; });
}

P spec_of(const Mesh& mesh, const Input& input, int tp_dim, std::int64_t rank) {
  std::vector<DimSpec> dims(rank);
  if (has_axis(mesh, "dp") && input.batch_dim >= 0) dims[input.batch_dim].push_back("dp");
  if (has_axis(mesh, "tp") && tp_dim >= 0) dims[tp_dim].push_back("tp");
  return P::from(dims);
}

// A plain, strided tensor; undefined stays undefined.
at::Tensor plain(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor whole_value = full(tensor.detach());
  return whole_value.is_sparse() ? whole_value.to_dense() : whole_value;
}

void expect_equal(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  expect_close(plain(got), plain(expected), what, kRelative, kAbsolute);
}

// Laid out as the output is: as what comes after a module gives its gradient.
at::Tensor weights_of(const at::Tensor& output) {
  const auto weights = torch::rand(output.sizes(), torch::kDouble);
  if (!is_sharded(output)) return weights;
  const auto sharding = sharding_of(output);
  return device_put(weights, {sharding.mesh, P::from(sharding.spec.dims())});
}

}  // namespace

bool implied(const std::string& moved) { return moved.starts_with("**"); }

Outcome run(const Row& row, std::int64_t batch, bool training, const std::optional<Mesh>& mesh,
            const Layout& layout) {
  Outcome outcome;
  torch::manual_seed(3);
  const Bound bound = row.make();
  outcome.module = bound.module;
  bound.module->to(torch::kDouble);
  bound.module->train(training);
  if (mesh) {
    PathRules rules(has_axis(*mesh, "tp") ? layout.rules : std::vector<PathRule>{});
    shard(*bound.module, *mesh, rules.otherwise(Unmatched::replicate));
  }

  torch::manual_seed(5);
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    at::Tensor input = row.inputs[i].draw(batch);
    const int tp_dim = layout.input_dims.empty() ? -1 : layout.input_dims[i];
    if (mesh) {
      input = device_put(input, {*mesh, spec_of(*mesh, row.inputs[i], tp_dim, input.dim())});
    }
    if (row.inputs[i].differentiable) input.requires_grad_();
    outcome.inputs.push_back(input);
  }

  torch::manual_seed(7);
  Runtime::current().manual_seed(7);
  const Record forward;
  outcome.outputs = bound.forward(outcome.inputs);
  outcome.forward = forward.moved();
  if (!training) {  // libtorch has kernels of its own for what needs no gradient
    const at::NoGradGuard no_gradient;
    for (const auto& output : bound.forward(outcome.inputs)) outcome.outputs.push_back(output);
  }

  torch::manual_seed(11);
  const Record backward;
  at::Tensor loss;
  for (const auto& output : outcome.outputs) {
    if (!output.requires_grad()) continue;
    const auto term = (output * weights_of(output)).sum();
    loss = loss.defined() ? loss + term : term;
  }
  if (loss.defined()) loss.backward();
  outcome.backward = backward.moved();
  return outcome;
}

Outcome expect_parity(const Row& row, const Place& place, bool training, const Layout& layout) {
  SCOPED_TRACE(row.module + " " + row.options + ", " + name_of(place.axes) + "batch " +
               std::to_string(place.batch) + (training ? ", training " : ", evaluation ") +
               layout.name);
  auto& runtime = Runtime::current();
  const bool random = training && row.property;
  const auto expected = random ? run(row, place.batch, training, runtime.make_mesh({{"dp", 1}}))
                               : run(row, place.batch, training);
  const auto got = run(row, place.batch, training, runtime.make_mesh(place.axes), layout);

  EXPECT_EQ(got.outputs.size(), expected.outputs.size());
  for (std::size_t i = 0; i < expected.outputs.size(); ++i) {
    expect_equal(got.outputs[i], expected.outputs[i], "output " + std::to_string(i));
  }
  for (std::size_t i = 0; i < expected.inputs.size(); ++i) {
    expect_equal(got.inputs[i].grad(), expected.inputs[i].grad(),
                 "gradient of input " + std::to_string(i));
  }
  const auto parameters = got.module->named_parameters();
  for (const auto& item : expected.module->named_parameters()) {
    expect_equal(parameters[item.key()].grad(), item.value().grad(), "gradient of " + item.key());
  }
  const auto buffers = got.module->named_buffers();
  for (const auto& item : expected.module->named_buffers()) {
    expect_equal(buffers[item.key()], item.value(), item.key());
  }
  if (random) {
    Tensors inputs, outputs;
    for (const auto& tensor : got.inputs) inputs.push_back(plain(tensor));
    for (const auto& tensor : got.outputs) outputs.push_back(plain(tensor));
    row.property(inputs, outputs);
  }
  return got;
}

}  // namespace meshtorch::modules
