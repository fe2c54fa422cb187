// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/cnn.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out) {
  // Without bias: the batch norm behind it has one.
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
}

}  // namespace

CnnImpl::CnnImpl(CnnOptions options) {
  if (options.classes < 1)
    fail({"Cnn", "classes", text(options.classes, " is not a size"), "use at least 1"});
  if (options.channels < 1)
    fail({"Cnn", "channels", text(options.channels, " is not a size"), "use at least 1"});
  if (!(options.dropout >= 0.0 && options.dropout < 1.0))
    fail({"Cnn", "dropout", text(options.dropout, " is out of range"), "use 0 <= dropout < 1"});
  conv1_ = register_module("conv1", conv3x3(1, options.channels));
  norm1_ = register_module("norm1", nn::BatchNorm2d(options.channels));
  conv2_ = register_module("conv2", conv3x3(options.channels, 2 * options.channels));
  norm2_ = register_module("norm2", nn::BatchNorm2d(2 * options.channels));
  dropout_ = register_module("dropout", nn::Dropout(options.dropout));
  head_ = register_module("head", nn::Linear(2 * options.channels * 2 * 2, options.classes));
}

torch::Tensor CnnImpl::forward(torch::Tensor x) {
  if (x.dim() != 4 || x.size(1) != 1 || x.size(2) != 8 || x.size(3) != 8)
    fail({"Cnn", "x", text("shape (", join(x.sizes()), "), expected (N, 1, 8, 8)"),
          "view the images so"});
  x = torch::max_pool2d(torch::relu(norm1_(conv1_(x))), 2);
  x = torch::max_pool2d(torch::relu(norm2_(conv2_(x))), 2);
  return head_(dropout_(x.flatten(1)));
}

PathRules cnn_sharding() { return {{R"(^(conv|norm)[12]\.|^head\.)", P()}}; }

}  // namespace meshtorch
