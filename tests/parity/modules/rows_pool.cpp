// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

Row by_channel(Row row) { return std::move(row).sharded("channels", {}, {1}); }

// Where a maximum of windows of two lies: what MaxUnpool is given.
template <class Pool>
Row unpool_by_channel(Row row, Pool pool, Sizes shape) {
  row.inputs.push_back(values([=](std::int64_t batch) mutable {
    shape[0] = batch;
    return std::get<1>(pool(torch::randn(shape, torch::kDouble)));
  }));
  return std::move(row).sharded("channels", {}, {1, 1});
}

const auto forward_unpool = [](auto& module, const Tensors& x) {
  return module->forward(x[0], x[1]);
};
const auto with_indices = [](auto& module, const Tensors& x) {
  return module->forward_with_indices(x[0]);
};

}  // namespace

Rows pools() {
  const auto x1 = distinct({B, 4, 8}), x2 = distinct({B, 4, 7, 6}), x3 = distinct({B, 4, 6, 4, 5});
  const auto p1 = unit({B, 4, 8}), p2 = unit({B, 4, 7, 6}), p3 = unit({B, 4, 6, 4, 5});
  Rows rows{
      by_channel(row([] { return nn::AvgPool1d(2); }, x1)),
      by_channel(
          row([] { return nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1)); }, x2)),
      by_channel(row([] { return nn::AvgPool3d(2); }, x3)),
      by_channel(row([] { return nn::MaxPool1d(2); }, x1)),
      by_channel(
          row([] { return nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)); }, x2)),
      by_channel(row([] { return nn::MaxPool3d(2); }, x3)),
      by_channel(row_of([] { return nn::MaxPool1d(2); }, with_indices, {x1}).with("with indices")),
      by_channel(row_of([] { return nn::MaxPool2d(2); }, with_indices, {x2}).with("with indices")),
      by_channel(row_of([] { return nn::MaxPool3d(2); }, with_indices, {x3}).with("with indices")),
      by_channel(row([] { return nn::AdaptiveAvgPool1d(3); }, x1)),
      by_channel(row([] { return nn::AdaptiveAvgPool2d(3); }, x2)),
      by_channel(row([] { return nn::AdaptiveAvgPool2d(1); }, x2).with("global")),
      by_channel(row([] { return nn::AdaptiveAvgPool3d(2); }, x3)),
      by_channel(row([] { return nn::AdaptiveMaxPool1d(3); }, x1)),
      by_channel(row([] { return nn::AdaptiveMaxPool2d(3); }, x2)),
      by_channel(row([] { return nn::AdaptiveMaxPool3d(2); }, x3)),
      by_channel(
          row_of([] { return nn::AdaptiveMaxPool3d(2); }, with_indices, {x3}).with("with indices")),
      by_channel(row([] { return nn::LPPool1d(2, 2); }, p1)),
      by_channel(row([] { return nn::LPPool2d(3, 2); }, p2)),
      by_channel(row([] { return nn::LPPool3d(2, 2); }, p3)),
      // Their windows come from torch::rand, plain on every mesh: equal to plain libtorch.
      by_channel(row(
          [] { return nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)); },
          x2)),
      by_channel(row(
          [] { return nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(2)); },
          x3)),
  };
  const auto pool1 = [](const at::Tensor& x) { return at::max_pool1d_with_indices(x, 2); };
  const auto pool2 = [](const at::Tensor& x) { return at::max_pool2d_with_indices(x, 2); };
  const auto pool3 = [](const at::Tensor& x) { return at::max_pool3d_with_indices(x, 2); };
  rows.push_back(unpool_by_channel(
      row_of([] { return nn::MaxUnpool1d(2); }, forward_unpool, {real({B, 4, 4})}), pool1,
      {0, 4, 8}));
  rows.push_back(unpool_by_channel(
      row_of([] { return nn::MaxUnpool2d(2); }, forward_unpool, {real({B, 4, 3, 2})}), pool2,
      {0, 4, 6, 4}));
  rows.push_back(unpool_by_channel(
      row_of([] { return nn::MaxUnpool3d(2); }, forward_unpool, {real({B, 4, 2, 2, 3})}), pool3,
      {0, 4, 4, 4, 6}));
  return rows;
}

}  // namespace meshtorch::modules
