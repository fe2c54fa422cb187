// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/data/sampler.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include <meshtorch/base/error.h>
#include <meshtorch/data/counter_random.h>

namespace meshtorch {
namespace {

constexpr std::uint64_t kRounds = 8;
// With fewer, eight rounds do not make all orders of a handful equally likely.
constexpr int kFewestBits = 6;

class Feistel {
 public:
  Feistel(std::uint64_t key, std::int64_t n)
      : key_(key), n_(static_cast<std::uint64_t>(n)), low_bits_((bits(n_) + 1) / 2) {
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits(n_) - low_bits_)) - 1;
  }

  std::int64_t operator()(std::int64_t i) const {
    auto value = static_cast<std::uint64_t>(i);
    do value = encrypt(value);
    while (value >= n_);
    return static_cast<std::int64_t>(value);
  }

 private:
  static int bits(std::uint64_t n) {
    return std::max(kFewestBits, static_cast<int>(std::bit_width(n - 1)));
  }

  std::uint64_t encrypt(std::uint64_t value) const {
    std::uint64_t high = value >> low_bits_, low = value & low_mask_;
    for (std::uint64_t round = 0; round < kRounds; round += 2) {
      low ^= counter_bits(key_, high * kRounds + round) & low_mask_;
      high ^= counter_bits(key_, low * kRounds + round + 1) & high_mask_;
    }
    return high << low_bits_ | low;
  }

  std::uint64_t key_, n_;
  int low_bits_;
  std::uint64_t low_mask_, high_mask_;
};

[[noreturn]] void refuse(const std::string& where, const std::string& what,
                         const std::string& remedy) {
  fail({.op = "Sampler", .where = where, .what = what, .remedy = remedy});
}

}  // namespace

std::int64_t permuted(std::uint64_t key, std::int64_t i, std::int64_t n) {
  if (i < 0 || i >= n) {
    fail({.op = "permuted",
          .where = "i",
          .what = text("got ", i, ", expected one of 0 .. ", n - 1),
          .remedy = "give an element of the permutation"});
  }
  return Feistel(key, n)(i);
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (options.examples < 1 || options.batch < 1) {
    refuse("options",
           text(options.examples, " examples in batches of ", options.batch,
                ", expected at least 1 of both"),
           "give positive sizes");
  }
  steps_ = options.examples / options.batch;
  if (!options.drop_last && options.examples % options.batch != 0) ++steps_;
  if (steps_ == 0) {
    refuse("options",
           text(options.examples, " examples fill no batch of ", options.batch,
                ", and drop_last leaves out the rest"),
           "make batches smaller, or keep the last one");
  }
}

Sampler::Position Sampler::position(std::int64_t step) const {
  if (step < 0) refuse("step", text("got ", step, ", expected at least 0"), "count from 0");
  return {step / steps_, step % steps_};
}

std::int64_t Sampler::rows(std::int64_t step) const {
  return std::min(options_.batch, options_.examples - position(step).step * options_.batch);
}

at::Tensor Sampler::indices(std::int64_t step) const { return indices(step, 0, rows(step)); }

at::Tensor Sampler::indices(std::int64_t step, std::int64_t begin, std::int64_t end) const {
  const Position at = position(step);
  if (begin < 0 || end < begin || end > rows(step)) {
    refuse(text("step ", step), text("rows [", begin, ", ", end, ") of a batch of ", rows(step)),
           "give rows within it");
  }
  const Feistel permutation(counter_bits(options_.seed, static_cast<std::uint64_t>(at.epoch)),
                            options_.examples);
  at::Tensor indices = at::empty({end - begin}, at::kLong);
  auto* index = indices.data_ptr<std::int64_t>();
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t element = at.step * options_.batch + row;
    *index++ = options_.shuffle ? permutation(element) : element;
  }
  return indices;
}

}  // namespace meshtorch
