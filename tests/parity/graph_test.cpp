// SPDX-License-Identifier: Apache-2.0
//
// Graph programs: a graph attention network (Velickovic et al. 2018) whose attention is normalized over
// the edges that arrive at a node, by scatter_reduce and index_add; a graph convolution (Kipf and Welling
// 2017) over a batch of graphs, its sparse product written as index_add.
#include "train_compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace F = torch::nn::functional;
using mt::P;
using mt::Place;
using mt::Trained;
using mt::whole;

namespace {

constexpr std::int64_t kFeatures = 7, kClasses = 4;

// --- Graph attention

struct GatLayerImpl : nn::Module {
  GatLayerImpl(std::int64_t in, std::int64_t out, std::int64_t heads, double dropout)
      : heads(heads),
        out(out),
        dropout(dropout),
        projection(nn::LinearOptions(in, heads * out).bias(false)) {
    register_module("projection", projection);
    to_source = register_parameter("to_source", torch::randn({heads, out}) * 0.3);
    to_target = register_parameter("to_target", torch::randn({heads, out}) * 0.3);
    bias = register_parameter("bias", torch::zeros({heads * out}));
  }
  // x (nodes, in), source and target (edges) -> (nodes, heads * out)
  torch::Tensor forward(torch::Tensor x, torch::Tensor source, torch::Tensor target) {
    const auto nodes = x.size(0);
    auto h = projection(x).view({nodes, heads, out});
    auto score = torch::leaky_relu((h * to_source).sum(-1).index_select(0, source) +
                                       (h * to_target).sum(-1).index_select(0, target),
                                   0.2);
    // The softmax over the edges of a target.
    auto index = target.unsqueeze(1).expand({-1, heads});
    auto largest = torch::full({nodes, heads}, -1e30, score.options())
                       .scatter_reduce(0, index, score.detach(), "amax");
    auto weight = torch::exp(score - largest.index_select(0, target));
    auto sum = torch::zeros({nodes, heads}, score.options()).index_add(0, target, weight);
    auto attention = weight / (sum.index_select(0, target) + 1e-16);
    attention = torch::dropout(attention, dropout, is_training());
    auto message = h.index_select(0, source) * attention.unsqueeze(-1);
    auto result = torch::zeros({nodes, heads, out}, message.options());
    result.index_add_(0, target, message);
    return result.view({nodes, heads * out}) + bias;
  }
  std::int64_t heads, out;
  double dropout;
  nn::Linear projection;
  torch::Tensor to_source, to_target, bias;
};
TORCH_MODULE(GatLayer);

struct GatImpl : nn::Module {
  explicit GatImpl(double dropout)
      : layer1(kFeatures, 5, 4, dropout), layer2(20, kClasses, 1, dropout) {
    register_module("layer1", layer1);
    register_module("layer2", layer2);
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor source, torch::Tensor target) {
    x = torch::elu(layer1(x, source, target));
    return torch::log_softmax(layer2(x, source, target), 1);
  }
  GatLayer layer1, layer2;
};
TORCH_MODULE(Gat);

struct Graph {
  explicit Graph(std::int64_t nodes)
      : features(torch::randn({nodes, kFeatures})),
        labels(torch::randint(kClasses, {nodes}, torch::kLong)),
        train_mask(torch::rand({nodes}) < 0.6) {
    train_mask[0].fill_(true);
    // Three random edges to a node, and itself.
    auto self = torch::arange(nodes);
    source = torch::cat({torch::randint(nodes, {3 * nodes}, torch::kLong), self});
    target = torch::cat({self.repeat({3}), self});
  }
  torch::Tensor features, labels, train_mask, source, target;
};

enum class Shards { edges, nodes };

// Edge parallel: each device has some of the edges and all nodes; the sums over edges come out unreduced.
// Node parallel: each device has the features of some nodes.
Trained gat(const Place& place, std::int64_t batch_size, Shards shards, double dropout) {
  torch::manual_seed(41);
  Graph graph(2 * batch_size + 3);
  Gat model(dropout);
  place.module(*model, {{"layer1\\.", P("tp")}, {"layer2\\.projection", P(whole, "tp")}});
  const P of_nodes = shards == Shards::nodes ? P("dp") : P();
  const P of_edges = shards == Shards::edges ? P("dp") : P();
  auto features = place.put(graph.features, of_nodes), labels = place.put(graph.labels, of_nodes);
  auto train_mask = place.put(graph.train_mask, of_nodes);
  auto source = place.put(graph.source, of_edges), target = place.put(graph.target, of_edges);
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(0.01).weight_decay(5e-4));
  Trained trained;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    auto output = model->forward(features, source, target);
    auto loss = torch::nll_loss(output.index({train_mask}), labels.index({train_mask}));
    loss.backward();
    optimizer.step();
    trained.loss(loss);
  }
  model->eval();
  torch::NoGradGuard no_grad;
  auto output = model->forward(features, source, target);
  auto right = output.argmax(1).eq(labels).masked_select(train_mask.logical_not());
  trained.keep("right", right);
  trained.keep("output", output);
  trained.keep("net", *model);
  return trained;
}

