// SPDX-License-Identifier: Apache-2.0
// Group random, first half: draws that are fixed bit for bit, or within 4 ulp
// where functions such as the logarithm are involved.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "kit.h"
#include "random_kit.h"
#include "reference.h"

namespace npu::kit {
namespace {

constexpr npu_dtype kFloats[] = {NPU_F16, NPU_BF16, NPU_F32, NPU_F64};
constexpr npu_dtype kIntegers[] = {
    NPU_BOOL,
    NPU_U8,
    NPU_I8,
    NPU_I16,
    NPU_I32,
    NPU_I64,
    NPU_U16,
    NPU_U32,
    NPU_U64};
constexpr std::int64_t kCounts[] = {1, 2, 3, 5, 31, 127, 2049, 9001};
constexpr npu_rng kSeeds[] = {
    {0, 0, nullptr, nullptr},
    {42, 4, nullptr, nullptr},
    {0xfedcba9876543210, 0x3fffffff0, nullptr, nullptr}};

// expected(words, i) is element i of a draw; compared bit for bit.
void check_bits(
    RandomCall draw,
    const std::function<Value(const Words&, std::uint64_t)>& expected) {
  if (!draw.declared()) {
    return;
  }
  SCOPED_TRACE(draw.name());
  for (const npu_rng& rng : kSeeds) {
    for (const std::int64_t n : kCounts) {
      draw.n = n;
      draw.rng = rng;
      const Bytes got = draw.run();
      const Words words(rng.seed, rng.offset);
      const std::uint64_t size = npu_dtype_bytes(draw.dtype);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        std::uint8_t bytes[16];
        store(draw.dtype, expected(words, at), bytes);
        ASSERT_EQ(std::memcmp(bytes, got.data() + at * size, size), 0)
            << "element " << i << " of " << n << " is "
            << load(draw.dtype, got.data() + at * size).number.real()
            << ", expected " << load(draw.dtype, bytes).number.real();
      }
    }
  }
}

// The same within `limit` ulp, or `slack` in absolute value.
void check_close(
    RandomCall draw,
    const std::function<double(const Words&, std::uint64_t)>& expected,
    double limit = 4,
    const std::function<double(double)>& slack = [](double) { return 0.0; }) {
  if (!draw.declared()) {
    return;
  }
  SCOPED_TRACE(draw.name());
  for (const npu_rng& rng : kSeeds) {
    for (const std::int64_t n : {1, 7, 2049, 9001}) {
      draw.n = n;
      draw.rng = rng;
      const Bytes got = draw.run();
      const Words words(rng.seed, rng.offset);
      const std::uint64_t size = npu_dtype_bytes(draw.dtype);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        const double want = expected(words, at);
        const double have =
            load(draw.dtype, got.data() + at * size).number.real();
        const double distance = ulps(draw.dtype, have, want);
        ASSERT_TRUE(distance <= limit || std::fabs(have - want) <= slack(want))
            << "element " << i << " of " << n << " is " << have << ", expected "
            << want << " (" << distance << " ulp)";
      }
    }
  }
}

double unit(npu_dtype dtype, const Words& words, std::uint64_t i) {
  switch (dtype) {
    case NPU_F64:
      return static_cast<double>(words.wide(i) >> 11) * 0x1p-53;
    case NPU_F16:
      return (words(i) >> 21) * 0x1p-11;
    case NPU_BF16:
      return (words(i) >> 24) * 0x1p-8;
    default:
      return (words(i) >> 8) * 0x1p-24;
  }
}

// What the transformed distributions start from: never fewer than 24 bits.
double wide_unit(npu_dtype dtype, const Words& words, std::uint64_t i) {
  return unit(dtype == NPU_F64 ? NPU_F64 : NPU_F32, words, i);
}

double rounded(npu_dtype dtype, double value) {
  std::uint8_t bytes[16];
  store(dtype, {.number = value}, bytes);
  return load(dtype, bytes).number.real();
}

