// SPDX-License-Identifier: Apache-2.0
//
// Unmodified torch::nn modules and losses on a sharded batch give the dense values, gradients and
// buffers: on several meshes, with a batch that divides, one that does not and one that leaves devices
// without rows.
#include "compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
using mt::P;
using mt::whole;

namespace {

using Inputs = std::vector<at::Tensor>;

struct Subject {
  std::string name;
  std::function<std::shared_ptr<nn::Module>()> make;
  std::function<Inputs(std::int64_t)> inputs;  // of a batch size
  std::vector<P> specs;                        // of the inputs
  std::function<at::Tensor(nn::Module&, const Inputs&)> run;
  std::vector<mt::PathRule> tensor_parallel = {};  // where the mesh has tp
  double atol = 1e-6;
};

template <class Module>
Subject of_module(std::string name, std::function<Module()> make,
                  std::function<Inputs(std::int64_t)> inputs, std::vector<P> specs,
                  std::function<at::Tensor(Module&, const Inputs&)> run,
                  std::vector<mt::PathRule> rules = {}) {
  using Impl = typename Module::ContainedType;
  return {std::move(name),
          [make] { return make().ptr(); },
          std::move(inputs),
          std::move(specs),
          [run](nn::Module& module, const Inputs& inputs) {
            Module holder(std::dynamic_pointer_cast<Impl>(module.shared_from_this()));
            return run(holder, inputs);
          },
          std::move(rules)};
}

// Sums of many terms that cancel, as before a batch norm: what is left is rounding.
Subject cancelling(Subject subject) {
  subject.atol = 1e-5;
  return subject;
}

struct NoParametersImpl : nn::Module {};
TORCH_MODULE(NoParameters);

Subject of_function(std::string name, std::function<Inputs(std::int64_t)> inputs,
                    std::vector<P> specs, std::function<at::Tensor(const Inputs&)> run) {
  return {std::move(name), [] { return std::make_shared<NoParametersImpl>(); }, std::move(inputs),
          std::move(specs), [run](nn::Module&, const Inputs& inputs) { return run(inputs); }};
}

std::function<Inputs(std::int64_t)> normal(std::vector<std::int64_t> shape, std::size_t batch_dim) {
  return [=](std::int64_t batch) mutable {
    shape[batch_dim] = batch;
    return Inputs{torch::randn(shape)};
  };
}

at::Tensor labels(std::int64_t batch, std::int64_t classes) {
  return torch::randint(classes, {batch}, torch::kLong);
}

std::vector<Subject> modules() {
  std::vector<Subject> all;
  const auto encoder_layer = [] {
    return nn::TransformerEncoderLayer(
        nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.0));
  };
  const std::vector<mt::PathRule> megatron{{"linear1\\.(weight|bias)", P("tp")},
                                           {"linear2\\.weight", P(whole, "tp")}};
  all.push_back(of_module<nn::TransformerEncoder>(
      "TransformerEncoder",
      [=] { return nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder_layer(), 2)); },
      normal({5, 0, 16}, 1), {P(whole, "dp")}, [](auto& m, const Inputs& x) { return m(x[0]); },
      megatron));
  all.push_back(of_module<nn::TransformerDecoderLayer>(
      "TransformerDecoderLayer",
      [] {
        return nn::TransformerDecoderLayer(
            nn::TransformerDecoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.0));
      },
      [](std::int64_t b) {
        return Inputs{torch::randn({4, b, 16}), torch::randn({6, b, 16})};
      },
      {P(whole, "dp"), P(whole, "dp")}, [](auto& m, const Inputs& x) { return m(x[0], x[1]); },
      megatron));
  all.push_back(of_module<nn::LSTM>(
      "Lstm", [] { return nn::LSTM(nn::LSTMOptions(6, 8).num_layers(2).bidirectional(true)); },
      normal({5, 0, 6}, 1), {P(whole, "dp")},
      [](auto& m, const Inputs& x) { return std::get<0>(m(x[0])); }));
  all.push_back(of_module<nn::GRU>(
      "Gru", [] { return nn::GRU(nn::GRUOptions(6, 8).batch_first(true)); }, normal({0, 5, 6}, 0),
      {P("dp")}, [](auto& m, const Inputs& x) { return std::get<0>(m(x[0])); }));
  all.push_back(cancelling(of_module<nn::Sequential>(
      "ConvolutionsTraining",
      [] {
        return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)), nn::BatchNorm2d(6),
                              nn::ReLU(), nn::MaxPool2d(2),
                              nn::Conv2d(nn::Conv2dOptions(6, 4, 3).groups(2)), nn::BatchNorm2d(4),
                              nn::GELU(), nn::AvgPool2d(2), nn::Flatten(), nn::Linear(4, 5));
      },
      normal({0, 3, 8, 8}, 0), {P("dp")},
      [](auto& m, const Inputs& x) { return m->forward(x[0]); })));
  all.push_back(cancelling(of_module<nn::Sequential>(
      "ConvolutionsEvaluation",
      [] {
        nn::Sequential m(nn::Conv2d(3, 6, 3), nn::BatchNorm2d(6), nn::Dropout(0.5),
                         nn::AdaptiveAvgPool2d(2), nn::ConvTranspose2d(6, 4, 2),
                         nn::GroupNorm(2, 4), nn::LeakyReLU());
        m->eval();
        return m;
      },
      normal({0, 3, 8, 8}, 0), {P("dp")},
      [](auto& m, const Inputs& x) { return m->forward(x[0]); })));
  all.push_back(cancelling(of_module<nn::Sequential>(
      "BatchNorm1dConv1d",
      [] {
        return nn::Sequential(nn::Conv1d(3, 4, 3), nn::BatchNorm1d(4), nn::MaxPool1d(2),
                              nn::Tanh());
      },
      normal({0, 3, 10}, 0), {P("dp")},
      [](auto& m, const Inputs& x) { return m->forward(x[0]); })));
  for (const auto mode : {0, 1, 2}) {
    all.push_back(of_module<nn::EmbeddingBag>(
        "EmbeddingBag" + std::to_string(mode),
        [=] {
          nn::EmbeddingBagOptions options(12, 6);
          if (mode == 0) options.mode(torch::kSum);
          if (mode == 1) options.mode(torch::kMean);
          if (mode == 2) options.mode(torch::kMax);
          return nn::EmbeddingBag(options);
        },
        [](std::int64_t b) {
          return Inputs{torch::randint(12, {b, 4}, torch::kLong)};
        },
        {P("dp")}, [](auto& m, const Inputs& x) { return m(x[0]); }));
  }
  // case 36
  all.push_back(of_module<nn::Embedding>(
      "EmbeddingRowsSharded",
      [] { return nn::Embedding(nn::EmbeddingOptions(7, 6).padding_idx(2)); },
      [](std::int64_t b) {
        auto ids = torch::randint(7, {b, 4}, torch::kLong);
        ids.select(1, 0).fill_(2);
        ids.select(1, 1).fill_(5);
        return Inputs{ids};
      },
      {P("dp")}, [](auto& m, const Inputs& x) { return m(x[0]); }, {{"weight", P("tp")}}));
  all.push_back(of_module<nn::Embedding>(
      "EmbeddingColumnsSharded", [] { return nn::Embedding(7, 6); },
      [](std::int64_t b) {
        return Inputs{torch::randint(7, {b, 4}, torch::kLong)};
      },
      {P("dp")}, [](auto& m, const Inputs& x) { return m(x[0]); }, {{"weight", P(whole, "tp")}}));
  // case 8
  const std::vector<std::pair<std::string, P>> dims{
      {"Batch", P("dp")}, {"Sequence", P(whole, "dp")}, {"Hidden", P(whole, whole, "dp")}};
  for (const auto& [name, spec] : dims) {
    all.push_back(of_module<nn::Linear>(
        "Linear" + name, [] { return nn::Linear(6, 10); }, normal({0, 4, 6}, 0), {spec},
        [](auto& m, const Inputs& x) { return m(x[0]); }, {{"weight|bias", P("tp")}}));
    all.push_back(of_module<nn::Linear>(  // case 41
        "LinearRow" + name, [] { return nn::Linear(6, 10); }, normal({0, 4, 6}, 0), {spec},
        [](auto& m, const Inputs& x) { return m(x[0]); }, {{"weight", P(whole, "tp")}}));
    all.push_back(of_module<nn::LayerNorm>(
        "LayerNorm" + name, [] { return nn::LayerNorm(nn::LayerNormOptions({6})); },
        normal({0, 4, 6}, 0), {spec}, [](auto& m, const Inputs& x) { return m(x[0]); }));
  }
  all.push_back(of_module<nn::Bilinear>(
      "Bilinear", [] { return nn::Bilinear(4, 5, 3); },
      [](std::int64_t b) {
        return Inputs{torch::randn({b, 4}), torch::randn({b, 5})};
      },
      {P("dp"), P("dp")}, [](auto& m, const Inputs& x) { return m(x[0], x[1]); }));
  all.push_back(of_module<nn::MultiheadAttention>(
      "MultiheadAttention",
      [] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(16, 4)); },
      normal({5, 0, 16}, 1), {P(whole, "dp")},
      [](auto& m, const Inputs& x) { return std::get<0>(m->forward(x[0], x[0], x[0])); }));
  return all;
}

