// SPDX-License-Identifier: Apache-2.0
//
// Embedding tables whose rows are sharded: each device looks up the rows it holds and the result is
// unreduced. The backward keeps the table's layout: libtorch's own formula forgets it, since the
// gradient of a lookup is made from indices alone.
#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

struct Lookup {
  at::Tensor index;  // local rows, `missing` where the row is elsewhere
  at::Tensor mine;   // bool
};

Lookup localize(const at::Tensor& indices, Interval rows, std::int64_t missing) {
  Lookup lookup;
  lookup.mine = indices.ge(rows.begin).logical_and_(indices.lt(rows.end));
  lookup.index = at::where(lookup.mine, indices.sub(rows.begin), missing);
  return lookup;
}

// A row that is nobody's would silently be zeros.
void check_indices(const at::Tensor& indices, std::int64_t rows) {
  if (indices.numel() == 0 || indices.is_meta()) return;
  const auto least = indices.min().item<std::int64_t>(), most = indices.max().item<std::int64_t>();
  if (least >= 0 && most < rows) return;
  fail({.op = "aten::embedding",
        .where = "indices",
        .what = text("has row ", least < 0 ? least : most, ", expected 0 to ", rows - 1),
        .remedy = "correct it, or make the table larger"});
}

KernelResult embedding(KernelCall& call) {
  const Shards& table = call.locals[0];
  const AxisList axes = call.placement.operands[0].dims[0];
  KernelResult results(1);
  for (std::size_t d = 0; d < call.devices(); ++d) {
    const at::Tensor& indices = call.locals[1][d];
    if (axes.empty()) {
      results[0].push_back(at::embedding(table[d], indices));
      continue;
    }
    const Interval rows = shard_interval(call.mesh, call.shapes[0][0], axes, call.positions[d]);
    auto sizes = indices.sizes().vec();
    sizes.push_back(table[d].size(1));
    if (rows.size() == 0) {
      results[0].push_back(at::zeros(sizes, table[d].options()));
      continue;
    }
    check_indices(indices, call.shapes[0][0]);
    const Lookup lookup = localize(indices, rows, 0);
    results[0].push_back(at::embedding(table[d], lookup.index)
                             .masked_fill_(lookup.mine.logical_not().unsqueeze(-1), 0));
  }
  return results;
}

// The gradient of a table of `rows` rows cut over `axes`, from a gradient and indices laid out alike.
at::Tensor sharded_gradient(const at::Tensor& gradient, const at::Tensor& indices,
                            std::int64_t rows, AxisList axes, std::int64_t padding, bool scale) {
  at::AutoDispatchBelowADInplaceOrView below;
  ShardedView& from = *sharded_view(gradient);
  const Mesh& mesh = from.mesh();
  Layout wanted = from.layout();
  wanted.unreduced = wanted.unreduced - axes.set();
  wanted.dims.back() = wanted.dims.back().without(axes.set());
  const std::string op = "aten::embedding_dense_backward";
  const Shards locals =
      redistribute(from, gradient.sizes().vec(), wanted, {op, Origin::algorithm, "grad_output"});
  const AxisList width = wanted.dims.back();
  Layout batch{wanted.dims, {}};
  batch.dims.pop_back();
  ShardedView* index_view = sharded_view(indices);
  const Shards index = index_view ? redistribute(*index_view, indices.sizes().vec(), batch,
                                                 {op, Origin::implied, "indices"})
                                  : place(indices, mesh, batch, from.meta());
  Layout result{{axes.without(batch.sharded()), width}, wanted.unreduced | batch.sharded()};
  const auto& positions = Runtime::current().communicator().addressable(mesh);
  Shards results;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    const Interval mine = shard_interval(mesh, rows, result.dims[0], positions[d]);
    // Rows elsewhere, and the padding row, go to one row more, which the kernel skips as padding.
    at::Tensor local = localize(index[d], mine, mine.size()).index;
    if (padding >= mine.begin && padding < mine.end) {
      local = at::where(index[d].eq(padding), mine.size(), local);
    }
    results.push_back(
        at::embedding_dense_backward(locals[d], local, mine.size() + 1, mine.size(), scale)
            .narrow(0, 0, mine.size())
            .contiguous());
  }
  if (is_meta(results)) share_equal(results);
  return wrap(mesh, {rows, gradient.size(-1)}, result, std::move(results));
}

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& indices, std::int64_t padding, bool scale,
                            bool sparse, bool training) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({indices});
    context->saved_data["rows"] = weight.size(0);
    context->saved_data["padding"] = padding;
    context->saved_data["scale"] = scale;
    const ShardedView* view = sharded_view(weight);
    std::vector<std::int64_t> axes;
    for (int i = 0; view != nullptr && i < view->dims()[0].size(); ++i)
      axes.push_back(view->dims()[0][i]);
    context->saved_data["axes"] = axes;
    const at::AutoGradMode mode(training);  // as in linear.cpp; an evaluation stays one
    return at::embedding(weight, indices, padding, scale, sparse);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor indices = context->get_saved_variables()[0];
    const auto& data = context->saved_data;
    const std::int64_t rows = data.at("rows").toInt(), padding = data.at("padding").toInt();
    const bool scale = data.at("scale").toBool();
    AxisList axes;
    for (const std::int64_t axis : data.at("axes").toIntVector())
      axes.push_back(static_cast<int>(axis));
    const at::Tensor& gradient = gradients[0];
    // Counting how often a row occurs, and a gradient of the gradient, are libtorch's own.
    const bool plain =
        !is_sharded(gradient) || scale || (at::GradMode::is_enabled() && gradient.requires_grad());
    at::Tensor result = plain
                            ? at::embedding_dense_backward(gradient, indices, rows, padding, scale)
                            : sharded_gradient(gradient, indices, rows, axes, padding, scale);
    return {result, {}, {}, {}, {}, {}};
  }
};

at::Tensor differentiable_embedding(const at::Tensor& weight, const at::Tensor& indices,
                                    c10::SymInt padding, bool scale, bool sparse) {
  const at::Tensor rows = Embedding::apply(weight, constrained_input("embedding", weight, indices),
                                           padding.expect_int(), scale, sparse,
                                           at::GradMode::is_enabled());
  return constrained_output("embedding", weight, rows);
}

}  // namespace

void install_embedding(Dispatch& dispatch) {
  dispatch.add_kernel("aten::embedding", embedding);
  dispatch.autograd_library().impl("embedding", TORCH_FN(differentiable_embedding));
}

}  // namespace meshtorch
