// SPDX-License-Identifier: Apache-2.0
//
// Sequence programs: a character model (embedding, LSTM or GRU, the hidden state carried on and detached)
// and translation with torch::nn::Transformer (masks, padding, label smoothing, a warm-up).
#include "train_compare.h"

namespace mt = meshtorch;
namespace nn = torch::nn;
namespace F = torch::nn::functional;
using mt::P;
using mt::Place;
using mt::Trained;
using mt::whole;

namespace {

// --- A character model, trained by truncated backpropagation through time

constexpr std::int64_t kCharacters = 12, kEmbedding = 6, kHidden = 8, kLayers = 2, kWindow = 5;

struct CharLstmImpl : nn::Module {
  explicit CharLstmImpl(double dropout)
      : rnn(nn::LSTMOptions(kEmbedding, kHidden)
                .num_layers(kLayers)
                .dropout(dropout)
                .batch_first(true)) {
    register_module("encoder", encoder);
    register_module("rnn", rnn);
    register_module("decoder", decoder);
  }
  using State = std::tuple<torch::Tensor, torch::Tensor>;
  std::pair<torch::Tensor, State> forward(const torch::Tensor& input, const State& state) {
    auto [output, next] = rnn->forward(encoder(input), state);
    return {decoder(output), next};
  }
  static State init_hidden(std::int64_t batch) {
    return {torch::zeros({kLayers, batch, kHidden}), torch::zeros({kLayers, batch, kHidden})};
  }
  static State detach(const State& state) {
    return {std::get<0>(state).detach(), std::get<1>(state).detach()};
  }
  nn::Embedding encoder{kCharacters, kEmbedding};
  nn::LSTM rnn;
  nn::Linear decoder{kHidden, kCharacters};
};
TORCH_MODULE(CharLstm);

struct CharGruImpl : nn::Module {
  explicit CharGruImpl(double dropout)
      : rnn(nn::GRUOptions(kEmbedding, kHidden)
                .num_layers(kLayers)
                .dropout(dropout)
                .batch_first(true)) {
    register_module("encoder", encoder);
    register_module("rnn", rnn);
    register_module("decoder", decoder);
  }
  using State = torch::Tensor;
  std::pair<torch::Tensor, State> forward(const torch::Tensor& input, const State& state) {
    auto [output, next] = rnn->forward(encoder(input), state);
    return {decoder(output), next};
  }
  static State init_hidden(std::int64_t batch) { return torch::zeros({kLayers, batch, kHidden}); }
  static State detach(const State& state) { return state.detach(); }
  nn::Embedding encoder{kCharacters, kEmbedding};
  nn::GRU rnn;
  nn::Linear decoder{kHidden, kCharacters};
};
TORCH_MODULE(CharGru);

template <class Model>
Trained character_model(const Place& place, std::int64_t batch_size, double dropout) {
  torch::manual_seed(21);
  Model model(dropout);
  const auto text = torch::randint(kCharacters, {batch_size, 10 * kWindow + 1}, torch::kLong);
  place.module(
      *model,
      {{"encoder\\.weight", P("tp")}, {"weight_ih", P(whole, "tp")}, {"decoder\\.", P("tp")}});
  auto characters = place.put(text);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));

  Trained trained;
  auto hidden = model->init_hidden(batch_size);
  for (std::int64_t step = 0; step < 10; ++step) {
    auto input = characters.narrow(1, step * kWindow, kWindow);
    auto target = characters.narrow(1, step * kWindow + 1, kWindow);
    hidden = model->detach(hidden);
    optimizer.zero_grad();
    auto [output, next] = model->forward(input, hidden);
    hidden = next;
    auto loss = F::cross_entropy(output.reshape({-1, kCharacters}), target.reshape({-1}));
    loss.backward();
    nn::utils::clip_grad_norm_(model->parameters(), 0.25);
    optimizer.step();
    trained.loss(loss);
  }

  // Continue each text by the most likely characters.
  torch::NoGradGuard no_grad;
  model->eval();
  auto state = model->init_hidden(batch_size);
  auto input = characters.narrow(1, 0, 1);
  std::vector<torch::Tensor> sampled;
  for (int i = 0; i < 4; ++i) {
    auto [output, next] = model->forward(input, state);
    state = next;
    input = output.select(1, -1).argmax(-1, /*keepdim=*/true);
    sampled.push_back(input);
  }
  trained.keep("continuation", torch::cat(sampled, 1));
  trained.keep("net", *model);
  return trained;
}

// --- Translation

constexpr std::int64_t kVocabulary = 14, kWidth = 16, kPad = 0, kBegin = 1;

struct PositionalEncodingImpl : nn::Module {
  PositionalEncodingImpl(double dropout, std::int64_t max_length) : dropout(dropout) {
    auto position = torch::arange(max_length).unsqueeze(1).to(torch::get_default_dtype());
    auto rate = torch::exp(torch::arange(0, kWidth, 2).to(torch::get_default_dtype()) *
                           (-std::log(10000.0) / kWidth));
    auto encoding = torch::zeros({max_length, 1, kWidth});
    encoding.slice(2, 0, kWidth, 2).copy_(torch::sin(position * rate).unsqueeze(1));
    encoding.slice(2, 1, kWidth, 2).copy_(torch::cos(position * rate).unsqueeze(1));
    pe = register_buffer("pe", encoding);
    register_module("dropout", this->dropout);
  }
  torch::Tensor forward(const torch::Tensor& x) { return dropout(x + pe.slice(0, 0, x.size(0))); }
  nn::Dropout dropout;
  torch::Tensor pe;
};
TORCH_MODULE(PositionalEncoding);