std::vector<Subject> losses() {
  namespace F = torch::nn::functional;
  std::vector<Subject> all;
  const auto scores = [](std::int64_t b) {
    auto target = labels(b, 9);
    target[0] = -100;
    return Inputs{torch::randn({b, 9}), target};
  };
  const auto weights = torch::linspace(0.5, 2.5, 9);
  // Class dim whole and, on a mesh with tp, sharded: case 43.
  for (const auto& [suffix, spec] :
       std::vector<std::pair<std::string, P>>{{"", P("dp")}, {"OverVocabulary", P("dp", "tp")}}) {
    for (const auto reduction : {0, 1, 2}) {
      const auto options = [=](bool weighted, double smoothing) {
        auto o = F::CrossEntropyFuncOptions().label_smoothing(smoothing);
        if (weighted) o.weight(weights);
        if (reduction == 0) o.reduction(torch::kNone);
        if (reduction == 1) o.reduction(torch::kMean);
        if (reduction == 2) o.reduction(torch::kSum);
        return o;
      };
      const std::string name = "CrossEntropy" + std::to_string(reduction) + suffix;
      all.push_back(of_function(name, scores, {spec, P("dp")}, [=](const Inputs& x) {
        return F::cross_entropy(x[0], x[1], options(false, 0.0));
      }));
      all.push_back(of_function(name + "Weighted", scores, {spec, P("dp")}, [=](const Inputs& x) {
        return F::cross_entropy(x[0], x[1], options(true, 0.0));
      }));
      all.push_back(of_function(name + "Smoothed", scores, {spec, P("dp")}, [=](const Inputs& x) {
        return F::cross_entropy(x[0], x[1], options(false, 0.1));
      }));
      all.push_back(of_function(
          name + "WeightedSmoothed", scores, {spec, P("dp")},
          [=](const Inputs& x) { return F::cross_entropy(x[0], x[1], options(true, 0.1)); }));
    }
    all.push_back(of_function(
        "CrossEntropyProbabilities" + suffix,
        [](std::int64_t b) {
          return Inputs{torch::randn({b, 9}), torch::randn({b, 9}).softmax(1)};
        },
        {spec, spec}, [](const Inputs& x) { return F::cross_entropy(x[0], x[1]); }));
  }
  all.push_back(of_function(
      "CrossEntropyImages",
      [](std::int64_t b) {
        return Inputs{torch::randn({b, 5, 3, 2}), torch::randint(5, {b, 3, 2}, torch::kLong)};
      },
      {P("dp"), P("dp")}, [](const Inputs& x) { return F::cross_entropy(x[0], x[1]); }));
  const auto pair = [](std::int64_t b) {
    return Inputs{torch::randn({b, 3}), torch::rand({b, 3})};
  };
  const std::vector<P> both{P("dp"), P("dp")};
  const auto elementwise = [&](std::string name,
                               std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> f) {
    all.push_back(of_function(name, pair, both, [f](const Inputs& x) { return f(x[0], x[1]); }));
  };
  elementwise("Mse", [](auto& x, auto& y) { return F::mse_loss(x, y); });
  elementwise("MseSum", [](auto& x, auto& y) {
    return F::mse_loss(x, y, F::MSELossFuncOptions(torch::kSum));
  });
  elementwise("MseNone", [](auto& x, auto& y) {
    return F::mse_loss(x, y, F::MSELossFuncOptions(torch::kNone));
  });
  elementwise("L1", [](auto& x, auto& y) { return F::l1_loss(x, y); });
  elementwise("SmoothL1", [](auto& x, auto& y) { return F::smooth_l1_loss(x, y); });
  elementwise("Huber", [](auto& x, auto& y) { return F::huber_loss(x, y); });
  elementwise("Bce", [](auto& x, auto& y) { return F::binary_cross_entropy(x.sigmoid(), y); });
  elementwise("BceWithLogits",
              [](auto& x, auto& y) { return F::binary_cross_entropy_with_logits(x, y); });
  elementwise("KlDiv", [](auto& x, auto& y) { return F::kl_div(x.log_softmax(1), y); });
  elementwise("SoftMargin", [](auto& x, auto& y) {
    return F::soft_margin_loss(x, y.detach().sign() - 0.5) + y.sum();
  });
  elementwise("Mean", [](auto& x, auto& y) { return (x * y).mean(); });
  elementwise("MeanOfRows",
              [](auto& x, auto& y) { return (x * y).mean(1) + (x + y).mean(0).sum(); });
  elementwise("VarianceStd",
              [](auto& x, auto& y) { return x.var(0).sum() + y.std() + x.std(1).sum(); });
  elementwise("Extremes", [](auto& x, auto& y) {
    return x.max() + y.min() + x.amax(0).sum() + std::get<0>(y.max(0)).sum() +
           std::get<0>(x.topk(2, 1)).sum();
  });
  elementwise("SortScan", [](auto& x, auto& y) {
    return std::get<0>(x.sort(0)).cumsum(0) * y.cumsum(1) + x.softmax(0) + x.logsumexp(0) +
           x.prod(1, true);
  });
  elementwise("Norms", [](auto& x, auto& y) {
    return x.norm() + y.norm(2, 1).sum() + torch::linalg_vector_norm(x, 3);
  });
  elementwise("CatStackSplit", [](auto& x, auto& y) {
    return torch::cat({x, y}, 0).sum(0) + torch::stack({x, y}, 1).sum({0, 1}) +
           x.split(2, 0)[0].sum() + x.flip(0)[0] + torch::roll(x, 1, 0).mul(y).sum(0) +
           x.index({torch::indexing::Slice(1, torch::indexing::None, 2)}).sum(0);
  });
  elementwise("Broadcasts", [](auto& x, auto& y) {
    return x.unsqueeze(1) * y.unsqueeze(0) + x.t().matmul(y).sum() +
           torch::where(x > 0, x, y).repeat({2, 1}).sum();
  });
  return all;
}

