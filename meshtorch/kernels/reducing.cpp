// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/kernels/reducing.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

// No dim, or an empty list, is all of them - but for any.dims and all.dims, where an empty list is none.
std::vector<std::int64_t> reduced_dims(const KernelCall& call, std::int64_t rank) {
  std::vector<std::int64_t> dims;
  const int position = call.info.argument("dim");
  const c10::IValue none;
  const c10::IValue& given = position < 0 ? none : call.arguments[position];
  if (given.isInt()) dims = {given.toInt()};
  if (given.isIntList()) dims = given.toIntVector();
  const bool takes_none = call.info.base == "aten::any.dims" || call.info.base == "aten::all.dims";
  if (dims.empty() && !(takes_none && given.isIntList())) {
    dims.resize(static_cast<std::size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (std::int64_t& dim : dims) dim = dim < 0 ? dim + rank : dim;
  std::sort(dims.begin(), dims.end());
  if (rank == 0) dims.clear();
  return dims;
}

}  // namespace

Reducing::Reducing(const KernelCall& kernel_call) : call(kernel_call) {
  const Shape& shape = call.shapes[0];
  dims = reduced_dims(call, static_cast<std::int64_t>(shape.size()));
  if (call.info.argument("keepdim") >= 0) keepdim = call.argument("keepdim").toBool();
  for (const std::int64_t dim : dims) {
    axes = axes | call.placement.operands[0].dims[static_cast<std::size_t>(dim)].set();
  }
  if (call.mesh.shards(axes) == 1 || global_count() == 0) axes = {};
}

KernelResult Reducing::run_as_is(std::size_t outputs) const {
  KernelResult results(outputs);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const auto values = call.run(call.stack(d));
    for (std::size_t o = 0; o < outputs; ++o) results[o].push_back(values[o].toTensor());
  }
  return results;
}

bool Reducing::is_empty(std::size_t d) const { return local_count(d) == 0; }

Shape Reducing::part_shape(std::size_t d) const {
  Shape shape;
  for (std::int64_t dim = 0; dim < self(d).dim(); ++dim) {
    if (!std::binary_search(dims.begin(), dims.end(), dim)) {
      shape.push_back(self(d).size(dim));
    } else if (keepdim) {
      shape.push_back(1);
    }
  }
  return shape;
}

std::vector<at::Tensor> Reducing::run(std::size_t d) const {
  torch::jit::Stack stack = call.stack(d);
  if (is_empty(d)) {
    Shape shape = self(d).sizes().vec();
    for (const std::int64_t dim : dims) shape[static_cast<std::size_t>(dim)] = 1;
    stack[0] = at::zeros(shape, self(d).options());
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : call.run(std::move(stack))) results.push_back(value.toTensor());
  return results;
}

std::int64_t Reducing::global_count() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= call.shapes[0][static_cast<std::size_t>(dim)];
  return count;
}

std::int64_t Reducing::local_count(std::size_t d) const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= self(d).size(dim);
  return count;
}

Shards Reducing::all_reduce(Shards parts, meshtorch::Reduction reduction) const {
  const bool is_bool = parts[0].scalar_type() == at::kBool;
  if (is_bool) {
    for (at::Tensor& part : parts) part = part.to(at::kByte);
  }
  parts = call.all_reduce(axes, parts, reduction);
  if (is_bool) {
    for (at::Tensor& part : parts) part = part.to(at::kBool);
  }
  return parts;
}

Shards Reducing::all_gather(const Shards& parts) const {
  Shards rows;
  for (const at::Tensor& part : parts) rows.push_back(part.unsqueeze(0));
  const auto bytes = static_cast<std::int64_t>(rows[0].nbytes());
  Request request = Request::all_gather(call.mesh, ordered(axes), 0);
  request.even = true;
  return run_collective(std::move(request), rows,
                        {.bytes = (call.mesh.shards(axes) - 1) * bytes},
                        {.op = call.info.name, .origin = Origin::algorithm, .where = ""});
}

}  // namespace meshtorch
