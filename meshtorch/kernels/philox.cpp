// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/kernels/philox.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <meshtorch/base/error.h>

// Vectorised clones chosen at load time. Without FMA, so that every clone rounds alike.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define MESHTORCH_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define MESHTORCH_CLONES
#endif

namespace meshtorch {
namespace {

constexpr int kBlocks = 32;  // blocks computed together, across vector lanes
constexpr int kWords = 4 * kBlocks;
constexpr std::int64_t kGrain = 16384;  // elements a thread takes at least

constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

// Blocks first .. first + kBlocks - 1, in order. Unrolled inner loops would not vectorise.
MESHTORCH_CLONES void philox_batch(std::uint64_t first, RandomKey key, std::uint32_t* words) {
  alignas(64) std::uint32_t c[4][kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    const std::uint64_t block = first + static_cast<std::uint64_t>(i);
    c[0][i] = static_cast<std::uint32_t>(block);
    c[1][i] = static_cast<std::uint32_t>(block >> 32);
    c[2][i] = static_cast<std::uint32_t>(key.op);
    c[3][i] = static_cast<std::uint32_t>(key.op >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += kWeyl0, k1 += kWeyl1) {
#pragma GCC unroll 1
    for (int i = 0; i < kBlocks; ++i) {
      const std::uint64_t p0 = std::uint64_t{kMultiplier0} * c[0][i];
      const std::uint64_t p1 = std::uint64_t{kMultiplier1} * c[2][i];
      c[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1][i] ^ k0;
      c[1][i] = static_cast<std::uint32_t>(p1);
      c[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3][i] ^ k1;
      c[3][i] = static_cast<std::uint32_t>(p0);
    }
  }
#pragma GCC unroll 1
  for (int i = 0; i < kBlocks; ++i)
    for (int word = 0; word < 4; ++word) words[4 * i + word] = c[word][i];
}

std::uint64_t word64(const std::uint32_t* words, int i) {
  return words[2 * i] | std::uint64_t{words[2 * i + 1]} << 32;
}

// floor(random / 2^64 * range)
std::uint64_t scale(std::uint64_t random, std::uint64_t range) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(random) * range) >> 64);
}

// The values of any element of one draw, a batch at a time. `Draw` has kPerBlock (elements per
// Philox block) and operator()(words, values), which turns a batch of words into kPerBlock *
// kBlocks values. A value never depends on where its batch began: each is made by the same
// arithmetic.
template <class T, class Draw>
class Stream {
 public:
  Stream(RandomKey key, const Draw& draw) : key_(key), draw_(draw) {}

  // Elements index .. index + count - 1.
  void copy(std::int64_t index, std::int64_t count, T* out) {
    while (count > 0) {
      if (index < begin_ || index >= begin_ + kValues) refill(index / Draw::kPerBlock);
      const auto n = std::min(count, begin_ + kValues - index);
      std::memcpy(static_cast<void*>(out), values_ + (index - begin_),
                  static_cast<std::size_t>(n) * sizeof(T));
      index += n, out += n, count -= n;
    }
  }

 private:
  static constexpr std::int64_t kValues = Draw::kPerBlock * kBlocks;

  void refill(std::int64_t block) {
    alignas(64) std::uint32_t words[kWords];
    philox_batch(static_cast<std::uint64_t>(block), key_, words);
    draw_(words, values_);
    begin_ = block * Draw::kPerBlock;
  }

  RandomKey key_;
  Draw draw_;
  std::int64_t begin_ = -kValues;
  alignas(64) T values_[kValues];
};

void check(const char* op, const at::Tensor& local, const Shape& shape, const Box& box) {
  if (!local.device().is_cpu() || local.layout() != at::kStrided || !local.has_storage())
    fail({op, "local", text("not a plain CPU tensor but on ", local.device().str()),
          "pass one shard (its box says which)"});
  bool fits = box.size() == shape.size() && local.dim() == static_cast<std::int64_t>(box.size());
  for (std::size_t d = 0; fits && d < box.size(); ++d)
    fits = box[d].begin >= 0 && box[d].begin <= box[d].end && box[d].end <= shape[d] &&
           local.size(static_cast<std::int64_t>(d)) == box[d].size();
  if (fits) return;
  std::vector<std::string> intervals;
  for (const auto& i : box) intervals.push_back(text("[", i.begin, ", ", i.end, ")"));
  fail({op, "local",
        text("sizes (", join(local.sizes()), ") are not those of box ", join(intervals, " x "),
             " of global shape (", join(shape), ")"),
        "pass the box of this shard"});
}

void check_probability(const char* op, double p) {
  if (!(p >= 0.0 && p <= 1.0)) fail({op, "p", text(p, " is not a probability"), "use 0 <= p <= 1"});
}