// --- Graph convolution over a batch of graphs, read out by a mean over each graph's nodes

struct GcnImpl : nn::Module {
  GcnImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("readout", readout);
  }
  static torch::Tensor spread(const torch::Tensor& x, const torch::Tensor& source,
                              const torch::Tensor& target) {
    auto degree = torch::zeros({x.size(0)}, x.options())
                      .scatter_add(0, target, torch::ones_like(target, x.options()));
    auto scale = degree.clamp_min(1).rsqrt();
    auto message = (x * scale.unsqueeze(1)).index_select(0, source);
    return torch::zeros_like(x).index_add(0, target, message) * scale.unsqueeze(1);
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor source, torch::Tensor target,
                        torch::Tensor graph_of, std::int64_t graphs) {
    x = torch::relu(spread(conv1(x), source, target));
    x = torch::relu(spread(conv2(x), source, target));
    auto sizes = torch::bincount(graph_of, {}, graphs).to(x.scalar_type());
    auto sum = torch::zeros({graphs, x.size(1)}, x.options()).index_add(0, graph_of, x);
    return readout(sum / sizes.unsqueeze(1));
  }
  nn::Linear conv1{kFeatures, 8}, conv2{8, 8}, readout{8, kClasses};
};
TORCH_MODULE(Gcn);

Trained gcn(const Place& place, std::int64_t batch_size) {
  torch::manual_seed(42);
  constexpr std::int64_t kNodes = 5, kEdges = 12;  // of a graph
  Gcn model;
  place.module(*model, {{"conv1\\.", P("tp")}, {"conv2\\.weight", P(whole, "tp")}});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Trained trained;
  for (int step = 0; step < 10; ++step) {
    auto offset = (torch::arange(batch_size) * kNodes).unsqueeze(1);
    auto source = torch::randint(kNodes, {batch_size, kEdges}, torch::kLong) + offset;
    auto target = torch::randint(kNodes, {batch_size, kEdges}, torch::kLong) + offset;
    auto graph_of = torch::arange(batch_size).repeat_interleave(kNodes);
    auto x = place.put(torch::randn({batch_size * kNodes, kFeatures}));
    auto labels = place.put(torch::randint(kClasses, {batch_size}, torch::kLong));
    auto output = model->forward(x, place.put(source.flatten()), place.put(target.flatten()),
                                 place.put(graph_of), batch_size);
    auto loss = F::multi_margin_loss(output, labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    trained.loss(loss);
  }
  trained.keep("net", *model);
  return trained;
}

mt::Program attention(Shards shards, double dropout) {
  return [=](const Place& place, std::int64_t batch) { return gat(place, batch, shards, dropout); };
}

// Edges point anywhere: what is gathered by them, or added at them, moves.
const mt::Allowed kMoves{.moves = true};

TEST(Graph, AttentionOverShardedEdges) {
  mt::expect_libtorch("graph attention, edges", attention(Shards::edges, 0), kMoves);
}
// How many nodes a mask picks is known only where the whole mask is.
TEST(Graph, AttentionOverShardedNodes) {
  mt::expect_libtorch(
      "graph attention, nodes", attention(Shards::nodes, 0),
      {.without_rule = {"aten::index.Tensor", "aten::_index_put_impl_"}, .moves = true});
}
TEST(Graph, AttentionWithDropout) {
  mt::expect_one_device("graph attention with dropout", attention(Shards::edges, 0.4), kMoves);
}
TEST(Graph, Convolution) { mt::expect_libtorch("graph convolution", gcn, kMoves); }

}  // namespace
