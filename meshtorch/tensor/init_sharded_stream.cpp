// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/init_sharded_stream.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>

#include <meshtorch/comm/combine.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/kernel.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {
namespace {

using Generator = std::optional<at::Generator>;

// normal_ of at least 16 contiguous elements makes them by blocks of as many.
constexpr std::int64_t kBlock = 16;

// The boxes, in order, that elements [begin, end) of a row-major tensor are.
void for_each_box(const Shape& shape, std::int64_t begin, std::int64_t end,
                  const std::function<void(const Box&)>& each, Box rows = {}) {
  if (begin == end) return;
  const std::size_t dim = rows.size();
  if (dim == shape.size()) return each(rows);
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::int64_t first = (begin + inner - 1) / inner, last = end / inner;
  const auto inside = [&](std::int64_t row, std::int64_t from, std::int64_t to) {
    Box one = rows;
    one.push_back({row, row + 1});
    for_each_box(shape, from - row * inner, to - row * inner, each, std::move(one));
  };
  if (first > last) return inside(last, begin, end);
  inside(first - 1, begin, first * inner);
  if (first < last) {
    Box whole = rows;
    whole.push_back({first, last});
    for (std::size_t d = dim + 1; d < shape.size(); ++d) whole.push_back({0, shape[d]});
    each(whole);
  }
  inside(last, last * inner, end);
}

// Where a box lies in memory, row-major.
struct Block {
  std::byte* data;
  const Box& box;
};

// What both hold of `shared`, by runs. (copy_ would wake all threads for each little piece.)
void copy_box(const Box& shared, Block to, Block from, std::size_t item, std::size_t dim = 0) {
  std::size_t inner_to = item, inner_from = item;
  bool dense = true;
  for (std::size_t d = dim + 1; d < shared.size(); ++d) {
    inner_to *= static_cast<std::size_t>(to.box[d].size());
    inner_from *= static_cast<std::size_t>(from.box[d].size());
    dense = dense && to.box[d] == shared[d] && from.box[d] == shared[d];
  }
  if (shared.empty()) {
    std::memcpy(to.data, from.data, item);
    return;
  }
  const auto rows = static_cast<std::size_t>(shared[dim].size());
  to.data += static_cast<std::size_t>(shared[dim].begin - to.box[dim].begin) * inner_to;
  from.data += static_cast<std::size_t>(shared[dim].begin - from.box[dim].begin) * inner_from;
  if (dense) {
    std::memcpy(to.data, from.data, rows * inner_to);
    return;
  }
  for (std::size_t row = 0; row < rows; ++row) {
    copy_box(shared, {to.data + row * inner_to, to.box}, {from.data + row * inner_from, from.box},
             item, dim + 1);
  }
}

// Where each device's elements are.
class Parts {
 public:
  explicit Parts(const at::Tensor& sharded) : shape_(shape_of(sharded)) {
    const ShardedView& view = *sharded_view(sharded);
    const AxisList unreduced = ordered(view.unreduced());
    const auto& positions = Runtime::current().communicator().addressable(view.mesh());
    for (std::size_t d = 0; d < positions.size(); ++d) {
      if (view.mesh().group_rank(positions[d], unreduced) != 0) {
        view.locals()[d].zero_();
      } else {
        locals_.push_back(view.locals()[d]);
        boxes_.push_back(shard_box(view.mesh(), shape_, view.layout(), positions[d]));
      }
    }
  }

  // Elements begin, begin + 1, ... in row-major order.
  void put(std::int64_t begin, const at::Tensor& values) const {
    std::int64_t done = 0;
    for_each_box(shape_, begin, begin + values.numel(), [&](const Box& box) {
      put(box, values.narrow(0, done, volume(box)).view(shape_of(box)));
      done += volume(box);
    });
  }

  void put_all(const at::Tensor& whole) const {
    Box all;
    for (const std::int64_t size : shape_) all.push_back({0, size});
    put(all, whole);
  }

 private:
  void put(const Box& box, const at::Tensor& values) const {
    for (std::size_t d = 0; d < locals_.size(); ++d) {
      const Box shared = intersect(box, boxes_[d]);
      if (volume(shared) == 0) continue;
      if (locals_[d].is_contiguous() && values.is_contiguous()) {
        copy_box(shared, {static_cast<std::byte*>(locals_[d].data_ptr()), boxes_[d]},
                 {static_cast<std::byte*>(values.data_ptr()), box}, values.element_size());
      } else {
        narrow(locals_[d], shared, boxes_[d]).copy_(narrow(values, shared, box));
      }
    }
  }