// A draw's elements of `box`, row-major into `out`.
template <class T, class Draw>
void fill_box(T* out, const Shape& shape, const Box& box, RandomKey key, const Draw& draw) {
  // Dimensions that the box holds whole join the one before them: longer runs.
  std::int64_t run = 1, plane = 1;
  std::size_t outer = box.size();
  while (outer > 0) {
    --outer;
    run *= box[outer].size();
    if (box[outer].size() != shape[outer]) break;
    plane *= shape[outer];
  }
  std::int64_t total = run, first = 0;
  for (std::size_t d = 0; d < outer; ++d) total *= box[d].size();
  if (total == 0) return;
  if (!box.empty()) first = box[outer].begin * plane;
  const std::int64_t row_stride = box.empty() ? 1 : shape[outer] * plane;

  at::parallel_for(0, total, kGrain, [&](std::int64_t begin, std::int64_t end) {
    Stream<T, Draw> stream(key, draw);
    while (begin < end) {
      std::int64_t row = begin / run, index = 0, stride = row_stride;
      for (std::size_t d = outer; d-- > 0;) {
        index += (box[d].begin + row % box[d].size()) * stride;
        row /= box[d].size();
        stride *= shape[d];
      }
      const std::int64_t column = begin % run, count = std::min(run - column, end - begin);
      stream.copy(index + first + column, count, out + begin);
      begin += count;
    }
  });
}

template <class T, class Draw>
void fill_tensor(const at::Tensor& local, const Shape& shape, const Box& box, RandomKey key,
                 const Draw& draw) {
  at::AutoDispatchBelowADInplaceOrView plain;
  const bool direct = local.is_contiguous() && !local.is_neg();
  const at::Tensor target = direct ? local : at::empty(local.sizes(), local.options());
  fill_box(target.mutable_data_ptr<T>(), shape, box, key, draw);
  if (!direct) local.copy_(target);
}

template <class T>
constexpr bool kIsDouble = std::is_same_v<T, double>;
template <class T>
using Compute = std::conditional_t<kIsDouble<T>, double, float>;
// c10::Half and c10::BFloat16 have numeric_limits of their own.
template <class T>
constexpr int kDigits = std::numeric_limits<T>::digits;

template <class T>
struct Uniform {
  static constexpr int kPerBlock = kIsDouble<T> ? 2 : 4;
  Compute<T> from, to;

  void operator()(const std::uint32_t* words, T* values) const {
    for (int i = 0; i < kPerBlock * kBlocks; ++i) {
      Compute<T> u;
      if constexpr (kIsDouble<T>) {
        u = static_cast<double>(static_cast<std::int64_t>(word64(words, i) >> 11)) * 0x1p-53;
      } else {
        u = static_cast<float>(static_cast<std::int32_t>(words[i] >> (32 - kDigits<T>))) *
            (1.0f / static_cast<float>(1 << kDigits<T>));
      }
      const T value = static_cast<T>(u * (to - from) + from);
      values[i] = static_cast<Compute<T>>(value) < to ? value : static_cast<T>(from);  // rounded up
    }
  }
};

// Logarithm of a normal positive float, after Cephes' logf (Moshier); within 1 ulp or so.
inline float log_float(float x) {
  std::int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  // Mantissa in [sqrt(1/2), sqrt(2)).
  const std::int32_t exponent = (bits - 0x3f3504f3) >> 23;
  bits -= exponent * (1 << 23);
  float m;
  std::memcpy(&m, &bits, sizeof m);
  const float e = static_cast<float>(exponent);
  m -= 1.0f;
  const float z = m * m;
  float y = 7.0376836292e-2f;
  y = y * m - 1.1514610310e-1f;
  y = y * m + 1.1676998740e-1f;
  y = y * m - 1.2420140846e-1f;
  y = y * m + 1.4249322787e-1f;
  y = y * m - 1.6668057665e-1f;
  y = y * m + 2.0000714765e-1f;
  y = y * m - 2.4999993993e-1f;
  y = y * m + 3.3333331174e-1f;
  y = y * m * z - 2.12194440e-4f * e - 0.5f * z;
  return m + y + 0.693359375f * e;
}

// Cosine and sine of 2 pi u for u in [0, 1], after Cephes' sinf and cosf.
inline void cos_sin_turn(float u, float& cosine, float& sine) {
  const auto quadrant = static_cast<std::int32_t>(4.0f * u + 0.5f);
  const float x = (4.0f * u - static_cast<float>(quadrant)) * 1.57079632679f;  // [-pi/4, pi/4]
  const float z = x * x;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const bool odd = (quadrant & 1) != 0;
  const float a = odd ? s : c, b = odd ? c : s;
  cosine = a * static_cast<float>(1 - ((quadrant + 1) & 2));  // signs without a branch
  sine = b * static_cast<float>(1 - (quadrant & 2));
}

