// SPDX-License-Identifier: Apache-2.0
#include "row.h"

namespace meshtorch::modules {
namespace {

// The three reductions of a loss are three rows.
template <class Loss, class Options, class... Inputs>
void each_reduction(Rows& rows, const std::string& what, Options options, Inputs... inputs) {
  const auto add = [&](const std::string& reduction) {
    rows.push_back(row([options] { return Loss(options); }, inputs...)
                       .with(what.empty() ? reduction : what + ", " + reduction));
  };
  options.reduction(torch::kMean);
  add("mean");
  options.reduction(torch::kSum);
  add("sum");
  options.reduction(torch::kNone);
  add("none");
}

Input probabilities(Sizes shape) {
  auto input = real(std::move(shape));
  return {[draw = input.draw](std::int64_t batch) { return draw(batch).softmax(1); },
          input.batch_dim, false};
}

// Of each row some classes, then -1.
Input label_lists(std::int64_t classes) {
  return values([=](std::int64_t batch) {
    auto labels = torch::full({batch, classes}, -1, torch::kLong);
    for (std::int64_t i = 0; i < batch; ++i) {
      labels[i].slice(0, 0, 1 + i % 3).copy_(torch::randperm(classes).slice(0, 0, 1 + i % 3));
    }
    return labels;
  });
}

void elementwise(Rows& rows) {
  const auto x = real({B, 6}), p = unit({B, 6});
  each_reduction<nn::L1Loss>(rows, "", nn::L1LossOptions(), x, real({B, 6}));
  each_reduction<nn::MSELoss>(rows, "", nn::MSELossOptions(), x, real({B, 6}));
  each_reduction<nn::SmoothL1Loss>(rows, "", nn::SmoothL1LossOptions().beta(0.5), x, real({B, 6}));
  each_reduction<nn::HuberLoss>(rows, "", nn::HuberLossOptions().delta(0.5), x, real({B, 6}));
  each_reduction<nn::BCELoss>(rows, "", nn::BCELossOptions(), p, p.constant());
  each_reduction<nn::BCEWithLogitsLoss>(rows, "", nn::BCEWithLogitsLossOptions(), x, p.constant());
  each_reduction<nn::BCEWithLogitsLoss>(rows, "weights",
                                        nn::BCEWithLogitsLossOptions()
                                            .weight(torch::linspace(0.5, 2, 6))
                                            .pos_weight(torch::linspace(1, 3, 6)),
                                        x, p.constant());
  each_reduction<nn::KLDivLoss>(rows, "", nn::KLDivLossOptions(), x, p.constant());
  each_reduction<nn::PoissonNLLLoss>(rows, "", nn::PoissonNLLLossOptions().full(true), x,
                                     (p.constant()));
  each_reduction<nn::SoftMarginLoss>(rows, "", nn::SoftMarginLossOptions(), x, sign({B, 6}));
  each_reduction<nn::HingeEmbeddingLoss>(rows, "", nn::HingeEmbeddingLossOptions(), x,
                                         sign({B, 6}));
  rows.push_back(
      row([] { return nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)); }, x,
          p.constant())
          .with("batchmean"));
}

