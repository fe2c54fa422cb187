// SPDX-License-Identifier: Apache-2.0
//
// The UCI handwritten digits (data/digits.csv): 1,797 images of 8 x 8 pixels, to try a classifier
// on.
#pragma once

#include <cstdint>
#include <string>

#include <torch/types.h>

namespace meshtorch {

struct LabelledImages {
  torch::Tensor images;  // float [n, 1, 8, 8], 0 (paper) .. 1 (ink)
  torch::Tensor labels;  // int64 [n], 0 .. 9

  std::int64_t size() const { return labels.numel(); }
};

struct Digits {
  LabelledImages train;
  LabelledImages test;
};

// Every `test_every`-th image of a seeded shuffle is for testing, so both parts know all writers.
struct DigitsOptions {
  std::uint64_t seed = 0;
  std::int64_t test_every = 5;
};

// Lines of 64 pixels 0..16 and a label 0..9, separated by commas. Throws Error, with the line,
// where the file cannot be read, is empty, or a line is anything else.
LabelledImages read_digits(const std::string& path);

// The same lines, split. Throws Error as above and where `test_every` is below 2 or above the
// number of images.
Digits load_digits(const std::string& path, const DigitsOptions& options = {});

}  // namespace meshtorch
