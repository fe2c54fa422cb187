// SPDX-License-Identifier: Apache-2.0
//
// For tests only. Texts that are nearly right, the same on every run: what parsers must refuse in order.
//
//   Mutator mutate(seed);
//   for (int i = 0; i < 20000; ++i) only_errors([&] { PartitionSpec::parse(mutate(corpus)); });
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <meshtorch/base/error.h>

namespace meshtorch {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // Uniform in [0, n). (std::uniform_int_distribution differs between standard libraries.)
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  // One of the corpus, changed in up to three places, or as it is.
  std::string operator()(const std::vector<std::string>& corpus, std::size_t longest = 200) {
    std::string text = pick(corpus);
    for (std::size_t changes = below(4); changes > 0; --changes) change(text, corpus);
    return text.substr(0, longest);
  }

 private:
  void change(std::string& text, const std::vector<std::string>& corpus) {
    const std::size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        text.insert(at, 1, special());
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random_()));
        break;
      case 2:
        text.erase(at, 1 + below(4));
        break;
      case 3:
        text.insert(at, pick(corpus));
        break;
      case 4:
        text.resize(at);
        break;  // truncated
      default:
        if (at < text.size()) text[at] = special();
    }
  }
  char special() {
    static const std::string all = "()[]{}*+?\\|^$.,:;-_\"'/ \t\n0129azAZP\0\x7f\xff";
    return all[below(all.size())];
  }

  std::mt19937_64 random_;
};

// Whether the call went through. What it throws must be an Error; anything else ends the test.
template <class Call>
bool only_errors(Call call) {
  try {
    call();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace meshtorch
