// SPDX-License-Identifier: Apache-2.0
//
// Text as tokens, one a byte, and windows of it as training batches.
//
//   ByteText text("king_james.txt");
//   Batch batch = text.train().batch({.size = 16, .length = 256, .seed = 1}, step);
//
// A batch depends on the options and the step alone, through a counter-based generator: a run that
// resumes at step 500 sees what it would have seen, and every process of a program draws the same
// global batch without talking, or its rows of it alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <torch/types.h>

#include <meshtorch/data/batch.h>

namespace meshtorch {

// A batch of text: inputs and targets are int64 [size, length]; targets[b][t] is the token after
// inputs[b][t].

struct BatchOptions {
  std::int64_t size = 1;    // windows
  std::int64_t length = 1;  // tokens of a window
  std::uint64_t seed = 0;
};

// A run of tokens, uint8 [n]; a view of the text it comes from.
class Tokens {
 public:
  explicit Tokens(torch::Tensor bytes) : bytes_(std::move(bytes)) {}

  std::int64_t size() const { return bytes_.numel(); }
  const torch::Tensor& bytes() const { return bytes_; }

  // `size` windows that start anywhere, uniformly, with replacement. Throws Error where a window
  // and the token after it do not fit, or an option is below one.
  Batch batch(const BatchOptions& options, std::int64_t step) const;
  // Rows [begin, end) of it, and no others are read; none of them is fine. Throws Error also where they
  // are not within the batch.
  Batch batch(const BatchOptions& options, std::int64_t step, std::int64_t begin,
              std::int64_t end) const;

  // Window `index * options.size`, `+ 1`, ... of the windows that lie end to end: what a validation
  // pass reads. Throws Error as above, and where `index` is not below `batches(options)`.
  Batch window(const BatchOptions& options, std::int64_t index) const;
  Batch window(const BatchOptions& options, std::int64_t index, std::int64_t begin,
               std::int64_t end) const;  // rows, as above
  std::int64_t batches(
      const BatchOptions& options) const;  // full ones; what is left over is not read

 private:
  Batch gather(const torch::Tensor& starts, std::int64_t length) const;
  torch::Tensor bytes_;
};

// The bytes of a file: the first 90% to train on, the last 10% to validate with.
class ByteText {
 public:
  static constexpr std::int64_t kVocabulary = 256;

  // Throws Error where the file cannot be read, is empty, or has fewer than 20 bytes.
  explicit ByteText(const std::string& path);

  const Tokens& train() const { return train_; }
  const Tokens& validation() const { return validation_; }

 private:
  explicit ByteText(const torch::Tensor& bytes);
  Tokens train_;
  Tokens validation_;
};

}  // namespace meshtorch
