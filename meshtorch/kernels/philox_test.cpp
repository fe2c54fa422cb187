// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/kernels/philox.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <meshtorch/base/error.h>

namespace meshtorch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr RandomKey kKey{.seed = 0x0123456789abcdef, .op = 42};

Box whole_box(const Shape& shape) {
  Box box;
  for (const auto n : shape) box.push_back({0, n});
  return box;
}

at::Tensor cut(at::Tensor tensor, const Box& box) {
  for (std::size_t d = 0; d < box.size(); ++d)
    tensor = tensor.slice(static_cast<std::int64_t>(d), box[d].begin, box[d].end);
  return tensor;
}

Shape sizes(const Box& box) {
  Shape result;
  for (const auto& i : box) result.push_back(i.size());
  return result;
}

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

using Fill = std::function<void(const at::Tensor&, const Shape&, const Box&)>;

struct Draw {
  std::string name;
  at::ScalarType dtype;
  Fill fill;
};

std::vector<Draw> draws() {
  std::vector<Draw> all;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    all.push_back(
        {"uniform", dtype, [](auto& t, auto& s, auto& b) { fill_uniform(t, s, b, kKey, -1, 3); }});
    all.push_back(
        {"normal", dtype, [](auto& t, auto& s, auto& b) { fill_normal(t, s, b, kKey, 1, 2); }});
  }
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kBool, at::kLong, at::kByte}) {
    all.push_back({"bernoulli", dtype,
                   [](auto& t, auto& s, auto& b) { fill_bernoulli(t, s, b, kKey, 0.3); }});
    all.push_back(
        {"integers", dtype, [](auto& t, auto& s, auto& b) { fill_integers(t, s, b, kKey, 0, 2); }});
  }
  return all;
}