void of_classes(Rows& rows) {
  const auto scores = real({B, 6});
  const auto weight = torch::linspace(0.5, 2, 6);
  const auto labels = [](Sizes shape) {
    auto ids = index(6, std::move(shape));
    return values([draw = ids.draw](std::int64_t batch) {
      auto drawn = draw(batch);
      drawn[0].fill_(-100);
      return drawn;
    });
  };
  const std::size_t first = rows.size();
  each_reduction<nn::NLLLoss>(rows, "", nn::NLLLossOptions(), scores, labels({B}));
  each_reduction<nn::NLLLoss>(rows, "weights", nn::NLLLossOptions().weight(weight), scores,
                              labels({B}));
  each_reduction<nn::NLLLoss>(rows, "images", nn::NLLLossOptions(), real({B, 6, 3, 2}),
                              labels({B, 3, 2}));
  each_reduction<nn::CrossEntropyLoss>(rows, "", nn::CrossEntropyLossOptions(), scores,
                                       labels({B}));
  each_reduction<nn::CrossEntropyLoss>(
      rows, "weights, smoothed", nn::CrossEntropyLossOptions().weight(weight).label_smoothing(0.1),
      scores, labels({B}));
  each_reduction<nn::CrossEntropyLoss>(rows, "images", nn::CrossEntropyLossOptions(),
                                       real({B, 6, 3, 2}), labels({B, 3, 2}));
  each_reduction<nn::CrossEntropyLoss>(rows, "probabilities", nn::CrossEntropyLossOptions(), scores,
                                       probabilities({B, 6}));
  for (std::size_t i = first; i < rows.size(); ++i) {
    rows[i] = std::move(rows[i]).sharded("vocabulary", {}, {1});
  }
  each_reduction<nn::MultiMarginLoss>(rows, "", nn::MultiMarginLossOptions(), scores,
                                      index(6, {B}));
  each_reduction<nn::MultiLabelMarginLoss>(rows, "", nn::MultiLabelMarginLossOptions(), scores,
                                           label_lists(6));
  each_reduction<nn::MultiLabelSoftMarginLoss>(rows, "", nn::MultiLabelSoftMarginLossOptions(),
                                               scores, unit({B, 6}).constant());
  rows.push_back(row(
                     [] {
                       return nn::AdaptiveLogSoftmaxWithLoss(
                           nn::AdaptiveLogSoftmaxWithLossOptions(8, 12, {4, 8}).div_value(2));
                     },
                     real({B, 8}), index(12, {B}))
                     .sharded("head", {{"head.weight", P("tp")}}));
}

void of_pairs(Rows& rows) {
  const auto x = real({B, 6});
  rows.push_back(row([] { return nn::CosineSimilarity(); }, x, x).sharded("features", {}, {1, 1}));
  rows.push_back(row([] { return nn::PairwiseDistance(); }, x, x).sharded("features", {}, {1, 1}));
  each_reduction<nn::CosineEmbeddingLoss>(rows, "", nn::CosineEmbeddingLossOptions().margin(0.1), x,
                                          x, sign({B}));
  each_reduction<nn::MarginRankingLoss>(rows, "", nn::MarginRankingLossOptions().margin(0.1),
                                        real({B}), real({B}), sign({B}));
  each_reduction<nn::TripletMarginLoss>(rows, "", nn::TripletMarginLossOptions().swap(true), x, x,
                                        x);
  each_reduction<nn::TripletMarginWithDistanceLoss>(
      rows, "", nn::TripletMarginWithDistanceLossOptions(), x, x, x);
}

void of_sequences(Rows& rows) {
  const auto scores = real({8, B, 5});
  const Input log_probabilities{
      [draw = scores.draw](std::int64_t batch) { return draw(batch).log_softmax(2); }, 1};
  const auto targets = values([](std::int64_t batch) {
    return torch::randint(1, 5, {batch, 3}, torch::kLong);
  });
  const auto lengths = [](std::int64_t longest) {
    return values([=](std::int64_t batch) { return longest - torch::arange(batch) % 2; });
  };
  each_reduction<nn::CTCLoss>(rows, "", nn::CTCLossOptions(), log_probabilities, targets,
                              lengths(8), lengths(3));
  // All targets in one row: which of them belong to a sequence, only their lengths tell.
  const auto one_row = values(
      [](std::int64_t batch) {
        return torch::randint(1, 5, {3 * batch - batch / 2}, torch::kLong);
      },
      -1);
  rows.push_back(row([] { return nn::CTCLoss(nn::CTCLossOptions().zero_infinity(true)); },
                     log_probabilities, one_row, lengths(8), lengths(3))
                     .with("targets in one row"));
}

}  // namespace

Rows losses() {
  Rows rows;
  elementwise(rows);
  of_classes(rows);
  of_pairs(rows);
  of_sequences(rows);
  return rows;
}

}  // namespace meshtorch::modules
