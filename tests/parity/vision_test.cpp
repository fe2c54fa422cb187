// SPDX-License-Identifier: Apache-2.0
//
// Image programs in the manner of libtorch's public examples: an MNIST network with its data loader,
// dropout and test loop; a residual network with momentum, a schedule and evaluation; a U-Net.
#include "train_compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace F = torch::nn::functional;
using mt::P;
using mt::Place;
using mt::Trained;
using mt::whole;

namespace {

// --- MNIST: two convolutions, dropout, log_softmax and nll_loss

class Digits : public torch::data::Dataset<Digits> {
 public:
  explicit Digits(std::int64_t size)
      : images_(torch::randn({size, 1, 20, 20})),
        targets_(torch::randint(10, {size}, torch::kLong)) {}
  torch::data::Example<> get(std::size_t index) override {
    return {images_[static_cast<std::int64_t>(index)], targets_[static_cast<std::int64_t>(index)]};
  }
  std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(images_.size(0));
  }

 private:
  torch::Tensor images_, targets_;
};

struct NetImpl : nn::Module {
  explicit NetImpl(double dropout)
      : dropout(dropout),
        conv1(nn::Conv2dOptions(1, 6, 5)),
        conv2(nn::Conv2dOptions(6, 8, 5)),
        conv2_drop(dropout),
        fc1(32, 16),
        fc2(16, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop->forward(conv2->forward(x)), 2));
    x = x.view({-1, 32});
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, dropout, is_training());
    x = fc2->forward(x);
    return torch::log_softmax(x, /*dim=*/1);
  }
  double dropout;
  nn::Conv2d conv1, conv2;
  nn::Dropout2d conv2_drop;
  nn::Linear fc1, fc2;
};
TORCH_MODULE(Net);

Trained mnist(const Place& place, std::int64_t batch_size, double dropout) {
  torch::manual_seed(1);
  Net model(dropout);
  place.module(*model, {{"conv1\\.|fc1\\.", P("tp")}, {"(conv2|fc2)\\.weight", P(whole, "tp")}});
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Digits(10 * batch_size)
          .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
          .map(torch::data::transforms::Stack<>()),
      static_cast<std::size_t>(batch_size));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));

  Trained trained;
  model->train();
  for (auto& batch : *loader) {
    auto data = place.put(batch.data), targets = place.put(batch.target);
    optimizer.zero_grad();
    auto output = model->forward(data);
    auto loss = torch::nll_loss(output, targets);
    loss.backward();
    optimizer.step();
    trained.loss(loss);
  }

  torch::NoGradGuard no_grad;
  model->eval();
  double test_loss = 0;
  std::int64_t correct = 0;
  for (const auto& batch : *loader) {
    auto data = place.put(batch.data), targets = place.put(batch.target);
    auto output = model->forward(data);
    test_loss +=
        torch::nll_loss(output, targets, /*weight=*/{}, torch::Reduction::Sum).item<double>();
    correct += output.argmax(1).eq(targets).sum().item<std::int64_t>();
  }
  trained.keep("test loss", torch::tensor(test_loss));
  trained.keep("correct", torch::tensor(correct));
  trained.keep("net", *model);
  return trained;
}

// --- A residual network

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

struct BasicBlockImpl : nn::Module {
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1(conv3x3(in, out, stride)), bn1(out), conv2(conv3x3(out, out)), bn2(out) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    if (stride != 1 || in != out) {
      downsample =
          nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
                         nn::BatchNorm2d(out));
      register_module("downsample", downsample);
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    auto residual = downsample.is_empty() ? x : downsample->forward(x);
    x = bn1(conv1(x)).relu_();
    x = bn2(conv2(x));
    x += residual;
    return x.relu_();
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential downsample{nullptr};
};
TORCH_MODULE(BasicBlock);

struct ResNetImpl : nn::Module {
  ResNetImpl() {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("layer1", layer1);
    register_module("layer2", layer2);
    register_module("fc", fc);
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<nn::Conv2d>()) {
        nn::init::kaiming_normal_(conv->weight, 0.0, torch::kFanOut, torch::kReLU);
      } else if (auto* norm = module->as<nn::BatchNorm2d>()) {
        nn::init::constant_(norm->weight, 1);
        nn::init::constant_(norm->bias, 0);
      }
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(bn1(conv1(x)));
    x = torch::max_pool2d(x, /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
    x = layer2->forward(layer1->forward(x));
    x = torch::adaptive_avg_pool2d(x, {1, 1});
    return fc(x.flatten(1));
  }
  nn::Conv2d conv1{conv3x3(3, 6)};
  nn::BatchNorm2d bn1{6};
  nn::Sequential layer1{BasicBlock(6, 6, 1), BasicBlock(6, 6, 1)};
  nn::Sequential layer2{BasicBlock(6, 8, 2), BasicBlock(8, 8, 1)};
  nn::Linear fc{8, 5};
};
TORCH_MODULE(ResNet);

