// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/data/text.h>

#include <filesystem>
#include <fstream>

#include <meshtorch/base/error.h>
#include <meshtorch/data/counter_random.h>

namespace meshtorch {
namespace {

constexpr std::int64_t kShortest = 20;

torch::Tensor read_bytes(const std::string& path) {
  const auto complain = [&](const std::string& what, const std::string& remedy) {
    fail({"ByteText", path, what, remedy});
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) complain("no such file", "check the path");
  if (std::filesystem::is_directory(status)) complain("is a folder", "give a text file");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) complain("cannot be read", "check its permissions");
  const auto size = static_cast<std::int64_t>(file.tellg());
  if (size == 0) complain("the file is empty", "give a text to train on");
  if (size < kShortest) {
    complain(text(size, " bytes, expected at least ", kShortest), "give a longer text");
  }
  torch::Tensor bytes = torch::empty({size}, torch::kUInt8);
  file.seekg(0);
  if (!file.read(static_cast<char*>(bytes.data_ptr()), size)) {
    complain("cannot be read", "check its permissions");
  }
  return bytes;
}

void check(const BatchOptions& options, std::int64_t tokens) {
  if (options.size < 1 || options.length < 1) {
    fail({"Tokens", "batch",
          text("size ", options.size, " and length ", options.length, ", expected at least 1"),
          "give positive sizes"});
  }
  if (options.length + 1 > tokens) {
    fail({"Tokens", "batch",
          text("a window of ", options.length, " tokens and its next one, of ", tokens,
               " tokens in all"),
          "give a longer text or a shorter length"});
  }
}

void check_rows(const BatchOptions& options, std::int64_t begin, std::int64_t end) {
  if (0 <= begin && begin <= end && end <= options.size) return;
  fail({"Tokens", "batch", text("rows [", begin, ", ", end, ") of ", options.size),
        "give rows within the batch"});
}

}  // namespace

Batch Tokens::gather(const torch::Tensor& starts, std::int64_t length) const {
  const auto at = starts.unsqueeze(1) + torch::arange(length + 1, torch::kInt64);
  const auto tokens = bytes_.index_select(0, at.flatten()).view_as(at).to(torch::kInt64);
  return {tokens.narrow(1, 0, length).contiguous(), tokens.narrow(1, 1, length).contiguous()};
}

Batch Tokens::batch(const BatchOptions& options, std::int64_t step) const {
  return batch(options, step, 0, options.size);
}

Batch Tokens::batch(const BatchOptions& options, std::int64_t step, std::int64_t begin,
                    std::int64_t end) const {
  check(options, size());
  check_rows(options, begin, end);
  torch::Tensor starts = torch::empty({end - begin}, torch::kInt64);
  auto* start = starts.data_ptr<std::int64_t>();
  for (std::int64_t row = begin; row < end; ++row) {
    const auto draw = static_cast<std::uint64_t>(step * options.size + row);
    *start++ = counter_below(options.seed, draw, size() - options.length);
  }
  return gather(starts, options.length);
}

std::int64_t Tokens::batches(const BatchOptions& options) const {
  check(options, size());
  return (size() - 1) / options.length / options.size;
}

Batch Tokens::window(const BatchOptions& options, std::int64_t index) const {
  return window(options, index, 0, options.size);
}

Batch Tokens::window(const BatchOptions& options, std::int64_t index, std::int64_t begin,
                     std::int64_t end) const {
  const std::int64_t count = batches(options);
  if (index < 0 || index >= count) {
    fail({"Tokens", text("window ", index), text("there are ", count, " full batches"),
          "give an index below that, a smaller batch or a shorter length"});
  }
  check_rows(options, begin, end);
  const auto first = index * options.size;
  return gather(torch::arange(first + begin, first + end, torch::kInt64) * options.length,
                options.length);
}

ByteText::ByteText(const std::string& path) : ByteText(read_bytes(path)) {}

ByteText::ByteText(const torch::Tensor& bytes)
    : train_(bytes.narrow(0, 0, bytes.numel() - bytes.numel() / 10)),
      validation_(bytes.narrow(0, bytes.numel() - bytes.numel() / 10, bytes.numel() / 10)) {}

}  // namespace meshtorch
