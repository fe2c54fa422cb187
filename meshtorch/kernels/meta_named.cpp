// SPDX-License-Identifier: Apache-2.0
//
// Shape functions in terms of an op's arguments by name: results shaped as an argument is, or of sizes that
// arguments spell.
#include <ATen/ATen.h>

#include <functional>
#include <map>

#include <meshtorch/base/error.h>
#include <meshtorch/kernels/meta_shapes.h>
#include <meshtorch/tensor/op_info.h>

namespace meshtorch {
namespace {

using at::Tensor;
using Sizes = std::vector<std::int64_t>;

// The arguments of one call.
class Named {
 public:
  Named(const OpInfo& info, const c10::IValue* arguments) : info_(info), arguments_(arguments) {}

  const c10::IValue& value(const char* name) const {
    const int position = info_.argument(name);
    TORCH_CHECK_NOT_IMPLEMENTED(position >= 0, info_.name, " has no argument ", name);
    return arguments_[position];
  }
  Tensor tensor(const char* name) const { return value(name).toTensor(); }
  Sizes sizes(const char* name) const { return tensor(name).sizes().vec(); }
  std::int64_t integer(const char* name) const { return value(name).toInt(); }
  Sizes integers(const char* name) const { return value(name).toIntVector(); }
  // Value `k` of a list that may be one value for all.
  std::int64_t integer(const char* name, std::size_t k) const {
    const Sizes list = integers(name);
    return list[list.size() == 1 ? 0 : k];
  }
  bool has(const char* name) const { return info_.argument(name) >= 0; }

