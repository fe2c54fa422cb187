// SPDX-License-Identifier: Apache-2.0
//
// Generative programs in the manner of libtorch's public examples: a DCGAN (two networks, two optimizers,
// detach) and a variational autoencoder (reparameterisation, KL divergence).
#include "train_compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
using mt::P;
using mt::Place;
using mt::Trained;
using mt::whole;

namespace {

// --- DCGAN

constexpr std::int64_t kNoiseSize = 6;

struct GeneratorImpl : nn::Module {
  GeneratorImpl()
      : conv1(nn::ConvTranspose2dOptions(kNoiseSize, 8, 4).bias(false)),
        batch_norm1(8),
        conv2(nn::ConvTranspose2dOptions(8, 6, 3).stride(2).padding(1).bias(false)),
        batch_norm2(6),
        conv3(nn::ConvTranspose2dOptions(6, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("batch_norm1", batch_norm1);
    register_module("conv2", conv2);
    register_module("batch_norm2", batch_norm2);
    register_module("conv3", conv3);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(batch_norm1(conv1(x)));
    x = torch::relu(batch_norm2(conv2(x)));
    return torch::tanh(conv3(x));
  }
  nn::ConvTranspose2d conv1;
  nn::BatchNorm2d batch_norm1;
  nn::ConvTranspose2d conv2;
  nn::BatchNorm2d batch_norm2;
  nn::ConvTranspose2d conv3;
};
TORCH_MODULE(Generator);

nn::Sequential make_discriminator() {
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(1, 6, 4).stride(2).padding(1).bias(false)),
      nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
      nn::Conv2d(nn::Conv2dOptions(6, 8, 4).stride(2).padding(1).bias(false)), nn::BatchNorm2d(8),
      nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
      nn::Conv2d(nn::Conv2dOptions(8, 1, 3).stride(1).padding(0).bias(false)), nn::Sigmoid());
}

void weights_init(nn::Module& module) {
  torch::NoGradGuard no_grad;
  if (auto* conv = module.as<nn::Conv2d>()) conv->weight.normal_(0.0, 0.1);
  if (auto* conv = module.as<nn::ConvTranspose2d>()) conv->weight.normal_(0.0, 0.1);
  if (auto* norm = module.as<nn::BatchNorm2d>()) norm->weight.normal_(1.0, 0.1);
}

// The labels are made as the public example makes them: plain tensors beside the network's output.
Trained dcgan(const Place& place, std::int64_t batch_size) {
  torch::manual_seed(11);
  Generator generator;
  auto discriminator = make_discriminator();
  generator->apply(weights_init);
  discriminator->apply(weights_init);
  // A transposed convolution's weight is (in, out, height, width), a convolution's (out, in, ...).
  place.module(*generator, {{"conv1\\.weight", P(whole, "tp")},
                            {"batch_norm1\\.(?!num_batches)", P("tp")},
                            {"conv2\\.weight", P("tp")}});
  place.module(*discriminator, {{"^0\\.weight", P("tp")}, {"^2\\.weight", P(whole, "tp")}});
  torch::optim::Adam generator_optimizer(generator->parameters(),
                                         torch::optim::AdamOptions(2e-3).betas({0.5, 0.5}));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(),
                                             torch::optim::AdamOptions(2e-3).betas({0.5, 0.5}));
  Trained trained;
  for (int step = 0; step < 10; ++step) {
    // Train the discriminator with real images.
    discriminator->zero_grad();
    auto real_images = place.put(torch::rand({batch_size, 1, 14, 14}).mul(2).sub(1));
    auto real_labels = torch::empty({batch_size}).uniform_(0.8, 1.0);
    auto real_output = discriminator->forward(real_images).reshape(real_labels.sizes());
    auto d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
    d_loss_real.backward();

    // Train the discriminator with fake images.
    auto noise = place.put(torch::randn({batch_size, kNoiseSize, 1, 1}));
    auto fake_images = generator->forward(noise);
    auto fake_labels = torch::zeros(batch_size);
    auto fake_output = discriminator->forward(fake_images.detach()).reshape(fake_labels.sizes());
    auto d_loss_fake = torch::binary_cross_entropy(fake_output, fake_labels);
    d_loss_fake.backward();
    auto d_loss = d_loss_real + d_loss_fake;
    discriminator_optimizer.step();

    // Train the generator.
    generator->zero_grad();
    fake_labels.fill_(1);
    fake_output = discriminator->forward(fake_images).reshape(fake_labels.sizes());
    auto g_loss = torch::binary_cross_entropy(fake_output, fake_labels);
    g_loss.backward();
    generator_optimizer.step();

    trained.loss(d_loss);
    trained.loss(g_loss);
  }
  torch::NoGradGuard no_grad;
  generator->eval();
  trained.keep("samples", generator->forward(place.put(torch::randn({3, kNoiseSize, 1, 1}))));
  trained.keep("generator", *generator);
  trained.keep("discriminator", *discriminator);
  return trained;
}