TEST(random, Uniform) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  constexpr double kRanges[][2] = {{0, 1}, {-1, 1}, {-0.3, 2.7}, {5, 5}};
  for (const npu_dtype dtype : kFloats) {
    for (const auto& range : kRanges) {
      const double from = rounded(dtype, range[0]);
      const double to = rounded(dtype, range[1]);
      check_bits(
          {NPU_RANDOM_UNIFORM, dtype, range[0], range[1]},
          [=](const Words& words, std::uint64_t i) -> Value {
            const double u = unit(dtype, words, i);
            double x = 0;
            if (dtype == NPU_F64) {
              const volatile double product = u * (to - from);
              x = product + from;
            } else {
              const float width =
                  static_cast<float>(to) - static_cast<float>(from);
              const volatile float product = static_cast<float>(u) * width;
              x = product + static_cast<float>(from);
            }
            x = rounded(dtype, x);
            return {.number = x == to ? from : x};
          });
    }
  }
}

TEST(random, Bernoulli) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_BERNOULLI);
  std::vector<npu_dtype> dtypes(std::begin(kFloats), std::end(kFloats));
  dtypes.insert(dtypes.end(), std::begin(kIntegers), std::end(kIntegers));
  for (const npu_dtype dtype : dtypes) {
    for (const double p : {0.0, 0.25, 0.7, 1.0, 1e-10}) {
      const auto limit = static_cast<std::uint64_t>(p * 0x1p32);
      check_bits(
          {NPU_RANDOM_BERNOULLI, dtype, p, 0},
          [=](const Words& words, std::uint64_t i) -> Value {
            return {.number = words(i) < limit ? 1 : 0};
          });
    }
  }
}

TEST(random, BernoulliWithTensor) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_BERNOULLI);
  for (const npu_dtype p_dtype : kFloats) {
    for (const npu_dtype dtype : {NPU_F32, NPU_BOOL, NPU_I64, NPU_BF16}) {
      RandomCall draw{NPU_RANDOM_BERNOULLI, dtype, 0, 0};
      draw.p_dtype = p_dtype;
      draw.p = [](std::int64_t i) { return static_cast<double>(i % 17) / 16; };
      check_bits(draw, [=](const Words& words, std::uint64_t i) -> Value {
        const double p = rounded(p_dtype, static_cast<double>(i % 17) / 16);
        return {.number = words(i) < static_cast<std::uint64_t>(p * 0x1p32)};
      });
    }
  }
}

TEST(random, Integers) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_INT);
  struct Range {
    std::int64_t low;
    std::uint64_t range;  // 0 = 2^64
  };
  const Range ranges[] = {
      {0, 1},
      {0, 2},
      {-5, 11},
      {0, 100},
      {0, std::uint64_t{1} << 32},
      {-7, (std::uint64_t{1} << 32) + 1},
      {INT64_MIN, 0},
      {INT64_MIN, UINT64_MAX},
      {-1000000007, std::uint64_t{1} << 40}};
  std::vector<npu_dtype> dtypes(std::begin(kIntegers) + 1, std::end(kIntegers));
  dtypes.insert(dtypes.end(), std::begin(kFloats), std::end(kFloats));
  for (const Range& range : ranges) {
    const bool wide =
        range.range == 0 || range.range > (std::uint64_t{1} << 32);
    for (const npu_dtype dtype : dtypes) {
      if (dtype == NPU_F16 && (range.range == 0 || range.range > 2048)) {
        continue;  // beyond float16
      }
      RandomCall draw{NPU_RANDOM_INT, dtype, 0, 0};
      draw.low = range.low;
      draw.range = range.range;
      check_bits(draw, [=](const Words& words, std::uint64_t i) -> Value {
        const std::uint64_t word = wide ? words.wide(i) : words(i);
        const auto product = static_cast<unsigned __int128>(word) * range.range;
        const std::uint64_t step =
            range.range == 0
                ? word
                : static_cast<std::uint64_t>(product >> (wide ? 64 : 32));
        const auto value = static_cast<std::int64_t>(
            static_cast<std::uint64_t>(range.low) + step);
        return {true, false, value, static_cast<double>(value)};
      });
    }
  }
}