struct Place {
  std::vector<mt::MeshAxis> axes;
  std::int64_t batch;
};

class Parity : public testing::TestWithParam<std::tuple<Subject, Place>> {};

bool has_tp(const Place& place) { return place.axes.size() > 1; }

P without_tp(const P& spec) {
  std::vector<mt::DimSpec> dims;
  for (auto dim : spec.dims()) {
    std::erase(dim, "tp");
    dims.push_back(dim);
  }
  return P::from(dims);
}

// The module's outputs against fixed weights, and backward.
at::Tensor forward_backward(const Subject& subject, nn::Module& module, Inputs& inputs) {
  for (auto& input : inputs) {
    if (input.is_floating_point()) input.requires_grad_();
  }
  at::Tensor output = subject.run(module, inputs);
  torch::manual_seed(11);
  (output * torch::rand(output.sizes())).sum().backward();
  return output;
}

TEST_P(Parity, EqualsDense) {
  const auto& [subject, place] = GetParam();
  torch::manual_seed(3);
  auto dense_module = subject.make();
  torch::manual_seed(3);
  auto module = subject.make();
  torch::manual_seed(5);
  Inputs dense_inputs = subject.inputs(place.batch);
  const auto dense = forward_backward(subject, *dense_module, dense_inputs);

  mt::Runtime runtime({.devices = 8, .warn_fallback = false});
  auto mesh = runtime.make_mesh(place.axes);
  mt::PathRules rules(has_tp(place) ? subject.tensor_parallel : std::vector<mt::PathRule>{});
  mt::shard(*module, mesh, rules.otherwise(mt::Unmatched::replicate));
  Inputs inputs;
  for (std::size_t i = 0; i < dense_inputs.size(); ++i) {
    const P spec = has_tp(place) ? subject.specs[i] : without_tp(subject.specs[i]);
    inputs.push_back(mt::device_put(dense_inputs[i].detach(), {mesh, spec}));
  }
  const auto output = forward_backward(subject, *module, inputs);
  EXPECT_TRUE(mt::is_sharded(output));
  mt::expect_close(output, dense, "output");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    mt::expect_close(inputs[i].grad(), dense_inputs[i].grad(),
                     "gradient of input " + std::to_string(i));
  }
  mt::expect_close(*module, *dense_module, 1e-5, subject.atol);
}

const std::vector<Place> kPlaces{{{{"dp", 8}}, 8},
                                 {{{"dp", 8}}, 11},
                                 {{{"dp", 8}}, 3},
                                 {{{"dp", 4}, {"tp", 2}}, 8},
                                 {{{"dp", 4}, {"tp", 2}}, 7},
                                 {{{"dp", 2}, {"tp", 2}}, 6},
                                 {{{"dp", 2}, {"tp", 2}}, 5}};

std::string parameter_name(const testing::TestParamInfo<std::tuple<Subject, Place>>& info) {
  const auto& [subject, place] = info.param;
  return subject.name + "_" + mt::name_of(place.axes) + "b" + std::to_string(place.batch);
}

INSTANTIATE_TEST_SUITE_P(Modules, Parity,
                         testing::Combine(testing::ValuesIn(modules()), testing::ValuesIn(kPlaces)),
                         parameter_name);
INSTANTIATE_TEST_SUITE_P(Functions, Parity,
                         testing::Combine(testing::ValuesIn(losses()), testing::ValuesIn(kPlaces)),
                         parameter_name);

}  // namespace
