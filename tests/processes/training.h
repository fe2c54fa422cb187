// SPDX-License-Identifier: Apache-2.0
//
// What all processes of ./disagree do alike: tensor parallelism within each process, data parallelism
// between them.
#pragma once

#include <torch/torch.h>

#include <meshtorch/meshtorch.h>

namespace meshtorch {

// This process, and whether it is the one that differs.
struct Self {
  Runtime& runtime;
  Mesh mesh;  // dp over the processes, tp within each
  bool odd;

  at::Tensor placed(const PartitionSpec& spec) const {
    return device_put(torch::ones({12, 8}), {mesh, spec});
  }
  // A step of training that every process goes through.
  void agree() const { full(placed(P("dp"))); }
};

class Net {
 public:
  explicit Net(const Mesh& mesh)
      : up_(parameter(torch::randn({8, 16}), {mesh, P(whole, "tp")})),
        down_(parameter(torch::randn({16, 8}), {mesh, P("tp")})),
        mesh_(mesh),
        optimizer_({up_, down_}, torch::optim::AdamWOptions(1e-2)) {}

  at::Tensor loss(const at::Tensor& rows) const {
    const auto x = device_put(rows, {mesh_, P("dp")});
    return torch::relu(x.matmul(up_)).matmul(down_).square().mean();
  }
  double step(const at::Tensor& rows) {
    const auto value = loss(rows);
    value.backward();
    return update(), value.item<double>();
  }
  void update() {
    optimizer_.step();
    optimizer_.zero_grad();
  }

 private:
  static at::Tensor parameter(const at::Tensor& value, const NamedSharding& sharding) {
    return device_put(value, sharding).requires_grad_();
  }

  at::Tensor up_, down_;
  Mesh mesh_;
  torch::optim::AdamW optimizer_;
};

inline void train(const Self& self, int steps) {
  Net net(self.mesh);
  for (int step = 0; step < steps; ++step) {
    named_scope scope("train");
    const double loss = net.step(torch::randn({12, 8}));
    if (step % 10 == 0) self.runtime.out() << "step " << step << " loss " << loss << std::endl;
  }
}

inline void accumulate(const Self& self, int count, bool backward) {
  Net net(self.mesh);
  const Batch batch{torch::randn({12, 8}), torch::zeros({12}, torch::kLong)};
  for (const auto& micro : microbatches(batch, count, {self.mesh, P()})) {
    const auto loss = net.loss(micro.inputs);
    if (backward) loss.backward();
  }
  net.update();
  self.agree();
}

}  // namespace meshtorch
