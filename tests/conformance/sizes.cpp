// SPDX-License-Identifier: Apache-2.0
#include "sizes.h"

#include <algorithm>

#include <meshtorch/base/error.h>

namespace meshtorch::conformance {

std::vector<Regime> regimes(const Case& of, const Mesh& mesh) {
  const std::int64_t n = mesh.size();
  std::vector<Regime> all;
  auto least = [&](char letter) {
    const auto found = of.least.find(letter);
    return found == of.least.end() ? std::int64_t{0} : found->second;
  };
  auto add = [&](const std::string& name, const Sizes& sizes) {
    for (const Regime& earlier : all) {
      if (earlier.sizes == sizes) return;
    }
    all.push_back({name, sizes});
  };
  auto each = [&](auto size) {
    Sizes sizes;
    for (std::size_t i = 0; i < of.letters.size(); ++i)
      sizes[of.letters[i]] = size(of.letters[i], i);
    return sizes;
  };
  const Sizes even = each([&](char letter, std::size_t i) {
    const std::int64_t times =
        std::max<std::int64_t>(1 + static_cast<std::int64_t>(i % 2), (least(letter) + n - 1) / n);
    return times * n;
  });
  add("even", even);
  add("uneven", each([&](char letter, std::size_t i) {
        return std::max<std::int64_t>(i % 2 == 0 ? 5 : 7, least(letter));
      }));
  add("small", each([&](char letter, std::size_t i) {
        return std::max<std::int64_t>(i % 2 == 0 ? 1 : n - 1, least(letter));
      }));
  for (const char letter : of.letters) {
    if (!of.zero || least(letter) > 0) continue;
    Sizes sizes = even;
    sizes[letter] = 0;
    add(text("zero ", letter), sizes);
  }
  return all;
}

std::string describe(const Sizes& sizes) {
  std::vector<std::string> parts;
  for (const auto& [letter, size] : sizes) parts.push_back(text(letter, "=", size));
  return join(parts, " ");
}

}  // namespace meshtorch::conformance