// libm's sqrtf may set errno, which keeps it scalar.
void sqrt_in_place(float* values, int n) {
#if defined(__SSE__)
  for (int i = 0; i < n; i += 4) _mm_store_ps(values + i, _mm_sqrt_ps(_mm_load_ps(values + i)));
#else
  for (int i = 0; i < n; ++i) values[i] = std::sqrt(values[i]);
#endif
}

MESHTORCH_CLONES void polar(const std::uint32_t* words, float* squares, float* cosines,
                            float* sines) {
#pragma GCC unroll 1
  for (int i = 0; i < kWords / 2; ++i) {
    // Signed conversions are single instructions, hence the shifts. The radius is in (0, 1].
    const float radius =
        static_cast<float>(static_cast<std::int32_t>(words[2 * i] >> 1)) * 0x1p-31f + 0x1p-33f;
    const float turn =
        static_cast<float>(static_cast<std::int32_t>(words[2 * i + 1] >> 8)) * 0x1p-24f;
    squares[i] = -2.0f * log_float(radius);
    cos_sin_turn(turn, cosines[i], sines[i]);
  }
}

// Standard normals. The arithmetic is our own: libm's would differ from one C library to the next.
void normal_batch(const std::uint32_t* words, float* values) {
  constexpr int kPairs = kWords / 2;
  alignas(64) float radii[kPairs], cosines[kPairs], sines[kPairs];
  polar(words, radii, cosines, sines);
  sqrt_in_place(radii, kPairs);
  for (int i = 0; i < kPairs; ++i) {
    values[2 * i] = radii[i] * cosines[i];
    values[2 * i + 1] = radii[i] * sines[i];
  }
}

void normal_batch(const std::uint32_t* words, double* values) {
  for (int i = 0; i < kBlocks; ++i) {
    const double radius = (static_cast<double>(word64(words, 2 * i) >> 11) + 1.0) * 0x1p-53;
    const double turn = static_cast<double>(word64(words, 2 * i + 1) >> 11) * 0x1p-53;
    const double r = std::sqrt(-2.0 * std::log(radius));
    values[2 * i] = r * std::cos(6.283185307179586 * turn);
    values[2 * i + 1] = r * std::sin(6.283185307179586 * turn);
  }
}

template <class T>
struct Normal {
  static constexpr int kPerBlock = kIsDouble<T> ? 2 : 4;
  Compute<T> mean, std;

  void operator()(const std::uint32_t* words, T* values) const {
    alignas(64) Compute<T> standard[kPerBlock * kBlocks];
    normal_batch(words, standard);
    for (int i = 0; i < kPerBlock * kBlocks; ++i)
      values[i] = static_cast<T>(standard[i] * std + mean);
  }
};

// `Invert` draws the zeros of one draw as ones.
template <class T, bool Invert = false>
struct Bernoulli {
  static constexpr int kPerBlock = 4;
  std::uint32_t below;  // a word under it is a one
  bool always;          // p = 1: no 32-bit threshold says that

  explicit Bernoulli(double p)
      : below(static_cast<std::uint32_t>(std::min(p * 0x1p32, 0x1p32 - 1))), always(p == 1.0) {}

  void operator()(const std::uint32_t* words, T* values) const {
    for (int i = 0; i < kWords; ++i)
      values[i] = static_cast<T>(((words[i] < below) | always) != Invert);
  }
};

template <class T>
struct Integers {
  static constexpr int kPerBlock = 2;
  std::int64_t low;
  std::uint64_t range;

  void operator()(const std::uint32_t* words, T* values) const {
    for (int i = 0; i < 2 * kBlocks; ++i)
      values[i] = static_cast<T>(static_cast<std::int64_t>(static_cast<std::uint64_t>(low) +
                                                           scale(word64(words, i), range)));
  }
};

template <class T>
bool holds(std::int64_t value) {
  if constexpr (std::is_integral_v<T>) {
    return value >= static_cast<std::int64_t>(std::numeric_limits<T>::min()) &&
           value <= static_cast<std::int64_t>(std::numeric_limits<T>::max());
  } else {
    return std::abs(static_cast<double>(value)) <= std::ldexp(1.0, kDigits<T>);
  }
}

// Calls f with a value of the dtype's C++ type.
template <class F>
void with_floating(const char* op, at::ScalarType dtype, F&& f) {
  switch (dtype) {
    case at::kFloat:
      return f(float{});
    case at::kDouble:
      return f(double{});
    case at::kHalf:
      return f(at::Half{});
    case at::kBFloat16:
      return f(at::BFloat16{});
    default:
      fail({op, "local", text("dtype ", dtype, " is not floating"),
            "use float, double, half or bfloat16"});
  }
}

