// SPDX-License-Identifier: Apache-2.0
//
// Extremes, their indices, any, all and products over sharded dims.
#include <ATen/ATen.h>

#include <limits>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/kernels/reducing.h>
#include <meshtorch/layout/shard.h>

namespace meshtorch {
namespace {

// What a device adds that holds nothing: below (or above) every value.
at::Scalar below_all(at::ScalarType type) {
  if (at::isFloatingType(type)) return -std::numeric_limits<double>::infinity();
  switch (type) {
    case at::kBool:
    case at::kByte:
      return 0;
    case at::kChar:
      return std::numeric_limits<std::int8_t>::min();
    case at::kShort:
      return std::numeric_limits<std::int16_t>::min();
    case at::kInt:
      return std::numeric_limits<std::int32_t>::min();
    default:
      return std::numeric_limits<std::int64_t>::min();
  }
}

at::Scalar above_all(at::ScalarType type) {
  if (at::isFloatingType(type)) return std::numeric_limits<double>::infinity();
  switch (type) {
    case at::kBool:
      return 1;
    case at::kByte:
      return std::numeric_limits<std::uint8_t>::max();
    case at::kChar:
      return std::numeric_limits<std::int8_t>::max();
    case at::kShort:
      return std::numeric_limits<std::int16_t>::max();
    case at::kInt:
      return std::numeric_limits<std::int32_t>::max();
    default:
      return std::numeric_limits<std::int64_t>::max();
  }
}

at::Scalar identity(bool largest, at::ScalarType type) {
  return largest ? below_all(type) : above_all(type);
}

Reduction extreme(bool largest) { return largest ? Reduction::max : Reduction::min; }

// Output o is the largest or the smallest value.
Kernel extremes(std::vector<bool> largest) {
  return [largest](KernelCall& call) {
    const Reducing reducing(call);
    if (reducing.is_local()) return reducing.run_as_is(largest.size());
    KernelResult results(largest.size());
    for (std::size_t d = 0; d < call.devices(); ++d) {
      const auto parts = reducing.run(d);
      for (std::size_t o = 0; o < largest.size(); ++o) {
        if (reducing.is_empty(d)) parts[o].fill_(identity(largest[o], parts[o].scalar_type()));
        results[o].push_back(parts[o]);
      }
    }
    for (std::size_t o = 0; o < largest.size(); ++o)
      results[o] = reducing.all_reduce(std::move(results[o]), extreme(largest[o]));
    return results;
  };
}

KernelResult product(KernelCall& call) {
  const Reducing reducing(call);
  if (reducing.is_local()) return reducing.run_as_is(1);
  Shards parts;
  for (std::size_t d = 0; d < call.devices(); ++d) {
    parts.push_back(reducing.run(d)[0]);
    if (reducing.is_empty(d)) parts[d].fill_(1);
  }
  KernelResult results(1);
  for (const at::Tensor& rows : reducing.all_gather(parts))
    results[0].push_back(at::prod(rows, 0, /*keepdim=*/false, rows.scalar_type()));
  return results;
}

// The index in the whole tensor of one in a device's local: along the dim, or in the flattened tensor.
at::Tensor global_index(const Reducing& reducing, std::size_t d, const at::Tensor& index,
                        bool flattened) {
  const KernelCall& call = reducing.call;
  const Box box =
      shard_box(call.mesh, call.shapes[0], call.placement.operands[0], call.positions[d]);
  if (!flattened) return index.add(box[static_cast<std::size_t>(reducing.dims[0])].begin);
  at::Tensor rest = index, found = at::zeros_like(index);
  std::int64_t stride = 1;
  for (std::size_t dim = box.size(); dim-- > 0;) {
    found = found.add(rest.remainder(box[dim].size()).add_(box[dim].begin), stride);
    rest = rest.floor_divide(box[dim].size());
    stride *= call.shapes[0][dim];
  }
  return found;
}

struct Found {
  Shards values, indices;
};

// The extreme value and where it is first. A NaN is more extreme than any number, as in libtorch.
Found find(const Reducing& reducing, bool largest, bool flattened) {
  constexpr auto kNowhere = std::numeric_limits<std::int64_t>::max();
  Found found;
  for (std::size_t d = 0; d < reducing.call.devices(); ++d) {
    const at::Tensor& local = reducing.self(d);
    if (reducing.is_empty(d)) {
      const Shape shape = reducing.part_shape(d);
      found.values.push_back(
          at::full(shape, identity(largest, local.scalar_type()), local.options()));
      found.indices.push_back(at::full(shape, kNowhere, local.options().dtype(at::kLong)));
      continue;
    }
    const at::Tensor x = flattened ? local.flatten() : local;
    const std::int64_t dim = flattened ? 0 : reducing.dims[0];
    const auto [value, index] =
        largest ? at::max(x, dim, reducing.keepdim) : at::min(x, dim, reducing.keepdim);
    const Shape shape = reducing.part_shape(d);
    found.values.push_back(value.reshape(shape));
    found.indices.push_back(global_index(reducing, d, index, flattened).reshape(shape));
  }
  const Shards peaks = reducing.all_reduce(found.values, extreme(largest));
  for (std::size_t d = 0; d < peaks.size(); ++d) {
    const at::Tensor& value = found.values[d];
    const at::Tensor here =
        value.eq(peaks[d]).logical_or_(value.isnan().logical_and_(peaks[d].isnan()));
    found.indices[d] = at::where(here, found.indices[d], kNowhere);
  }
  return {peaks, reducing.all_reduce(std::move(found.indices), Reduction::min)};
}

Kernel value_and_index(bool largest) {
  return [largest](KernelCall& call) {
    const Reducing reducing(call);
    if (reducing.is_local()) return reducing.run_as_is(2);
    Found found = find(reducing, largest, /*flattened=*/false);
    return KernelResult{std::move(found.values), std::move(found.indices)};
  };
}

Kernel index_only(bool largest) {
  return [largest](KernelCall& call) {
    const Reducing reducing(call);
    if (reducing.is_local()) return reducing.run_as_is(1);
    return KernelResult{find(reducing, largest, call.argument("dim").isNone()).indices};
  };
}

}  // namespace

void install_reduce(Dispatch& dispatch) {
  for (const char* op : {"aten::max", "aten::amax", "aten::any", "aten::any.dim", "aten::any.dims"})
    dispatch.add_kernel(op, extremes({true}));
  for (const char* op : {"aten::min", "aten::amin", "aten::all", "aten::all.dim", "aten::all.dims"})
    dispatch.add_kernel(op, extremes({false}));
  dispatch.add_kernel("aten::aminmax", extremes({false, true}));
  for (const char* op : {"aten::prod", "aten::prod.dim_int"}) dispatch.add_kernel(op, product);
  dispatch.add_kernel("aten::max.dim", value_and_index(true));
  dispatch.add_kernel("aten::min.dim", value_and_index(false));
  dispatch.add_kernel("aten::argmax", index_only(true));
  dispatch.add_kernel("aten::argmin", index_only(false));
}

}  // namespace meshtorch
