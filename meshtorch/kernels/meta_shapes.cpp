// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/kernels/meta_shapes.h>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <array>
#include <tuple>

namespace meshtorch {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::SymInt;
using at::SymIntArrayRef;
using at::Tensor;
using Maybe = std::optional<Tensor>;
using Dims = at::OptionalIntArrayRef;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

Tensor contiguous_like(const Tensor& x) { return at::empty_like(x, at::MemoryFormat::Contiguous); }

Tensor real_scalar_like(const Tensor& x) {
  return at::empty({}, x.options().dtype(c10::toRealValueType(x.scalar_type())));
}

bool present(const Maybe& x) { return x && x->defined(); }

// --- reductions -----------------------------------------------------------------------------------

Tensor variance(const Tensor& self, Dims dim, const std::optional<Scalar>&, bool keepdim) {
  return at::sum(self, dim, keepdim, c10::toRealValueType(self.scalar_type()));
}

Pair variance_and_mean(const Tensor& self, Dims dim, const std::optional<Scalar>& correction,
                       bool keepdim) {
  return {variance(self, dim, correction, keepdim), at::sum(self, dim, keepdim)};
}

Tensor nansum(const Tensor& self, Dims dim, bool keepdim, std::optional<ScalarType> dtype) {
  return at::sum(self, dim, keepdim, dtype);
}

Tensor product(const Tensor& self, std::optional<ScalarType> dtype) { return at::sum(self, dtype); }

Tensor count_nonzero(const Tensor& self, IntArrayRef dim) {
  return at::sum(self, dim, false, at::kLong);
}

Tensor scalar_like(const Tensor& self) { return at::empty({}, self.options()); }
Tensor trace(const Tensor& self) { return at::sum(self); }
Tensor dot(const Tensor& self, const Tensor&) { return at::empty({}, self.options()); }

Pair one_of_each(const Tensor& self, std::int64_t dim, bool keepdim) {
  const Tensor values = at::sum(self, {dim}, keepdim, self.scalar_type());
  return {values, at::empty_like(values, values.options().dtype(at::kLong))};
}

Pair one_of_kth(const Tensor& self, SymInt, std::int64_t dim, bool keepdim) {
  return one_of_each(self, dim, keepdim);
}

Pair running(const Tensor& self, std::int64_t) {
  return {contiguous_like(self), at::empty_like(self, self.options().dtype(at::kLong))};
}

// --- elementwise ----------------------------------------------------------------------------------

Tensor angle(const Tensor& self) {
  const auto type = self.scalar_type();
  return at::empty_like(
      self, self.options().dtype(at::isIntegralType(type, true) ? at::kFloat
                                                                : c10::toRealValueType(type)));
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  const auto type = at::result_type(self, other);
  return at::empty(at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes())),
                   self.options().dtype(type));
}

Tensor reversed_subtraction(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::sub(other, self, alpha);
}

Tensor floor_divide(const Tensor& self, const Tensor& other) {
  return at::div(self, other, "floor");
}

Tensor scalar_remainder(const Scalar& self, const Tensor& other) {
  return at::empty_like(other, other.options().dtype(at::result_type(self, other)));
}

Pair frexp(const Tensor& self) {
  return {at::empty_like(self), at::empty_like(self, self.options().dtype(at::kInt))};
}

Tensor bucketize(const Tensor& self, const Tensor&, bool out_int32, bool) {
  return at::empty_like(self, self.options().dtype(out_int32 ? at::kInt : at::kLong));
}

// --- norms ----------------------------------------------------------------------------------------

// Statistics of 16-bit values are kept in the weights' 32 bits where these have them.
at::TensorOptions statistics(const Tensor& x, const Maybe& weight) {
  return present(weight) && weight->scalar_type() != x.scalar_type() ? x.options().dtype(at::kFloat)
                                                                     : x.options();
}

Triple layer_norm(const Tensor& input, SymIntArrayRef normalized, const Maybe& weight, const Maybe&,
                  double) {
  auto sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(normalized.size()), sizes.end(), 1);
  const auto options = statistics(input, weight);
  return {contiguous_like(input), at::empty(sizes, options), at::empty(sizes, options)};
}