template <class F>
void with_real(const char* op, at::ScalarType dtype, F&& f) {
  switch (dtype) {
    case at::kByte:
      return f(std::uint8_t{});
    case at::kChar:
      return f(std::int8_t{});
    case at::kShort:
      return f(std::int16_t{});
    case at::kInt:
      return f(std::int32_t{});
    case at::kLong:
      return f(std::int64_t{});
    case at::kBool:
      return f(bool{});
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      return with_floating(op, dtype, f);
    default:
      fail({op, "local", text("dtype ", dtype, " has no such values"),
            "use a real dtype, 8-bit floats and uint16 to uint64 aside"});
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  std::uint32_t words[kWords];
  const RandomKey random{key[0] | std::uint64_t{key[1]} << 32,
                         counter[2] | std::uint64_t{counter[3]} << 32};
  philox_batch(counter[0] | std::uint64_t{counter[1]} << 32, random, words);
  return {words[0], words[1], words[2], words[3]};
}

void fill_uniform(const at::Tensor& local, const Shape& global_shape, const Box& box, RandomKey key,
                  double from, double to) {
  const char* op = "fill_uniform";
  check(op, local, global_shape, box);
  if (!(from <= to) || !std::isfinite(to - from))
    fail({op, "range", text("[", from, ", ", to, ") is not an interval"), "use finite from <= to"});
  with_floating(op, local.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    fill_tensor<T>(local, global_shape, box, key,
                   Uniform<T>{static_cast<Compute<T>>(from), static_cast<Compute<T>>(to)});
  });
}

void fill_normal(const at::Tensor& local, const Shape& global_shape, const Box& box, RandomKey key,
                 double mean, double std) {
  const char* op = "fill_normal";
  check(op, local, global_shape, box);
  if (!(std >= 0.0)) fail({op, "std", text(std, " is negative or not a number"), "use std >= 0"});
  with_floating(op, local.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    fill_tensor<T>(local, global_shape, box, key,
                   Normal<T>{static_cast<Compute<T>>(mean), static_cast<Compute<T>>(std)});
  });
}

void fill_bernoulli(const at::Tensor& local, const Shape& global_shape, const Box& box,
                    RandomKey key, double p) {
  const char* op = "fill_bernoulli";
  check(op, local, global_shape, box);
  check_probability(op, p);
  with_real(op, local.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    fill_tensor<T>(local, global_shape, box, key, Bernoulli<T>(p));
  });
}

void fill_integers(const at::Tensor& local, const Shape& global_shape, const Box& box,
                   RandomKey key, std::int64_t low, std::int64_t high) {
  const char* op = "fill_integers";
  check(op, local, global_shape, box);
  if (low >= high) fail({op, "range", text("[", low, ", ", high, ") is empty"), "use low < high"});
  with_real(op, local.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (!holds<T>(low) || !holds<T>(high - 1))
      fail({op, "range",
            text("[", low, ", ", high, ") has values that ", local.scalar_type(), " does not hold"),
            "use a wider dtype or a smaller range"});
    const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
    fill_tensor<T>(local, global_shape, box, key, Integers<T>{low, range});
  });
}

at::Tensor dropout_mask(const Shape& global_shape, const Box& box, RandomKey key, double p) {
  Shape sizes;
  for (const auto& interval : box) sizes.push_back(interval.size());
  at::AutoDispatchBelowADInplaceOrView plain;
  const at::Tensor mask = at::empty(sizes, at::TensorOptions().dtype(at::kBool));
  check("dropout_mask", mask, global_shape, box);
  check_probability("dropout_mask", p);
  fill_tensor<bool>(mask, global_shape, box, key, Bernoulli<bool, true>(p));
  return mask;
}

at::Tensor randperm(std::int64_t n, RandomKey key) {
  if (n < 0) fail({"randperm", "n", text(n, " is negative"), "use n >= 0"});
  at::AutoDispatchBelowADInplaceOrView plain;
  const at::Tensor permutation = at::empty({n}, at::TensorOptions().dtype(at::kLong));
  auto* order = permutation.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < n; ++i) order[i] = i;
  alignas(64) std::uint32_t words[kWords];
  constexpr std::int64_t kDraws = kWords / 2;
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    if (i % kDraws == 0) philox_batch(static_cast<std::uint64_t>(i / 2), key, words);
    const auto left = static_cast<std::uint64_t>(n - i);
    const auto j = scale(word64(words, static_cast<int>(i % kDraws)), left);
    std::swap(order[i], order[i + static_cast<std::int64_t>(j)]);
  }
  return permutation;
}

}  // namespace meshtorch