  Shape shape_;
  Shards locals_;
  std::vector<Box> boxes_;
};

// Elements that a buffer has room for, in whole blocks.
std::int64_t chunk_of(const at::Tensor& self) {
  const std::int64_t room =
      init_stream_scope::chunk() / static_cast<std::int64_t>(self.element_size());
  return std::max(kBlock, room / kBlock * kBlock);
}

at::Tensor buffer(at::ScalarType dtype, std::int64_t count) { return at::empty({count}, dtype); }

// The last 16 of a count that is no multiple of 16 are drawn anew, after numbers for the rest that
// are thrown away (`rest`: for half types libtorch has ceased to draw those).
void put_tail(at::ScalarType dtype, std::int64_t count, bool rest, double mean, double std,
              const Generator& generator,
              const std::function<void(std::int64_t, at::Tensor)>& put) {
  if (count % kBlock == 0) return;
  if (rest) buffer(dtype, count % kBlock).uniform_(0, 1, generator);
  put(count - kBlock, buffer(dtype, kBlock).normal_(mean, std, generator));
}

// How this libtorch draws the tail of such a dtype; none: neither way.
std::optional<bool> rest_is_drawn(at::ScalarType dtype) {
  static thread_local std::map<at::ScalarType, std::optional<bool>> known;
  const auto found = known.find(dtype);
  if (found != known.end()) return found->second;
  constexpr std::int64_t kCount = 2 * kBlock + 3;
  const at::Tensor expected =
      buffer(dtype, kCount).normal_(0, 1, at::detail::createCPUGenerator(1));
  std::optional<bool> answer;
  for (const bool rest : {false, true}) {
    const Generator generator = at::detail::createCPUGenerator(1);
    const at::Tensor mine = buffer(dtype, kCount);
    for (const std::int64_t begin : {std::int64_t{0}, kBlock})
      mine.narrow(0, begin, kBlock).copy_(buffer(dtype, kBlock).normal_(0, 1, generator));
    put_tail(dtype, kCount, rest, 0, 1, generator, [&](std::int64_t begin, const at::Tensor& last) {
      mine.narrow(0, begin, kBlock).copy_(last);
    });
    if (at::equal(mine, expected)) answer = rest;
  }
  return known[dtype] = answer;
}

// As the dense tensor would be in memory.
at::Tensor dense(const at::Tensor& self) {
  return at::empty_strided(self.sizes(), self.strides(), self.scalar_type());
}

}  // namespace

bool normals_in_pieces(at::ScalarType dtype) {
  return at::isFloatingType(dtype) && rest_is_drawn(dtype).has_value();
}

void draw_uniform(const at::Tensor& self, double from, double to, const Generator& generator) {
  const Parts parts(self);
  if (!self.is_contiguous()) return parts.put_all(dense(self).uniform_(from, to, generator));
  const std::int64_t chunk = chunk_of(self);
  for (std::int64_t begin = 0; begin < self.numel(); begin += chunk) {
    const std::int64_t count = std::min(chunk, self.numel() - begin);
    parts.put(begin, buffer(self.scalar_type(), count).uniform_(from, to, generator));
  }
}

void draw_normal(const at::Tensor& self, double mean, double std, const Generator& generator) {
  const Parts parts(self);
  const std::int64_t count = self.numel(), blocks = count / kBlock * kBlock;
  const bool by_blocks = blocks > 0 && self.is_contiguous() && !self.is_complex();
  const std::optional<bool> rest = by_blocks ? rest_is_drawn(self.scalar_type()) : std::nullopt;
  if (!rest) return parts.put_all(dense(self).normal_(mean, std, generator));
  const std::int64_t chunk = chunk_of(self);
  for (std::int64_t begin = 0; begin < blocks; begin += chunk) {
    const std::int64_t size = std::min(chunk, blocks - begin);
    parts.put(begin, buffer(self.scalar_type(), size).normal_(mean, std, generator));
  }
  put_tail(self.scalar_type(), count, *rest, mean, std, generator,
           [&](std::int64_t begin, const at::Tensor& last) { parts.put(begin, last); });
}

}  // namespace meshtorch