 private:
  const OpInfo& info_;
  const c10::IValue* arguments_;
};

using Results = std::vector<Tensor>;
using ShapeFunction = std::function<Results(const Named&)>;

Tensor sized(const Tensor& model, const Sizes& sizes) { return at::empty(sizes, model.options()); }

Tensor complex_like(const Tensor& model, const Sizes& sizes) {
  return at::empty(sizes, model.options().dtype(c10::toComplexType(model.scalar_type())));
}

// One result, shaped as that argument.
ShapeFunction like(const char* name) {
  return [name](const Named& call) { return Results{at::empty_like(call.tensor(name))}; };
}

// The windows of a kernel over the last dims: convolutions that are called by their method.
Results direct_convolution(const Named& call) {
  const Sizes weight = call.sizes("weight");
  const std::size_t space = call.integers("kernel_size").size();
  const bool transposed = call.has("output_padding");
  Sizes sizes = call.sizes("self");
  const std::size_t first = sizes.size() - space;
  sizes[first - 1] = weight[transposed ? 1 : 0];
  for (std::size_t k = 0; k < space; ++k) {
    const std::int64_t dilation = call.has("dilation") ? call.integer("dilation", k) : 1;
    const std::int64_t window = dilation * (call.integer("kernel_size", k) - 1);
    const std::int64_t stride = call.integer("stride", k), pad = call.integer("padding", k);
    std::int64_t& size = sizes[first + k];
    size = transposed
               ? (size - 1) * stride - 2 * pad + window + call.integer("output_padding", k) + 1
               : (size + 2 * pad - window - 1) / stride + 1;
  }
  return {sized(call.tensor("self"), sizes)};
}

Results convolution(const Named& call) {
  return {at::convolution(
      call.tensor("input"), call.tensor("weight"), call.value("bias").toOptional<Tensor>(),
      call.integers("stride"), call.integers("padding"), call.integers("dilation"),
      call.value("transposed").toBool(), call.integers("output_padding"), call.integer("groups"))};
}

Results columns_of_image(const Named& call) {
  Sizes sizes = call.sizes("self");
  const std::size_t first = sizes.size() - 2;
  std::int64_t blocks = 1, window = 1;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::int64_t kernel = call.integer("kernel_size", k);
    const std::int64_t reach = call.integer("dilation", k) * (kernel - 1) + 1;
    blocks *=
        (sizes[first + k] + 2 * call.integer("padding", k) - reach) / call.integer("stride", k) + 1;
    window *= kernel;
  }
  sizes.resize(first + 1);
  sizes[first - 1] *= window;
  sizes[first] = blocks;
  return {sized(call.tensor("self"), sizes)};
}

// The reduced dim has as many elements as there are segments; the dims before it are the lengths'.
Results segments(const Named& call) {
  const Sizes data = call.sizes("data");
  const bool offsets = call.value("lengths").isNone();
  Sizes sizes = call.sizes(offsets ? "offsets" : "lengths");
  if (offsets) --sizes.back();
  sizes.insert(sizes.end(), data.begin() + static_cast<std::ptrdiff_t>(sizes.size()), data.end());
  return {sized(call.tensor("data"), sizes)};
}

Results unpooled(const Named& call) {
  Sizes sizes = call.sizes("self");
  const Sizes output = call.integers("output_size");
  std::copy(output.begin(), output.end(), sizes.end() - static_cast<std::ptrdiff_t>(output.size()));
  return {sized(call.tensor("self"), sizes)};
}

std::size_t last_dim(const Named& call) {
  const std::int64_t dim = call.integers("dim").back();
  const auto rank = static_cast<std::int64_t>(call.sizes("self").size());
  return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
}

Results real_to_complex(const Named& call) {
  Sizes sizes = call.sizes("self");
  std::int64_t& size = sizes[last_dim(call)];
  if (call.value("onesided").toBool()) size = size / 2 + 1;
  return {complex_like(call.tensor("self"), sizes)};
}

Results complex_to_real(const Named& call) {
  Sizes sizes = call.sizes("self");
  sizes[last_dim(call)] = call.integer("last_dim_size");
  const Tensor self = call.tensor("self");
  return {at::empty(sizes, self.options().dtype(c10::toRealValueType(self.scalar_type())))};
}

Results counted(const Named& call, const Sizes& bins) { return {sized(call.tensor("self"), bins)}; }

Results counted_between(const Named& call) {
  Sizes bins;
  for (const Tensor& edges : call.value("bins").toTensorVector()) bins.push_back(edges.numel() - 1);
  return counted(call, bins);
}

Sizes but_last(Sizes sizes) {
  sizes.pop_back();
  return sizes;
}

Results factored(const Named& call) {
  Sizes tau = but_last(call.sizes("self"));
  tau.back() = std::min(tau.back(), call.sizes("self").back());
  return {at::empty_like(call.tensor("self")), sized(call.tensor("self"), tau)};
}

// Evenly spaced numbers between tensors.
Results steps(const Named& call) {
  const c10::IValue& type = call.value("dtype");
  const auto options = at::TensorOptions(at::kMeta).dtype(
      type.isNone() ? c10::get_default_dtype_as_scalartype() : type.toScalarType());
  return {at::empty({call.integer("steps")}, options)};
}

Results mkldnn_convolution(const Named& call) {
  return {at::convolution(call.tensor("self"), call.tensor("weight"),
                          call.value("bias").toOptional<Tensor>(), call.integers("stride"),
                          call.integers("padding"), call.integers("dilation"), false, {0},
                          call.integer("groups"))};
}

Results heads_of_qkv(const Named& call) {
  const Tensor qkv = call.tensor("qkv");
  const std::int64_t heads = call.integer("num_heads");
  const Sizes sizes{qkv.size(0), heads, qkv.size(1), qkv.size(2) / 3 / heads};
  return {sized(qkv, sizes), sized(qkv, sizes), sized(qkv, sizes)};
}

// Output, saved mean, saved inverse deviation, reserve.
Results batch_norm(const Named& call, bool training) {
  const Tensor input = call.tensor("input");
  const Sizes saved{training ? input.size(1) : 0};
  return {at::empty_like(input), sized(input, saved), sized(input, saved),
          at::empty({0}, input.options().dtype(at::kByte))};
}

Results batch_norm_functional(const Named& call) {
  Results results = batch_norm(call, true);
  for (const char* name : {"running_mean", "running_var"})
    results.push_back(at::empty_like(call.tensor(name)));
  return results;
}

Results places(const Named& call) {
  const Tensor self = call.tensor("self");
  const bool narrow = call.value("out_int32").toBool();
  return {at::empty_like(self, self.options().dtype(narrow ? at::kInt : at::kLong))};
}

// Of a number.
Results place(const Named& call) {
  const Tensor sequence = call.tensor(call.has("boundaries") ? "boundaries" : "sorted_sequence");
  const bool narrow = call.value("out_int32").toBool();
  return {at::empty({}, sequence.options().dtype(narrow ? at::kInt : at::kLong))};
}

Results pair_distances(const Named& call) {
  const Tensor self = call.tensor("self");
  return {sized(self, {self.size(0) * (self.size(0) - 1) / 2})};
}

Results multilabel(const Named& call) {
  const Tensor self = call.tensor("self");
  const bool rows = call.integer("reduction") == at::Reduction::None && self.dim() == 2;
  return {sized(self, rows ? Sizes{self.size(0)} : Sizes{}), sized(self, call.sizes("target"))};
}

const std::map<std::string, ShapeFunction>& shape_functions() {
  static const std::map<std::string, ShapeFunction> functions{
      {"_fft_c2c", like("self")},
      {"_fft_r2c", real_to_complex},
      {"_fft_c2r", complex_to_real},
      {"linalg_matrix_exp", like("self")},
      {"linalg_matrix_sqrth", like("self")},
      {"linalg_householder_product", like("input")},
      {"linalg_solve_triangular", like("B")},
      {"cholesky_solve", like("self")},
      {"_cholesky_solve_helper", like("self")},
      {"cholesky_inverse", like("self")},
      {"ormqr", like("input3")},
      {"geqrf", factored},
      {"linalg_eig",
       [](const Named& call) {
         const Tensor self = call.tensor("self");
         return Results{complex_like(self, but_last(call.sizes("self"))),
                        complex_like(self, call.sizes("self"))};
       }},
      {"_linalg_eigvals",
       [](const Named& call) {
         return Results{complex_like(call.tensor("self"), but_last(call.sizes("self")))};
       }},
      {"channel_shuffle", like("self")},
      {"_adaptive_avg_pool2d_backward", like("self")},
      {"_adaptive_avg_pool3d_backward", like("self")},
      {"max_pool3d_with_indices_backward", like("self")},
      {"replication_pad3d_backward", like("self")},
      {"fractional_max_pool3d_backward", like("self")},
      {"max_unpool2d", unpooled},
      {"max_unpool3d", unpooled},
      {"im2col", columns_of_image},
      {"_convolution", convolution},
      {"_slow_conv2d_forward", direct_convolution},
      {"slow_conv3d_forward", direct_convolution},
      {"slow_conv_dilated2d", direct_convolution},
      {"slow_conv_dilated3d", direct_convolution},
      {"slow_conv_transpose3d", direct_convolution},
      {"mkldnn_convolution", mkldnn_convolution},
      {"_transform_bias_rescale_qkv", heads_of_qkv},
      {"_weight_norm_interface",
       [](const Named& call) {
         return Results{at::empty_like(call.tensor("v")), at::empty_like(call.tensor("g"))};
       }},
      {"_weight_norm_interface_backward",
       [](const Named& call) {
         return Results{at::empty_like(call.tensor("saved_v")),
                        at::empty_like(call.tensor("saved_g"))};
       }},
      {"_sample_dirichlet", like("self")},
      {"linspace.Tensor_Tensor", steps},
      {"linspace.Tensor_Scalar", steps},
      {"linspace.Scalar_Tensor", steps},
      {"logspace.Tensor_Tensor", steps},
      {"logspace.Tensor_Scalar", steps},
      {"logspace.Scalar_Tensor", steps},
      {"_batch_norm_with_update", [](const Named& call) { return batch_norm(call, true); }},
      {"_batch_norm_no_update", [](const Named& call) { return batch_norm(call, false); }},
      {"_batch_norm_with_update_functional", batch_norm_functional},
      {"searchsorted.Tensor", places},
      {"searchsorted.Scalar", place},
      {"bucketize.Scalar", place},
      {"_pdist_forward", pair_distances},
      {"_pdist_backward", like("self")},
      {"histc", [](const Named& call) { return counted(call, {call.integer("bins")}); }},
      {"_histogramdd_bin_edges",
       [](const Named& call) {
         Results edges;
         for (const std::int64_t bins : call.integers("bins"))
           edges.push_back(sized(call.tensor("self"), {bins + 1}));
         return edges;
       }},
      {"_histogramdd_from_bin_cts",
       [](const Named& call) { return counted(call, call.integers("bins")); }},
      {"_histogramdd_from_bin_tensors", counted_between},
      {"histogram.bin_ct",
       [](const Named& call) {
         const std::int64_t bins = call.integer("bins");
         return Results{sized(call.tensor("self"), {bins}), sized(call.tensor("self"), {bins + 1})};
       }},
      {"histogram.bins_tensor",
       [](const Named& call) {
         const Tensor bins = call.tensor("bins");
         return Results{sized(call.tensor("self"), {bins.numel() - 1}), at::empty_like(bins)};
       }},
      {"nonzero_static",
       [](const Named& call) {
         const Tensor self = call.tensor("self");
         return Results{
             at::empty({call.integer("size"), self.dim()}, self.options().dtype(at::kLong))};
       }},
      {"masked_scatter_backward",
       [](const Named& call) {
         return Results{sized(call.tensor("grad_output"), call.integers("sizes"))};
       }},
      {"multilabel_margin_loss_forward", multilabel},
      {"randint_like.Tensor", like("self")},
      {"randint_like.Tensor_generator", like("self")},
      {"segment_reduce", segments},
      {"_segment_reduce_backward", like("data")},
      {"_ctc_loss_backward", like("log_probs")},
      {"_ctc_loss_backward.Tensor", like("log_probs")},
  };
  return functions;
}

class ByName final : public c10::OperatorKernel {
 public:
  explicit ByName(ShapeFunction function) : function_(std::move(function)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (!info_) info_ = std::make_unique<OpInfo>(analyse(op));
    const std::size_t count = info_->arguments.size();
    Results results = function_(Named(*info_, stack->data() + stack->size() - count));
    stack->erase(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    const auto& returns = op.schema().returns();
    if (returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType) {
      stack->emplace_back(std::move(results));
      return;
    }
    for (Tensor& result : results) stack->emplace_back(std::move(result));
  }

 private:
  ShapeFunction function_;
  std::unique_ptr<OpInfo> info_;
};

}  // namespace

void add_shapes_by_name(torch::Library& library) {
  for (const auto& [name, function] : shape_functions()) {
    const auto dot = name.find('.');
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (!lacks_shape_function("aten::" + name.substr(0, dot), overload)) continue;
    library.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ByName>(function)));
  }
}

}  // namespace meshtorch
