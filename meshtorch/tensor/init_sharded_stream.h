// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of sharded tensors that are, to the bit, those libtorch would draw on the CPU for
// the whole tensor: from the same generator, which is left as the dense call would leave it.
// Numbers are drawn piece by piece into a small buffer, and each goes to the devices that hold it.
// Every process draws all.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace meshtorch {

// While it lives, uniform_ and normal_ of this thread's sharded tensors are drawn so.
class init_stream_scope {
 public:
  // `chunk`: bytes of the buffer.
  explicit init_stream_scope(std::int64_t chunk) : outer_(std::exchange(chunk_, chunk)) {}
  ~init_stream_scope() { chunk_ = outer_; }
  init_stream_scope(const init_stream_scope&) = delete;
  init_stream_scope& operator=(const init_stream_scope&) = delete;

  static std::int64_t chunk() { return chunk_; }  // 0 outside of any

 private:
  std::int64_t outer_;
  inline static thread_local std::int64_t chunk_ = 0;
};

// Inside a scope; `self` is sharded. Over unreduced axes the numbers go to coordinate 0.
void draw_uniform(const at::Tensor& self, double from, double to,
                  const std::optional<at::Generator>& generator);
void draw_normal(const at::Tensor& self, double mean, double std,
                 const std::optional<at::Generator>& generator);

// Whether normals of this dtype can be drawn in pieces: not complex ones, and none that this
// libtorch draws by a recipe that is not known. draw_normal makes such a tensor whole.
bool normals_in_pieces(at::ScalarType dtype);

}  // namespace meshtorch
