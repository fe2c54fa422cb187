// SPDX-License-Identifier: Apache-2.0
//
// Gradients on their way from where backward left them to the optimizer's shards: collected in the order
// in which they become final, sent a bucket at a time, added to the shard's gradient where they land.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <meshtorch/tensor/coalesce.h>
#include <meshtorch/train/bucket.h>
#include <meshtorch/train/zero_leaf.h>

namespace meshtorch {

class GradientBuckets {
 public:
  struct Options {
    std::int64_t bucket_bytes = 0;  // local
    bool overlap = true;
    std::optional<at::ScalarType> reduce;      // dtype on the wire; else the gradient's own
    std::optional<at::ScalarType> accumulate;  // where they land; else the shard's own
  };
  explicit GradientBuckets(Options options) : options_(options), parts_(options.bucket_bytes) {}

  // `gradient` is a part of the gradient of the leaf's parameter; begins a reduction where a bucket is
  // full.
  void add(const ZeroLeaf& leaf, const at::Tensor& gradient);
  // Begins what is not begun, and lands what has arrived: nothing that a backward left stays
  // whole but what is in flight.
  void end_of_backward();
  // Everything that was added is in the gradients of the shards after this.
  void flush();
  // What was added and is not in them yet never will be; nothing is in flight after this.
  void drop();

 private:
  struct Part {
    at::Tensor shard;  // of the leaf
    at::Tensor gradient;
  };
  struct Sent {
    std::vector<at::Tensor> shards;
    Flight flight;
  };
  // A bucket more than this in flight waits for the oldest: bounds the memory of flat buffers. By count,
  // not by what has arrived: every process must begin collectives in the same order.
  static constexpr std::size_t kMostInFlight = 2;

  void launch(const std::vector<Part>& parts);
  void send(const std::vector<Part>& parts);
  void land();

  Options options_;
  Bucket<Part> parts_;
  std::deque<Sent> flying_;
};

}  // namespace meshtorch