Triple layer_norm_backward(const Tensor&, const Tensor& input, SymIntArrayRef, const Tensor&,
                           const Tensor&, const Maybe& weight, const Maybe& bias,
                           std::array<bool, 3> mask) {
  return {mask[0] ? contiguous_like(input) : Tensor(),
          mask[1] && present(weight) ? contiguous_like(*weight) : Tensor(),
          mask[2] && present(bias) ? contiguous_like(*bias) : Tensor()};
}

Triple group_norm(const Tensor& input, const Maybe& weight, const Maybe&, SymInt n, SymInt, SymInt,
                  std::int64_t group, double) {
  const auto options = statistics(input, weight);
  return {at::empty_like(input), at::empty({n.expect_int(), group}, options),
          at::empty({n.expect_int(), group}, options)};
}

Triple group_norm_backward(const Tensor&, const Tensor& input, const Tensor&, const Tensor&,
                           const Maybe& weight, SymInt, SymInt channels, SymInt, std::int64_t,
                           std::array<bool, 3> mask) {
  const auto& options = present(weight) ? weight->options() : input.options();
  const auto vector = [&](bool wanted) {
    return wanted ? at::empty({channels.expect_int()}, options) : Tensor();
  };
  return {mask[0] ? at::empty_like(input) : Tensor(), vector(mask[1]), vector(mask[2])};
}

Triple batch_norm(const Tensor& input, const Maybe& weight, const Maybe&, const Maybe&,
                  const Maybe&, bool training, double, double) {
  const auto options = statistics(input, weight);
  const std::int64_t saved = training ? input.size(1) : 0;
  return {at::empty_like(input), at::empty({saved}, options), at::empty({saved}, options)};
}

Triple batch_norm_legit(const Tensor& input, const Maybe& weight, const Maybe& bias, Tensor& mean,
                        Tensor& variance, bool training, double momentum, double eps) {
  return batch_norm(input, weight, bias, mean, variance, training, momentum, eps);
}

Triple batch_norm_backward(const Tensor&, const Tensor& input, const Maybe& weight, const Maybe&,
                           const Maybe&, const Maybe&, const Maybe&, bool, double,
                           std::array<bool, 3> mask) {
  const auto& options = present(weight) ? weight->options() : input.options();
  const auto vector = [&](bool wanted) {
    return wanted ? at::empty({input.size(1)}, options) : Tensor();
  };
  return {mask[0] ? at::empty_like(input) : Tensor(), vector(mask[1]), vector(mask[2])};
}

// --- windows --------------------------------------------------------------------------------------

std::int64_t at_dim(SymIntArrayRef values, std::size_t dim) {
  return values[values.size() == 1 ? 0 : dim].expect_int();
}

Tensor convolution(const Tensor& input, const Tensor& weight, const Maybe&, SymIntArrayRef stride,
                   SymIntArrayRef padding, SymIntArrayRef dilation, bool transposed,
                   SymIntArrayRef output_padding, SymInt groups) {
  std::vector<std::int64_t> sizes{
      input.size(0), transposed ? weight.size(1) * groups.expect_int() : weight.size(0)};
  for (std::int64_t d = 2; d < input.dim(); ++d) {
    const auto k = static_cast<std::size_t>(d - 2);
    const std::int64_t window = at_dim(dilation, k) * (weight.size(d) - 1);
    const std::int64_t step = at_dim(stride, k), pad = at_dim(padding, k);
    sizes.push_back(transposed ? (input.size(d) - 1) * step - 2 * pad + window +
                                     at_dim(output_padding, k) + 1
                               : (input.size(d) + 2 * pad - window - 1) / step + 1);
  }
  const auto format = input.suggest_memory_format();
  return at::empty(sizes, input.options().memory_format(format));
}