// Element i of a standard normal, from the words as the contract says.
double reference_normal(npu_dtype dtype, const Words& w, std::uint64_t i) {
  const std::uint64_t k = i / 2;
  double u1 = 0;
  double u2 = 0;
  if (dtype == NPU_F64) {
    u1 = static_cast<double>(w.wide(2 * k) >> 11) * 0x1p-53 + 0x1p-54;
    u2 = static_cast<double>(w.wide(2 * k + 1) >> 11) * 0x1p-53 + 0x1p-54;
  } else {
    u1 = static_cast<float>(w(2 * k)) * 0x1p-32f + 0x1p-33f;
    u2 = static_cast<float>(w(2 * k + 1)) * 0x1p-32f + 0x1p-33f;
  }
  const double r = std::sqrt(-2 * std::log(u1));
  // Reduced to a quarter turn first: 2 pi u2 itself would be rounded.
  const double quarters = 4 * u2;
  const double near = std::nearbyint(quarters);
  const double angle = (quarters - near) * M_PI_2;
  const double s = std::sin(angle);
  const double c = std::cos(angle);
  const double turn[4] = {s, c, -s, -c};
  const auto q = static_cast<std::size_t>(near) + (i % 2 == 0 ? 1 : 0);
  return r * turn[q % 4];
}

TEST(random, Normal) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_NORMAL);
  for (const npu_dtype dtype : kFloats) {
    check_close(
        {NPU_RANDOM_NORMAL, dtype, 0, 1}, [=](const Words& w, std::uint64_t i) {
          return reference_normal(dtype, w, i);
        });
    // Mean and deviation may cancel, so the limit is in absolute value.
    const double scale = dtype == NPU_F64   ? 1e-14
                         : dtype == NPU_F32 ? 4e-6
                         : dtype == NPU_F16 ? 2e-2
                                            : 2e-1;
    check_close(
        {NPU_RANDOM_NORMAL, dtype, 2.5, 3},
        [=](const Words& w, std::uint64_t i) {
          return reference_normal(dtype, w, i) * 3 + 2.5;
        },
        4,
        [=](double) { return scale; });
  }
}

TEST(random, LogNormal) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_LOG_NORMAL);
  for (const npu_dtype dtype : kFloats) {
    // An error of the exponent counts as much as its own size.
    const double relative = dtype == NPU_F64 ? 4e-15 : 4e-6;
    check_close(
        {NPU_RANDOM_LOG_NORMAL, dtype, 0.5, 0.75},
        [=](const Words& w, std::uint64_t i) {
          return std::exp(reference_normal(dtype, w, i) * 0.75 + 0.5);
        },
        4,
        [=](double want) { return want * relative; });
  }
}

TEST(random, Exponential) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_EXPONENTIAL);
  for (const npu_dtype dtype : kFloats) {
    for (const double lambda : {1.0, 0.5, 20.0}) {
      const double epsilon = dtype == NPU_F64 ? 0x1p-53 : 0x1p-24;
      check_close(
          {NPU_RANDOM_EXPONENTIAL, dtype, lambda, 0},
          [=](const Words& w, std::uint64_t i) {
            const double u = wide_unit(dtype, w, i);
            return std::max(-std::log1p(-u), epsilon) / lambda;
          });
    }
    RandomCall draw{NPU_RANDOM_EXPONENTIAL, dtype, 1e4, 0};
    if (draw.declared()) {
      draw.n = 100000;
      for (const double x : draw.numbers()) {
        ASSERT_GT(x, 0) << draw.name();
      }
      draw.a = INFINITY;
      draw.n = 100;
      for (const double x : draw.numbers()) {
        ASSERT_EQ(x, 0) << draw.name();
      }
    }
  }
}

TEST(random, Geometric) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_GEOMETRIC);
  for (const npu_dtype dtype :
       {NPU_F16, NPU_BF16, NPU_F32, NPU_F64, NPU_U8, NPU_I32, NPU_I64}) {
    const bool narrow = is_floating(dtype) && dtype != NPU_F64;
    for (const double p : {0.3, 0.9, 1.0, 0.05}) {
      const double step = dtype == NPU_BF16 ? 2 : 1;
      check_close(
          {NPU_RANDOM_GEOMETRIC, dtype, p, 0},
          [=](const Words& w, std::uint64_t i) {
            const double u = wide_unit(narrow ? NPU_F32 : NPU_F64, w, i);
            const double k =
                std::max(1.0, std::ceil(std::log1p(-u) / std::log1p(-p)));
            return dtype == NPU_U8 ? std::min(k, 255.0) : k;
          },
          0.5,
          // At an integer's edge the last bit decides.
          [=](double) { return step; });
    }
    RandomCall draw{NPU_RANDOM_GEOMETRIC, dtype, 0.25, 0};
    if (draw.declared()) {
      draw.n = 20000;
      const std::vector<double> x = draw.numbers();
      EXPECT_EQ(*std::min_element(x.begin(), x.end()), 1) << draw.name();
      EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0) / 20000, 4, 0.15)
          << draw.name();
    }
  }
}

