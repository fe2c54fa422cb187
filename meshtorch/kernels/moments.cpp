// SPDX-License-Identifier: Apache-2.0
//
// Norms, variances and log-sum-exp over sharded dims. What crosses the devices is one small part per
// result, combined in double, so that a gradient's norm moves a scalar and not the gradient.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/kernels/reducing.h>

namespace meshtorch {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

const c10::IValue* given(const KernelCall& call, const char* name) {
  const int position = call.info.argument(name);
  return position < 0 || call.arguments[position].isNone() ? nullptr : &call.arguments[position];
}

at::Tensor filled(const Reducing& reducing, std::size_t d, double value) {
  return at::full(reducing.part_shape(d), value, reducing.self(d).options().dtype(at::kDouble));
}

class VectorNorm {
 public:
  explicit VectorNorm(const Reducing& reducing) : reducing_(reducing) {
    const KernelCall& call = reducing.call;
    for (const char* name : {"ord", "p"}) {
      if (const c10::IValue* value = given(call, name)) order_ = value->toScalar().toDouble();
    }
    const c10::IValue* dtype = given(call, "dtype");
    type_ = dtype ? dtype->toScalarType() : reducing.self(0).scalar_type();
    if (dtype) compute_ = type_;
    // A 16-bit part would be rounded before it is combined.
    if (is_half(type_)) compute_ = at::kFloat;
  }

  Shards run() const {
    Shards parts;
    for (std::size_t d = 0; d < reducing_.call.devices(); ++d) parts.push_back(part(d));
    parts = reducing_.all_reduce(std::move(parts), order_ == kInfinity    ? Reduction::max
                                                   : order_ == -kInfinity ? Reduction::min
                                                                          : Reduction::sum);
    for (at::Tensor& value : parts) value = root(value).to(at::toRealValueType(type_));
    return parts;
  }

 private:
  bool sums_powers() const { return std::isfinite(order_) && order_ != 0; }

  // |x|^p, summed; the extreme of an infinite order, the count of order 0.
  at::Tensor part(std::size_t d) const {
    if (reducing_.is_empty(d)) return filled(reducing_, d, order_ == -kInfinity ? kInfinity : 0);
    const at::Tensor norm = at::linalg_vector_norm(reducing_.self(d), order_, reducing_.dims,
                                                   reducing_.keepdim, compute_)
                                .to(at::kDouble);
    return sums_powers() ? norm.pow(order_) : norm;
  }

  at::Tensor root(const at::Tensor& sum) const {
    if (!sums_powers()) return sum;
    return order_ == 2 ? sum.sqrt() : sum.pow(1 / order_);
  }

  const Reducing& reducing_;
  double order_ = 2;
  at::ScalarType type_;
  std::optional<at::ScalarType> compute_;
};

KernelResult vector_norm(KernelCall& call) {
  const Reducing reducing(call);
  if (reducing.is_local()) return reducing.run_as_is(1);
  return {VectorNorm(reducing).run()};
}

KernelResult log_sum_exp(KernelCall& call) {
  const Reducing reducing(call);
  if (reducing.is_local()) return reducing.run_as_is(1);
  Shards parts;
  at::ScalarType type = at::kDouble;
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const at::Tensor part = reducing.run(d)[0];
    type = part.scalar_type();
    parts.push_back(reducing.is_empty(d) ? filled(reducing, d, -kInfinity) : part.to(at::kDouble));
  }
  Shards peaks = reducing.all_reduce(parts, Reduction::max);
  for (std::size_t d = 0; d < parts.size(); ++d) {
    peaks[d].masked_fill_(peaks[d].isinf(), 0);  // inf - inf
    parts[d] = parts[d].sub(peaks[d]).exp_();
  }
  KernelResult results{reducing.all_reduce(std::move(parts), Reduction::sum)};
  for (std::size_t d = 0; d < peaks.size(); ++d)
    results[0][d] = results[0][d].log().add_(peaks[d]).to(type);
  return results;
}

struct Moments {
  Shards mean, variance;
};

// Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances"
// (1979): the squares about the parts' own means, and those of the means about the mean of all. In
// double, for a float mean of large values is as coarse as their spread.
Moments moments(const Reducing& reducing) {
  const KernelCall& call = reducing.call;
  const auto count = static_cast<double>(reducing.global_count());
  const c10::IValue* correction = given(call, "correction");
  const double freedom = count - (correction ? correction->toScalar().toDouble() : 1);
  Shards means, weighted, squares;
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const at::Tensor& local = reducing.self(d);
    const auto wide = at::isComplexType(local.scalar_type()) ? at::kComplexDouble : at::kDouble;
    const auto n = static_cast<double>(reducing.local_count(d));
    if (reducing.is_empty(d)) {
      squares.push_back(filled(reducing, d, 0));
      means.push_back(squares[d].to(wide));
    } else {
      const auto [variance, mean] =
          at::var_mean(local.to(wide), reducing.dims, /*correction=*/0, reducing.keepdim);
      squares.push_back(variance.mul(n));
      means.push_back(mean);
    }
    weighted.push_back(means[d].mul(n / count));
  }
  Moments all{.mean = reducing.all_reduce(std::move(weighted), Reduction::sum), .variance = {}};
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const auto n = static_cast<double>(reducing.local_count(d));
    squares[d].add_(means[d].sub(all.mean[d]).abs().square_(), n);
  }
  all.variance = reducing.all_reduce(std::move(squares), Reduction::sum);
  for (at::Tensor& sum : all.variance) sum = sum.div(std::max(freedom, 0.0));
  return all;
}

Kernel spread(bool root, bool with_mean) {
  return [=](KernelCall& call) {
    const Reducing reducing(call);
    const auto type = reducing.self(0).scalar_type();
    const bool refused = !at::isFloatingType(type) && !at::isComplexType(type);  // by libtorch
    if (reducing.is_local() || refused) return reducing.run_as_is(with_mean ? 2 : 1);
    Moments all = moments(reducing);
    for (at::Tensor& value : all.variance)
      value = (root ? value.sqrt() : value).to(at::toRealValueType(type));
    for (at::Tensor& value : all.mean) value = value.to(type);
    KernelResult results{std::move(all.variance)};
    if (with_mean) results.push_back(std::move(all.mean));
    return results;
  };
}

}  // namespace

void install_moments(Dispatch& dispatch) {
  for (const char* op : {"linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dtype",
                         "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype"}) {
    dispatch.add_kernel(std::string("aten::") + op, vector_norm);
  }
  dispatch.add_kernel("aten::logsumexp", log_sum_exp);
  dispatch.add_kernel("aten::var.correction", spread(false, false));
  dispatch.add_kernel("aten::std.correction", spread(true, false));
  dispatch.add_kernel("aten::var_mean.correction", spread(false, true));
  dispatch.add_kernel("aten::std_mean.correction", spread(true, true));
}

}  // namespace meshtorch