Triple convolution_backward(const Tensor& gradient, const Tensor& input, const Tensor& weight,
                            at::OptionalSymIntArrayRef, SymIntArrayRef, SymIntArrayRef,
                            SymIntArrayRef, bool, SymIntArrayRef, SymInt,
                            std::array<bool, 3> mask) {
  return {mask[0] ? at::empty_like(input) : Tensor(), mask[1] ? at::empty_like(weight) : Tensor(),
          mask[2] ? at::empty({gradient.size(1)}, gradient.options()) : Tensor()};
}

Tensor adaptive_pool(const Tensor& self, SymIntArrayRef output_size) {
  auto sizes = self.sizes().vec();
  const std::size_t first = sizes.size() - output_size.size();
  for (std::size_t k = 0; k < output_size.size(); ++k)
    sizes[first + k] = output_size[k].expect_int();
  return at::empty(sizes, self.options().memory_format(self.suggest_memory_format()));
}

std::int64_t pooled(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
                    std::int64_t dilation, bool ceil_mode) {
  const std::int64_t reach = size + 2 * pad - dilation * (kernel - 1) - 1;
  std::int64_t count = (reach + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (count - 1) * stride >= size + pad) --count;
  return count;
}

Pair max_pool3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                IntArrayRef dilation, bool ceil_mode) {
  const auto value = [](IntArrayRef values, std::size_t k) {
    return values[values.size() == 1 ? 0 : k];
  };
  auto sizes = self.sizes().vec();
  for (std::size_t k = 0; k < 3; ++k) {
    std::int64_t& size = sizes[sizes.size() - 3 + k];
    size = pooled(size, value(kernel, k), value(stride.empty() ? kernel : stride, k),
                  value(padding, k), value(dilation, k), ceil_mode);
  }
  return {at::empty(sizes, self.options()), at::empty(sizes, self.options().dtype(at::kLong))};
}

Tensor reflection_pad2d(const Tensor& self, SymIntArrayRef padding) {
  auto sizes = self.sizes().vec();
  sizes[sizes.size() - 1] += padding[0].expect_int() + padding[1].expect_int();
  sizes[sizes.size() - 2] += padding[2].expect_int() + padding[3].expect_int();
  return at::empty(sizes, self.options());
}

Tensor pad_backward(const Tensor&, const Tensor& self, SymIntArrayRef) {
  return at::empty_like(self);
}

// --- the rest -------------------------------------------------------------------------------------

Triple linear_backward(const Tensor& self, const Tensor& gradient, const Tensor& weight,
                       std::array<bool, 3> mask) {
  return {mask[0] ? at::empty_like(self) : Tensor(), mask[1] ? at::empty_like(weight) : Tensor(),
          mask[2] ? at::empty({weight.size(0)}, gradient.options()) : Tensor()};
}

Tensor embedding_backward(const Tensor& gradient, const Tensor&, SymInt rows, SymInt, bool) {
  return at::empty({rows.expect_int(), gradient.size(-1)}, gradient.options());
}