Trained resnet(const Place& place, std::int64_t batch_size) {
  torch::manual_seed(2);
  ResNet model;
  const auto images = torch::randn({10, batch_size, 3, 12, 12});
  const auto labels = torch::randint(5, {10, batch_size}, torch::kLong);
  // Within a block: the first convolution and its norm by channels, the second sums over them.
  place.module(*model, {{"layer.*\\.(conv1|bn1)\\.(?!num_batches)", P("tp")},
                        {"layer.*\\.conv2\\.weight", P(whole, "tp")},
                        {"fc\\.", P("tp")}});
  torch::optim::SGD optimizer(
      model->parameters(),
      torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-4).nesterov(true));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/4, /*gamma=*/0.1);

  Trained trained;
  for (std::int64_t step = 0; step < 10; ++step) {
    auto x = place.put(images[step]), y = place.put(labels[step]);
    auto loss = F::cross_entropy(model(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    scheduler.step();
    trained.loss(loss);
  }
  model->eval();
  torch::NoGradGuard no_grad;
  auto scores = model(place.put(images[0]));
  auto top = scores.topk(2, /*dim=*/1);
  auto hits = std::get<1>(top).eq(place.put(labels[0]).view({-1, 1}).expand({-1, 2}));
  trained.keep("top-2 accuracy", hits.any(1).to(torch::kDouble).mean());
  trained.keep("scores in eval mode", scores);
  trained.keep("net", *model);
  return trained;
}

// --- A U-Net: one level is brought up by a transposed convolution, one by interpolation

nn::Sequential double_conv(std::int64_t in, std::int64_t out) {
  return nn::Sequential(conv3x3(in, out), nn::BatchNorm2d(out), nn::ReLU(nn::ReLUOptions(true)),
                        conv3x3(out, out), nn::BatchNorm2d(out), nn::ReLU(nn::ReLUOptions(true)));
}

struct UNetImpl : nn::Module {
  UNetImpl() {
    register_module("inc", inc);
    register_module("down1", down1);
    register_module("down2", down2);
    register_module("up1", up1);
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("outc", outc);
  }
  // Pads x to the size of skip where an odd size was halved.
  static torch::Tensor join(const torch::Tensor& skip, torch::Tensor x) {
    const auto dy = skip.size(2) - x.size(2), dx = skip.size(3) - x.size(3);
    x = F::pad(x, F::PadFuncOptions({dx / 2, dx - dx / 2, dy / 2, dy - dy / 2}));
    return torch::cat({skip, x}, /*dim=*/1);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto x1 = inc->forward(x);
    auto x2 = down1->forward(torch::max_pool2d(x1, 2));
    auto x3 = down2->forward(torch::max_pool2d(x2, 2));
    auto y = conv1->forward(join(x2, up1(x3)));
    y = F::interpolate(y, F::InterpolateFuncOptions()
                              .scale_factor(std::vector<double>{2, 2})
                              .mode(torch::kBilinear)
                              .align_corners(true));
    return outc(conv2->forward(join(x1, y)));
  }
  nn::Sequential inc{double_conv(2, 4)}, down1{double_conv(4, 6)}, down2{double_conv(6, 8)};
  nn::ConvTranspose2d up1{nn::ConvTranspose2dOptions(8, 6, 2).stride(2)};
  nn::Sequential conv1{double_conv(12, 6)}, conv2{double_conv(10, 4)};
  nn::Conv2d outc{nn::Conv2dOptions(4, 3, 1)};
};
TORCH_MODULE(UNet);

torch::Tensor dice_loss(const torch::Tensor& scores, const torch::Tensor& masks) {
  auto truth = torch::one_hot(masks, 3).permute({0, 3, 1, 2}).to(scores.scalar_type());
  auto guess = torch::softmax(scores, 1);
  auto shared = (guess * truth).sum({0, 2, 3});
  auto sizes = guess.sum({0, 2, 3}) + truth.sum({0, 2, 3});
  return 1 - ((2 * shared + 1e-6) / (sizes + 1e-6)).mean();
}

Trained unet(const Place& place, std::int64_t batch_size) {
  torch::manual_seed(3);
  UNet model;
  const auto images = torch::randn({10, batch_size, 2, 11, 14});
  const auto masks = torch::randint(3, {10, batch_size, 11, 14}, torch::kLong);
  place.module(*model, {{"(inc|down.|conv.)\\.(0\\.|1\\.(?!num_batches))", P("tp")},
                        {"(inc|down.|conv.)\\.3\\.", P(whole, "tp")}});
  torch::optim::RMSprop optimizer(
      model->parameters(), torch::optim::RMSpropOptions(1e-3).momentum(0.9).weight_decay(1e-8));
  Trained trained;
  for (std::int64_t step = 0; step < 10; ++step) {
    auto x = place.put(images[step]), y = place.put(masks[step]);
    auto scores = model(x);
    auto loss = F::cross_entropy(scores, y) + dice_loss(scores, y);
    optimizer.zero_grad(/*set_to_none=*/true);
    loss.backward();
    nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    trained.loss(loss);
  }
  trained.keep("net", *model);
  return trained;
}

TEST(Vision, Mnist) {
  mt::expect_libtorch("mnist", [](const Place& place, std::int64_t batch) {
    return mnist(place, batch, /*dropout=*/0);
  });
}
TEST(Vision, MnistWithDropout) {
  mt::expect_one_device("mnist with dropout", [](const Place& place, std::int64_t batch) {
    return mnist(place, batch, /*dropout=*/0.5);
  });
}
TEST(Vision, ResNet) { mt::expect_libtorch("resnet", resnet); }
// one_hot reads the largest class and scatters ones into a fresh tensor.
TEST(Vision, UNet) { mt::expect_libtorch("unet", unet, {.moves = true}); }

}  // namespace