// --- VAE

struct VaeOutput {
  torch::Tensor reconstruction, mu, log_var;
};

struct VaeImpl : nn::Module {
  VaeImpl() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
    register_module("fc4", fc4);
    register_module("fc5", fc5);
  }
  std::pair<torch::Tensor, torch::Tensor> encode(torch::Tensor x) {
    auto h = torch::relu(fc1(x));
    return {fc2(h), fc3(h)};
  }
  // The noise is drawn here unless it comes from outside.
  torch::Tensor reparameterize(torch::Tensor mu, torch::Tensor log_var, torch::Tensor noise) {
    auto std = log_var.mul(0.5).exp();
    auto eps = noise.defined() ? noise : torch::randn_like(std);
    return eps.mul(std).add_(mu);
  }
  torch::Tensor decode(torch::Tensor z) { return torch::sigmoid(fc5(torch::relu(fc4(z)))); }
  VaeOutput forward(torch::Tensor x, torch::Tensor noise) {
    auto [mu, log_var] = encode(x.view({-1, 36}));
    return {decode(reparameterize(mu, log_var, noise)), mu, log_var};
  }
  nn::Linear fc1{36, 20}, fc2{20, 4}, fc3{20, 4}, fc4{4, 20}, fc5{20, 36};
};
TORCH_MODULE(Vae);

Trained vae(const Place& place, std::int64_t batch_size, bool noise_from_outside) {
  torch::manual_seed(12);
  Vae model;
  place.module(*model, {{"(fc1|fc4)\\.", P("tp")}, {"(fc2|fc3|fc5)\\.weight", P(whole, "tp")}});
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-3));
  Trained trained;
  for (int step = 0; step < 10; ++step) {
    auto images = place.put(torch::rand({batch_size, 1, 6, 6}));
    auto noise = noise_from_outside ? place.put(torch::randn({batch_size, 4})) : torch::Tensor();
    auto output = model->forward(images, noise);
    auto reconstruction_loss = torch::nn::functional::binary_cross_entropy(
        output.reconstruction, images.view({-1, 36}),
        nn::functional::BinaryCrossEntropyFuncOptions().reduction(torch::kSum));
    auto kl_divergence =
        -0.5 * torch::sum(1 + output.log_var - output.mu.pow(2) - output.log_var.exp());
    auto loss = reconstruction_loss + kl_divergence;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    trained.loss(loss);
  }
  torch::NoGradGuard no_grad;
  trained.keep("samples", model->decode(place.put(torch::randn({5, 4}))));
  trained.keep("net", *model);
  return trained;
}

TEST(Generative, Dcgan) { mt::expect_libtorch("dcgan", dcgan); }
TEST(Generative, Vae) {
  mt::expect_libtorch("vae", [](const Place& place, std::int64_t batch) {
    return vae(place, batch, /*noise_from_outside=*/true);
  });
}
TEST(Generative, VaeWithRandnLike) {
  mt::expect_one_device("vae with randn_like", [](const Place& place, std::int64_t batch) {
    return vae(place, batch, /*noise_from_outside=*/false);
  });
}

}  // namespace
