// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/vector.h>

#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

// The mesh of all of them; undefined where all are plain.
Mesh common_mesh(const char* op, const std::vector<at::Tensor>& parameters) {
  if (parameters.empty()) {
    fail({.op = op, .where = "parameters", .what = "are none", .remedy = "give at least one"});
  }
  Mesh mesh;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    const auto where = text("parameters[", i, "]");
    if (!parameter.defined()) {
      fail({.op = op, .where = where, .what = "is undefined", .remedy = "leave it out"});
    }
    const Mesh mine = is_sharded(parameter) ? sharding_of(parameter).mesh : Mesh();
    if (i == 0) mesh = mine;
    if (mine.defined() != mesh.defined() || (mine.defined() && mine != mesh)) {
      auto named = [](const Mesh& m) { return m.defined() ? text("on mesh ", m) : "plain"; };
      fail({.op = op,
            .where = where,
            .what = text("is ", named(mine), ", the first is ", named(mesh)),
            .remedy = "shard or replicate all of them on one mesh"});
    }
    if (parameter.scalar_type() != parameters[0].scalar_type()) {
      fail({.op = op,
            .where = where,
            .what = text("is of dtype ", parameter.scalar_type(), ", the first of ",
                         parameters[0].scalar_type()),
            .remedy = "make one vector per dtype"});
    }
  }
  return mesh;
}

at::Tensor gathered(const at::Tensor& x) {
  return is_sharded(x) && sharding_of(x).spec != PartitionSpec() ? reshard(x, {}) : x;
}

}  // namespace

at::Tensor parameters_to_vector(const std::vector<at::Tensor>& parameters,
                                const PartitionSpec& spec) {
  const Mesh mesh = common_mesh("parameters_to_vector", parameters);
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& parameter : parameters)
    pieces.push_back(gathered(parameter).reshape({-1}));
  const at::Tensor vector = at::cat(pieces);
  return mesh.defined() && spec != PartitionSpec() ? reshard(vector, spec) : vector;
}

void vector_to_parameters(const at::Tensor& vector, const std::vector<at::Tensor>& parameters) {
  constexpr char kOp[] = "vector_to_parameters";
  torch::NoGradGuard no_grad;
  const Mesh mesh = common_mesh(kOp, parameters);
  std::int64_t expected = 0;
  for (const at::Tensor& parameter : parameters) expected += parameter.numel();
  if (!vector.defined() || vector.dim() != 1 || vector.numel() != expected) {
    fail({.op = kOp,
          .where = "vector",
          .what = vector.defined()
                      ? text("has shape ", vector.sizes(), ", expected [", expected, "]")
                      : "is undefined",
          .remedy = "give what parameters_to_vector made of the same parameters"});
  }
  const at::Tensor values = mesh.defined() ? replicate(vector, mesh) : full(vector);
  std::int64_t at = 0;
  for (at::Tensor parameter : parameters) {
    const std::int64_t size = parameter.numel();
    parameter.copy_(values.slice(0, at, at + size).view(parameter.sizes()));
    at += size;
  }
}

}  // namespace meshtorch
