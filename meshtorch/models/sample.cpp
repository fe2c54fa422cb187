// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/models/sample.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

constexpr std::int64_t kBytes = 256;

torch::Tensor tokens_of(const std::string& text, std::int64_t length) {
  const auto count = std::min(length, static_cast<std::int64_t>(text.size()));
  const auto tokens = torch::empty({1, count}, torch::kLong);
  auto* out = tokens.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = text.size() - static_cast<std::size_t>(count); i < text.size(); ++i)
    *out++ = static_cast<unsigned char>(text[i]);
  return tokens;
}

// The logits of the byte after the last.
std::vector<double> last_row(const torch::Tensor& logits, std::int64_t count) {
  if (logits.dim() != 3 || logits.size(0) != 1 || logits.size(1) != count || logits.size(2) < 1 ||
      logits.size(2) > kBytes)
    fail({"sample", "logits",
          text("shape (", join(logits.sizes()), "), expected (1, ", count, ", 1 to ", kBytes, ")"),
          "return the logits of every position, over bytes"});
  const auto row =
      logits.detach().select(1, -1).select(0, 0).to(torch::kCPU, torch::kDouble).contiguous();
  const auto* data = row.const_data_ptr<double>();
  std::vector<double> values(data, data + row.numel());
  // -inf is a byte that cannot be.
  const double best = *std::max_element(values.begin(), values.end());
  if (!std::isfinite(best) ||
      std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); }))
    fail({"sample", "logits", "not finite", "check that the model's training did not diverge"});
  return values;
}

std::size_t draw(std::vector<double> logits, double temperature, double uniform) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (auto& value : logits) total += value = std::exp((value - best) / temperature);
  double left = uniform * total;
  std::size_t last = 0;  // rounding may leave a little behind the end
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == 0.0) continue;
    last = i;
    if (left < logits[i]) break;
    left -= logits[i];
  }
  return last;
}

}  // namespace

double uniform_at(std::uint64_t seed, std::uint64_t step) {
  std::uint64_t z = seed + (step + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

std::string sample(const LogitsFunction& logits, const std::string& prompt,
                   const SampleOptions& options) {
  if (options.bytes < 0)
    fail({"sample", "bytes", text(options.bytes, " is negative"), "use at least 0"});
  if (options.length < 1)
    fail({"sample", "length", text(options.length, " is not a size"), "use at least 1"});
  if (!options.greedy && !(options.temperature > 0.0 && std::isfinite(options.temperature)))
    fail({"sample", "temperature", text(options.temperature, " is not positive"),
          "use greedy for the likeliest byte"});
  std::string result = prompt.empty() ? "\n" : prompt;
  for (std::int64_t step = 0; step < options.bytes; ++step) {
    const auto tokens = tokens_of(result, options.length);
    const auto row = last_row(logits(tokens), tokens.size(1));
    const auto next =
        options.greedy
            ? static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin())
            : draw(row, options.temperature,
                   uniform_at(options.seed, static_cast<std::uint64_t>(step)));
    result.push_back(static_cast<char>(next));
  }
  return prompt.empty() ? result.substr(1) : result;
}

}  // namespace meshtorch
