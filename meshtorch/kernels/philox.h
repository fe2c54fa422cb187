// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers. An element's value depends on three things only: the seed, the
// number of the op that draws it, and the element's row-major index in the *global* tensor. Whoever
// holds an element computes it alone, so a tensor drawn on any mesh, under any layout and with any
// number of threads has the same bits, and nobody communicates.
//
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011): ten rounds turn a 128-bit counter and a 64-bit key into 128 random bits. Here
//
//   key     = seed
//   counter = (block, op): element i takes word i % 4 of block i / 4, or, where one value needs 64
//   bits
//             (double, fill_integers), words 2 (i % 2) and 2 (i % 2) + 1 of block i / 2
//
// Two draws with the same key are the same numbers: give each op of a program its own `op`.
//
//   at::Tensor mine = at::empty({2, 8});                              // rows 4 and 5 of a [16, 8]
//   tensor fill_normal(mine, {16, 8}, {{4, 6}, {0, 8}}, {.seed = 7, .op = 0}, 0.0, 0.02);
//
// `local` is a plain CPU tensor of any strides whose sizes are those of `box`; it is written in
// place and autograd does not see it. Every function throws Error when box, shape and tensor do not
// fit, the dtype has no such values, or a parameter is out of its range.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include <meshtorch/layout/shard.h>

namespace meshtorch {

struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t op = 0;
};

// One block of Philox4x32-10, least significant words first.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// Uniform in [from, to), floating dtypes. As many random bits as the dtype has digits (24 for
// float).
void fill_uniform(const at::Tensor& local, const Shape& global_shape, const Box& box, RandomKey key,
                  double from = 0.0, double to = 1.0);

// Normal by Box and Muller; elements 2k and 2k + 1 are the cosine and the sine of one pair of
// uniforms. Floating dtypes; half and bfloat16 are rounded from float.
void fill_normal(const at::Tensor& local, const Shape& global_shape, const Box& box, RandomKey key,
                 double mean = 0.0, double std = 1.0);

// One with probability p, else zero; every dtype.
void fill_bernoulli(const at::Tensor& local, const Shape& global_shape, const Box& box,
                    RandomKey key, double p = 0.5);

// Integers in [low, high), every dtype that holds them. The bias is below (high - low) / 2^64.
void fill_integers(const at::Tensor& local, const Shape& global_shape, const Box& box,
                   RandomKey key, std::int64_t low, std::int64_t high);

// A bool tensor of the box's sizes: true (keep) with probability 1 - p. It is the complement of
// fill_bernoulli(p) under the same key.
at::Tensor dropout_mask(const Shape& global_shape, const Box& box, RandomKey key, double p);

// A permutation of 0 .. n-1, whole and the same on every caller: int64, by Fisher and Yates.
at::Tensor randperm(std::int64_t n, RandomKey key);

}  // namespace meshtorch