TEST(random, Cauchy) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_CAUCHY);
  for (const npu_dtype dtype : kFloats) {
    const double half = dtype == NPU_F64 ? 0x1p-54 : 0x1p-25;
    check_close(
        {NPU_RANDOM_CAUCHY, dtype, 0, 2},
        [=](const Words& w, std::uint64_t i) {
          const double v = (wide_unit(dtype, w, i) - 0.5) + half;
          const double x =
              std::fabs(v) <= 0.25
                  ? std::tan(M_PI * v)
                  : 1 / std::tan(M_PI * (std::copysign(0.5, v) - v));
          // Too large for the dtype.
          return rounded(dtype, x * 2) == x * 2 || std::fabs(x * 2) < 6e4
                     ? x * 2
                     : rounded(dtype, x * 2);
        },
        4,
        // Near the poles the argument's rounding is multiplied.
        [=](double want) {
          return dtype == NPU_F64 ? 4e-15 * (std::fabs(want) + want * want) : 0;
        });
  }
}

TEST(random, SameBitsForAnyNumberOfThreads) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  for (std::uint32_t code = 0; code < NPU_RANDOM_CODES; ++code) {
    for (const npu_dtype dtype : {NPU_F32, NPU_F64, NPU_F16}) {
      RandomCall draw{code, dtype, 0.4, 0.6};
      if (!draw.declared()) {
        continue;
      }
      draw.a = code == NPU_RANDOM_BINOMIAL ? 30 : 0.4;
      draw.low = -3;
      draw.range = 1000;
      draw.n = 150001;
      draw.rng = {7, 12, nullptr, nullptr};
      set_threads(1);
      const Bytes one = draw.run();
      set_threads(4);
      const Bytes four = draw.run();
      set_threads(3);
      const Bytes three = draw.run();
      EXPECT_TRUE(one == four && one == three) << draw.name();
    }
  }
}

// A shorter draw is the beginning of a longer one, and a draw at a later offset
// its middle: what lets a shape be split.
TEST(random, ElementsDependOnTheirNumberOnly) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_NORMAL);
  for (const std::uint32_t code :
       {NPU_RANDOM_UNIFORM, NPU_RANDOM_NORMAL, NPU_RANDOM_EXPONENTIAL}) {
    RandomCall draw{code, NPU_F32, 0.5, 1.5};
    draw.n = 10000;
    draw.rng = {99, 40, nullptr, nullptr};
    const Bytes all = draw.run();
    draw.n = 777;
    const Bytes few = draw.run();
    EXPECT_TRUE(std::equal(few.begin(), few.end(), all.begin()));
    draw.rng.offset += 4000;
    const Bytes middle = draw.run();
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), all.begin() + 16000));
  }
}

TEST(random, SeedAndOffsetFromDeviceMemory) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  RandomCall draw{NPU_RANDOM_UNIFORM, NPU_F32, 0, 1};
  draw.n = 1000;
  draw.rng = {1234, 56, nullptr, nullptr};
  const Bytes plain = draw.run();
  Buffer state(std::vector<std::uint64_t>{1234, 48});
  const auto* words = static_cast<const std::uint64_t*>(state.data());
  draw.rng = {999, 8, words, words + 1};
  EXPECT_EQ(draw.run(), plain) << "both from memory";
  draw.rng = {1234, 8, nullptr, words + 1};
  EXPECT_EQ(draw.run(), plain) << "offset from memory";
  draw.rng = {999, 56, words, nullptr};
  EXPECT_EQ(draw.run(), plain) << "seed from memory";
}

TEST(random, ManyThreadsAtOnce) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_NORMAL);
  RandomCall draw{NPU_RANDOM_NORMAL, NPU_F32, 0, 1};
  draw.n = 70001;
  const Bytes expected = draw.run();
  set_threads(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([draw, &expected]() mutable {
      for (int round = 0; round < 5; ++round) {
        EXPECT_TRUE(draw.run() == expected);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace npu::kit