struct TranslatorImpl : nn::Module {
  explicit TranslatorImpl(double dropout)
      : position(dropout, 16),
        transformer(nn::TransformerOptions(kWidth, 4)
                        .num_encoder_layers(2)
                        .num_decoder_layers(2)
                        .dim_feedforward(24)
                        .dropout(dropout)) {
    register_module("source", source);
    register_module("target", target);
    register_module("position", position);
    register_module("transformer", transformer);
    register_module("generator", generator);
    for (auto& parameter : parameters()) {
      if (parameter.dim() > 1) nn::init::xavier_uniform_(parameter);
    }
  }
  torch::Tensor embed(nn::Embedding& table, const torch::Tensor& ids) {
    return position(table(ids) * std::sqrt(static_cast<double>(kWidth)));
  }
  torch::Tensor forward(const torch::Tensor& src, const torch::Tensor& tgt) {
    auto src_padding = src.eq(kPad).transpose(0, 1), tgt_padding = tgt.eq(kPad).transpose(0, 1);
    auto causal = nn::TransformerImpl::generate_square_subsequent_mask(tgt.size(0))
                      .to(torch::get_default_dtype());
    auto output =
        transformer(embed(source, src), embed(target, tgt), /*src_mask=*/torch::Tensor(), causal,
                    /*memory_mask=*/torch::Tensor(), src_padding, tgt_padding, src_padding);
    return generator(output);
  }
  nn::Embedding source{nn::EmbeddingOptions(kVocabulary, kWidth).padding_idx(kPad)};
  nn::Embedding target{nn::EmbeddingOptions(kVocabulary, kWidth).padding_idx(kPad)};
  PositionalEncoding position;
  nn::Transformer transformer;
  nn::Linear generator{kWidth, kVocabulary};
};
TORCH_MODULE(Translator);

// Sentences (length, batch) of several lengths, padded at the end.
torch::Tensor sentences(std::int64_t length, std::int64_t batch) {
  auto ids = torch::randint(2, kVocabulary, {length, batch}, torch::kLong);
  auto lengths = torch::randint(2, length + 1, {batch}, torch::kLong);
  ids.masked_fill_(torch::arange(length).unsqueeze(1) >= lengths, kPad);
  ids[0].fill_(kBegin);
  return ids;
}

Trained translation(const Place& place, std::int64_t batch_size, double dropout) {
  torch::manual_seed(22);
  Translator model(dropout);
  place.module(*model, {{"linear1\\.|generator\\.|(source|target)\\.weight", P("tp")},
                        {"(linear2|out_proj)\\.weight", P(whole, "tp")},
                        {"in_proj_weight", P("tp")}});
  // The bias of the keys moves all scores of a query alike: its gradient is rounding, which AdamW would
  // divide by itself but for an eps well above it.
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(0).betas({0.9, 0.98}).eps(1e-5));
  Trained trained;
  for (int step = 0; step < 10; ++step) {
    auto src = place.put(sentences(7, batch_size), P(whole, "dp"));
    auto tgt = place.put(sentences(6, batch_size), P(whole, "dp"));
    auto input = tgt.slice(0, 0, -1), wanted = tgt.slice(0, 1);
    auto logits = model(src, input);
    auto loss =
        F::cross_entropy(logits.reshape({-1, kVocabulary}), wanted.reshape({-1}),
                         F::CrossEntropyFuncOptions().ignore_index(kPad).label_smoothing(0.1));
    // Warm up, then decay with the square root of the step.
    const double rate = 0.02 * std::min(std::pow(step + 1, -0.5), (step + 1) * std::pow(4.0, -1.5));
    for (auto& group : optimizer.param_groups()) {
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(rate);
    }
    optimizer.zero_grad();
    loss.backward();
    nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    trained.loss(loss);
  }

  // Greedy decoding.
  torch::NoGradGuard no_grad;
  model->eval();
  auto src = place.put(sentences(7, batch_size), P(whole, "dp"));
  auto said = place.put(torch::full({1, batch_size}, kBegin, torch::kLong), P(whole, "dp"));
  for (int i = 0; i < 4; ++i) {
    auto next = model(src, said)[-1].argmax(-1);
    said = torch::cat({said, next.unsqueeze(0)}, 0);
  }
  trained.keep("translation", said);
  trained.keep("net", *model);
  return trained;
}

mt::Program with_dropout(Trained (*program)(const Place&, std::int64_t, double), double dropout) {
  return [=](const Place& place, std::int64_t batch) { return program(place, batch, dropout); };
}

// Time steps and batch are folded into one dim whose leading part is not the sharded one.
const mt::Allowed kMoves{.moves = true};

TEST(Sequence, CharacterLstm) {
  mt::expect_libtorch("character LSTM", with_dropout(character_model<CharLstm>, 0), kMoves);
}
TEST(Sequence, CharacterGru) {
  mt::expect_libtorch("character GRU", with_dropout(character_model<CharGru>, 0), kMoves);
}
TEST(Sequence, CharacterLstmWithDropout) {
  mt::expect_one_device("character LSTM with dropout", with_dropout(character_model<CharLstm>, 0.3),
                        kMoves);
}
TEST(Sequence, Translation) {
  mt::expect_libtorch("translation", with_dropout(translation, 0), kMoves);
}
TEST(Sequence, TranslationWithDropout) {
  mt::expect_one_device("translation with dropout", with_dropout(translation, 0.1), kMoves);
}

}  // namespace