// Vectors of the Random123 distribution, tests/kat_vectors.
TEST(Philox, known_answers) {
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  const std::uint32_t f = 0xffffffff;
  EXPECT_THAT(philox4x32({f, f, f, f}, {f, f}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(
      philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, elements_are_the_words_of_their_blocks) {
  const auto t = at::empty({1000}, at::kFloat);
  fill_uniform(t, {1000}, whole_box({1000}), kKey);
  const auto d = at::empty({1000}, at::kDouble);
  fill_uniform(d, {1000}, whole_box({1000}), kKey);
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::array<std::uint32_t, 2> seed{0x89abcdef, 0x01234567};
    const auto words = philox4x32({i / 4, 0, 42, 0}, seed);
    ASSERT_EQ(t[i].item<float>(), static_cast<float>(words[i % 4] >> 8) * 0x1p-24f);
    const auto pair = philox4x32({i / 2, 0, 42, 0}, seed);
    const auto wide = pair[i % 2 * 2] | std::uint64_t{pair[i % 2 * 2 + 1]} << 32;
    ASSERT_EQ(d[i].item<double>(), static_cast<double>(wide >> 11) * 0x1p-53);
  }
}

TEST(Philox, every_box_has_the_numbers_of_the_whole) {
  const std::vector<std::pair<Shape, std::vector<Box>>> cases{
      {{}, {{}}},
      {{1}, {{{0, 1}}, {{1, 1}}}},
      {{1001}, {{{0, 501}}, {{501, 1001}}, {{7, 8}}, {{333, 777}}}},
      {{16, 8}, {{{4, 6}, {0, 8}}, {{0, 16}, {4, 8}}, {{15, 16}, {7, 8}}, {{5, 5}, {0, 8}}}},
      {{5, 7, 3},
       {{{0, 3}, {0, 7}, {0, 3}},
        {{3, 5}, {4, 7}, {0, 3}},
        {{0, 5}, {2, 3}, {1, 2}},
        {{1, 2}, {0, 7}, {2, 3}},
        {{0, 5}, {3, 6}, {0, 3}}}},
      {{0, 4}, {{{0, 0}, {1, 3}}}},
      {{64, 1030}, {{{0, 64}, {0, 515}}, {{0, 64}, {515, 1030}}, {{32, 64}, {0, 1030}}}},
  };
  for (const auto& draw : draws()) {
    for (const auto& [shape, boxes] : cases) {
      const auto dense = at::empty(shape, draw.dtype);
      draw.fill(dense, shape, whole_box(shape));
      for (const auto& box : boxes) {
        const auto local = at::empty(sizes(box), draw.dtype);
        draw.fill(local, shape, box);
        EXPECT_TRUE(local.equal(cut(dense, box)))
            << draw.name << " " << draw.dtype << " " << dense.sizes();
      }
    }
  }
}

TEST(Philox, strides_do_not_matter) {
  const Shape shape{6, 10, 4};
  const Box box{{2, 6}, {3, 10}, {0, 4}};
  for (const auto& draw : draws()) {
    const auto dense = at::empty(sizes(box), draw.dtype);
    draw.fill(dense, shape, box);
    const auto transposed = at::empty({4, 7, 4}, draw.dtype).transpose(0, 2);
    draw.fill(transposed, shape, box);
    EXPECT_TRUE(transposed.equal(dense)) << draw.name;
    const auto base = at::zeros({4, 7, 8}, draw.dtype);
    draw.fill(base.slice(2, 0, 8, 2), shape, box);
    EXPECT_TRUE(base.slice(2, 0, 8, 2).equal(dense)) << draw.name;
    EXPECT_EQ(base.slice(2, 1, 8, 2).ne(0).sum().item<std::int64_t>(), 0)
        << "wrote between the strides";
  }
}

TEST(Philox, threads_do_not_matter) {
  const Shape shape{300, 1001};
  const Box box{{0, 300}, {500, 1001}};
  const int threads = at::get_num_threads();
  const auto many = at::empty(sizes(box), at::kFloat), one = at::empty_like(many);
  fill_normal(many, shape, box, kKey);
  at::set_num_threads(1);
  fill_normal(one, shape, box, kKey);
  at::set_num_threads(threads);
  EXPECT_TRUE(many.equal(one));
}

TEST(Philox, indices_beyond_32_bits) {
  const Shape shape{1LL << 20, 1LL << 20};
  const auto a = at::empty({1, 16}, at::kFloat), b = at::empty({1, 16}, at::kFloat);
  fill_uniform(a, shape, {{0, 1}, {0, 16}}, kKey);
  fill_uniform(b, shape, {{1 << 14, (1 << 14) + 1}, {0, 16}}, kKey);  // index 2^34, block 2^32
  EXPECT_FALSE(a.equal(b));
  const auto words = philox4x32({0, 1, 42, 0}, {0x89abcdef, 0x01234567});
  EXPECT_EQ(b[0][1].item<float>(), static_cast<float>(words[1] >> 8) * 0x1p-24f);
}

TEST(Philox, seeds_and_ops_are_streams) {
  const Shape shape{4096};
  const auto draw = [&](RandomKey key) {
    auto t = at::empty(shape, at::kDouble);
    fill_normal(t, shape, whole_box(shape), key);
    return t;
  };
  const auto base = draw({1, 1});
  EXPECT_TRUE(base.equal(draw({1, 1})));
  for (const RandomKey other : {RandomKey{2, 1}, RandomKey{1, 2}, RandomKey{1ull << 32 | 1, 1},
                                RandomKey{1, 1ull << 32 | 1}})
    EXPECT_LT(std::abs((base * draw(other)).mean().item<double>()), 0.08);
}

TEST(Philox, moments) {
  const Shape shape{1000, 1001};
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const auto t = at::empty(shape, dtype);
    fill_uniform(t, shape, whole_box(shape), kKey, -1, 3);
    auto d = t.to(at::kDouble);
    EXPECT_NEAR(d.mean().item<double>(), dtype == at::kBFloat16 ? 0.992 : 1.0, 0.008) << dtype;
    EXPECT_NEAR(d.std().item<double>(), 4 / std::sqrt(12.0), 0.01) << dtype;
    EXPECT_GE(d.min().item<double>(), -1.0);
    EXPECT_LT(d.max().item<double>(), 3.0) << dtype;
    fill_normal(t, shape, whole_box(shape), kKey, 1, 2);
    d = (t.to(at::kDouble) - 1) / 2;
    EXPECT_NEAR(d.mean().item<double>(), 0.0, 0.005) << dtype;
    EXPECT_NEAR(d.std().item<double>(), 1.0, 0.005) << dtype;
    EXPECT_NEAR(d.pow(3).mean().item<double>(), 0.0, 0.02) << dtype;
    EXPECT_NEAR(d.pow(4).mean().item<double>(), 3.0, 0.05) << dtype;
    EXPECT_NEAR(d.abs().le(1).to(at::kDouble).mean().item<double>(), 0.6827, 0.004) << dtype;
    EXPECT_GT(d.abs().max().item<double>(), 4.2) << dtype;
  }
}

TEST(Philox, normals_are_box_muller_of_their_words) {
  const Shape shape{100000};
  const auto t = at::empty(shape, at::kFloat);
  fill_normal(t, shape, whole_box(shape), kKey);
  const float* values = t.const_data_ptr<float>();
  for (std::uint32_t i = 0; i < 100000; i += 2) {
    const auto words = philox4x32({i / 4, 0, 42, 0}, {0x89abcdef, 0x01234567});
    const float radius = static_cast<float>(words[i % 4] >> 1) * 0x1p-31f + 0x1p-33f;
    const double angle = (words[i % 4 + 1] >> 8) * 0x1p-24 * 2 * M_PI,
                 r = std::sqrt(-2 * std::log(double{radius}));
    ASSERT_NEAR(values[i], r * std::cos(angle), 2e-6) << i;
    ASSERT_NEAR(values[i + 1], r * std::sin(angle), 2e-6) << i;
  }
}

TEST(Philox, bernoulli_and_dropout_are_complements) {
  const Shape shape{1000, 999};
  const Box box = whole_box(shape);
  const auto ones = at::empty(shape, at::kBool);
  for (const double p : {0.0, 1e-3, 0.1, 0.5, 0.9, 1.0}) {
    fill_bernoulli(ones, shape, box, kKey, p);
    EXPECT_NEAR(ones.to(at::kDouble).mean().item<double>(), p, 2e-3);
    EXPECT_TRUE(dropout_mask(shape, box, kKey, p).equal(ones.logical_not()));
  }
  fill_bernoulli(ones, shape, box, kKey, 1.0);
  EXPECT_TRUE(ones.all().item<bool>());
}

TEST(Philox, integers_cover_their_range) {
  const Shape shape{70000};
  const Box box = whole_box(shape);
  const auto t = at::empty(shape, at::kLong);
  fill_integers(t, shape, box, kKey, -3, 4);
  const auto counts = (t + 3).bincount();
  EXPECT_EQ(counts.numel(), 7);
  EXPECT_GT(counts.min().item<std::int64_t>(), 9600);
  EXPECT_LT(counts.max().item<std::int64_t>(), 10400);
  constexpr auto min = std::numeric_limits<std::int64_t>::min();
  fill_integers(t, shape, box, kKey, min, std::numeric_limits<std::int64_t>::max());
  EXPECT_NEAR(t.gt(0).to(at::kDouble).mean().item<double>(), 0.5, 0.01);
  fill_integers(at::empty(shape, at::kByte), shape, box, kKey, 0, 256);
}

TEST(Philox, randperm_is_a_permutation) {
  for (const std::int64_t n : {0, 1, 2, 31, 32, 33, 10000}) {
    const auto p = randperm(n, kKey);
    EXPECT_EQ(p.scalar_type(), at::kLong);
    EXPECT_TRUE(std::get<0>(p.sort()).equal(at::arange(n, at::kLong)));
    EXPECT_TRUE(p.equal(randperm(n, kKey)));
  }
  EXPECT_FALSE(randperm(100, kKey).equal(randperm(100, {kKey.seed, 43})));
  auto sums = at::zeros({8, 8}, at::kLong);  // [place, value]
  for (std::uint64_t op = 0; op < 4000; ++op)
    sums += randperm(8, {9, op}).unsqueeze(1).eq(at::arange(8)).to(at::kLong);
  EXPECT_GT(sums.min().item<std::int64_t>(), 400);
  EXPECT_LT(sums.max().item<std::int64_t>(), 600);
}

TEST(Philox, scalars_and_grad_leaves) {
  auto parameter = at::zeros({4, 4}).requires_grad_(true);
  fill_normal(parameter, {4, 4}, whole_box({4, 4}), kKey);
  EXPECT_TRUE(parameter.ne(0).all().item<bool>());
  EXPECT_FALSE(parameter.grad_fn());
}

TEST(Philox, errors) {
  const auto t = at::empty({2, 8});
  EXPECT_EQ(message([&] {
              fill_normal(t, {16, 8}, {{4, 7}, {0, 8}}, kKey);
            }),
            "[fill_normal] local: sizes (2, 8) are not those of box [4, 7) x [0, 8) of global "
            "shape (16, 8); "
            "pass the box of this shard");
  EXPECT_THAT(message([&] {
                fill_normal(t, {16, 8}, {{15, 17}, {0, 8}}, kKey);
              }),
              HasSubstr("[15, 17)"));
  EXPECT_THAT(message([&] {
                fill_normal(t, {16}, {{0, 2}}, kKey);
              }),
              HasSubstr("global shape (16)"));
  const Box box{{0, 2}, {0, 8}};
  EXPECT_EQ(message([&] {
              fill_bernoulli(t, {2, 8}, box, kKey, 1.5);
            }),
            "[fill_bernoulli] p: 1.5 is not a probability; use 0 <= p <= 1");
  EXPECT_EQ(message([&] {
              dropout_mask({2, 8}, box, kKey, std::nan(""));
            }),
            "[dropout_mask] p: nan is not a probability; use 0 <= p <= 1");
  EXPECT_EQ(message([&] {
              fill_normal(t, {2, 8}, box, kKey, 0, -1);
            }),
            "[fill_normal] std: -1 is negative or not a number; use std >= 0");
  EXPECT_EQ(message([&] {
              fill_uniform(t, {2, 8}, box, kKey, 2, 1);
            }),
            "[fill_uniform] range: [2, 1) is not an interval; use finite from <= to");
  EXPECT_EQ(message([&] {
              fill_integers(t, {2, 8}, box, kKey, 3, 3);
            }),
            "[fill_integers] range: [3, 3) is empty; use low < high");
  EXPECT_EQ(
      message([&] {
        fill_integers(t.to(at::kByte), {2, 8}, box, kKey, 0, 257);
      }),
      "[fill_integers] range: [0, 257) has values that Byte does not hold; use a wider dtype or a "
      "smaller range");
  EXPECT_EQ(
      message([&] {
        fill_uniform(t.to(at::kLong), {2, 8}, box, kKey);
      }),
      "[fill_uniform] local: dtype Long is not floating; use float, double, half or bfloat16");
  EXPECT_EQ(message([&] {
              fill_bernoulli(t.to(at::kComplexFloat), {2, 8}, box, kKey);
            }),
            "[fill_bernoulli] local: dtype ComplexFloat has no such values; use a real dtype, "
            "8-bit floats and "
            "uint16 to uint64 aside");
  EXPECT_EQ(message([&] {
              fill_normal(t.to(at::kMeta), {2, 8}, box, kKey);
            }),
            "[fill_normal] local: not a plain CPU tensor but on meta; pass one shard (its box says "
            "which)");
  EXPECT_EQ(message([&] { randperm(-1, kKey); }), "[randperm] n: -1 is negative; use n >= 0");
}

// --gtest_also_run_disabled_tests --gtest_filter=*speed
TEST(Philox, DISABLED_speed) {
  const Shape shape{4096, 2048};
  const Box box = whole_box(shape);
  const auto floats = at::empty(shape, at::kFloat);
  const auto time = [&](const char* name, auto f) {
    f();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; ++i) f();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    std::printf("%-12s %.2f ns an element, %d threads\n", name,
                spent.count() / 3 / static_cast<double>(floats.numel()), at::get_num_threads());
  };
  time("uniform", [&] { fill_uniform(floats, shape, box, kKey); });
  time("normal", [&] { fill_normal(floats, shape, box, kKey); });
  time("bernoulli", [&] { fill_bernoulli(floats, shape, box, kKey, 0.1); });
  time("dropout", [&] { dropout_mask(shape, box, kKey, 0.1); });
  time("at::normal_", [&] { floats.normal_(); });
  time("at::bernoulli_", [&] { floats.bernoulli_(0.1); });
}

}  // namespace
}  // namespace meshtorch
