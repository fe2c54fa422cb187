// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/data/digits.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <string_view>
#include <vector>

#include <meshtorch/base/error.h>
#include <meshtorch/data/counter_random.h>

namespace meshtorch {
namespace {

constexpr int kPixels = 64;
constexpr int kInk = 16;

// The integers of one line; false where it holds anything else.
bool parse_line(std::string_view line, std::vector<int>& values) {
  values.clear();
  const char* at = line.data();
  const char* end = at + line.size();
  while (true) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc()) return false;
    values.push_back(value);
    if (next == end) return true;
    if (*next != ',') return false;
    at = next + 1;
  }
}

bool is_digit_line(const std::vector<int>& values) {
  if (values.size() != kPixels + 1) return false;
  const auto within = [](int low, int high) {
    return [=](int value) { return low <= value && value <= high; };
  };
  return std::all_of(values.begin(), values.end() - 1, within(0, kInk)) &&
         within(0, 9)(values.back());
}

// Fisher and Yates.
std::vector<std::int64_t> shuffled(std::int64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = n - 1; i > 0; --i) {
    const auto j = counter_below(seed, static_cast<std::uint64_t>(i), i + 1);
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  }
  return order;
}

}  // namespace

LabelledImages read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail({"read_digits", path, "cannot be read", "check the path"});
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  std::vector<int> values;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!parse_line(line, values) || !is_digit_line(values)) {
      fail({"read_digits", text(path, " line ", labels.size() + 1),
            "not 64 pixels 0..16 and a label 0..9 with commas between", "correct the line"});
    }
    for (int i = 0; i < kPixels; ++i) pixels.push_back(static_cast<float>(values[i]) / kInk);
    labels.push_back(values.back());
  }
  if (labels.empty()) fail({"read_digits", path, "the file is empty", "give data/digits.csv"});
  return {torch::tensor(pixels).view({-1, 1, 8, 8}), torch::tensor(labels, torch::kInt64)};
}

Digits load_digits(const std::string& path, const DigitsOptions& options) {
  const LabelledImages all = read_digits(path);
  if (options.test_every < 2 || options.test_every > all.size()) {
    fail({"load_digits", "test_every", text(options.test_every, ", expected 2 .. ", all.size()),
          "both parts need an image"});
  }
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> test;
  const auto order = shuffled(all.size(), options.seed);
  for (std::int64_t i = 0; i < all.size(); ++i) {
    const bool held_out = i % options.test_every == options.test_every - 1;
    (held_out ? test : train).push_back(order[static_cast<std::size_t>(i)]);
  }
  const auto pick = [&](const std::vector<std::int64_t>& which) -> LabelledImages {
    const auto index = torch::tensor(which, torch::kInt64);
    return {all.images.index_select(0, index), all.labels.index_select(0, index)};
  };
  return {pick(train), pick(test)};
}

}  // namespace meshtorch