Tensor index_select(const Tensor& self, std::int64_t dim, const Tensor& index) {
  auto sizes = self.sizes().vec();
  if (!sizes.empty())
    sizes[static_cast<std::size_t>(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return at::empty(sizes, self.options());
}

// Batch, sequence, head, width in memory, as the kernel writes it.
Tensor by_sequence(const Tensor& heads) {
  return contiguous_like(heads.transpose(1, 2)).transpose(1, 2);
}

Pair attention(const Tensor& query, const Tensor&, const Tensor& value, double, bool, const Maybe&,
               std::optional<double>) {
  const Tensor output =
      at::empty({query.size(0), query.size(2), query.size(1), value.size(3)}, query.options());
  const auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor statistic =
      at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(type));
  return {output.transpose(1, 2), statistic.transpose(1, 2)};
}

Triple attention_backward(const Tensor&, const Tensor& query, const Tensor& key,
                          const Tensor& value, const Tensor&, const Tensor&, double, bool,
                          const Maybe&, std::optional<double>) {
  return {by_sequence(query), by_sequence(key), by_sequence(value)};
}

enum Reduce : std::int64_t { kNone = 0 };

Tensor loss(const Tensor& self, const Tensor& target, std::int64_t reduction) {
  const auto options = self.options().dtype(at::result_type(self, target));
  if (reduction != kNone) return at::empty({}, options);
  return at::empty(at::infer_size(self.sizes(), target.sizes()), options);
}

Tensor huber(const Tensor& self, const Tensor& target, std::int64_t reduction, double) {
  return loss(self, target, reduction);
}

Tensor cross_entropy_of_bits(const Tensor& self, const Tensor&, const Maybe&,
                             std::int64_t reduction) {
  return reduction == kNone ? at::empty_like(self) : at::empty({}, self.options());
}

Tensor mse_backward(const Tensor&, const Tensor& self, const Tensor& target, std::int64_t) {
  return loss(self, target, kNone);
}

Pair nll2d(const Tensor& self, const Tensor& target, const Maybe&, std::int64_t reduction, SymInt) {
  const Tensor total = at::empty({}, self.options());
  return {reduction == kNone ? at::empty(target.sizes(), self.options())
                             : at::empty({}, self.options()),
          total};
}

Tensor nll2d_backward(const Tensor&, const Tensor& self, const Tensor&, const Maybe&, std::int64_t,
                      SymInt, const Tensor&) {
  return contiguous_like(self);
}

template <class F>
void add(torch::Library& library, const char* name, F function) {
  const std::string full = name;
  const auto dot = full.find('.');
  if (lacks_shape_function("aten::" + full.substr(0, dot),
                           dot == std::string::npos ? "" : full.substr(dot + 1)))
    library.impl(name, function);
}

}  // namespace

void add_shapes_by_hand(torch::Library& library) {
  for (const char* op : {"var.correction", "std.correction"}) add(library, op, variance);
  for (const char* op : {"var_mean.correction", "std_mean.correction"})
    add(library, op, variance_and_mean);
  for (const char* op : {"max", "min", "median", "nanmedian"}) add(library, op, scalar_like);
  for (const char* op : {"dot", "vdot"}) add(library, op, dot);
  for (const char* op : {"mode", "median.dim", "nanmedian.dim"}) add(library, op, one_of_each);
  for (const char* op : {"cummax", "cummin"}) add(library, op, running);
  add(library, "kthvalue", one_of_kth);
  add(library, "nansum", nansum);
  add(library, "prod", product);
  add(library, "count_nonzero.dim_IntList", count_nonzero);
  add(library, "trace", trace);

  add(library, "angle", angle);
  add(library, "where.self", where);
  add(library, "rsub.Tensor", reversed_subtraction);
  add(library, "floor_divide", floor_divide);
  add(library, "remainder.Scalar_Tensor", scalar_remainder);
  add(library, "frexp.Tensor", frexp);
  add(library, "bucketize.Tensor", bucketize);

  add(library, "native_layer_norm", layer_norm);
  add(library, "native_layer_norm_backward", layer_norm_backward);
  add(library, "native_group_norm", group_norm);
  add(library, "native_group_norm_backward", group_norm_backward);
  add(library, "native_batch_norm", batch_norm);
  add(library, "_native_batch_norm_legit", batch_norm_legit);
  add(library, "native_batch_norm_backward", batch_norm_backward);

  add(library, "convolution", convolution);
  add(library, "convolution_backward", convolution_backward);
  for (const char* op : {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d"})
    add(library, op, adaptive_pool);
  add(library, "max_pool3d_with_indices", max_pool3d);
  add(library, "reflection_pad2d", reflection_pad2d);
  for (const char* op : {"reflection_pad2d_backward", "replication_pad2d_backward"})
    add(library, op, pad_backward);

  add(library, "linear_backward", linear_backward);
  add(library, "embedding_dense_backward", embedding_backward);
  add(library, "index_select", index_select);
  add(library, "_scaled_dot_product_flash_attention_for_cpu", attention);
  add(library, "_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward);
  add(library, "huber_loss", huber);
  add(library, "binary_cross_entropy", cross_entropy_of_bits);
  add(library, "mse_loss_backward", mse_backward);
  add(library, "nll_loss2d_forward", nll2d);
  add(library, "nll_loss2d_backward", nll2d_backward);
}

}  // namespace meshtorch
