// SPDX-License-Identifier: Apache-2.0
// Group random, second half: dropout, permutations, choices, and the
// distributions of the kinds that reject.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "kit.h"
#include "random_kit.h"
#include "reference.h"

namespace npu::kit {
namespace {

constexpr npu_dtype kFloats[] = {NPU_F16, NPU_BF16, NPU_F32, NPU_F64};

// ---- dropout ----

struct Dropout {
  npu_dtype dtype;
  std::int64_t n;
  double p;
  bool in_place = false;
  bool with_mask = true;

  double input(std::int64_t i) const {
    return static_cast<double>(i % 201 - 100) / 8;
  }

  void check() const {
    const auto count = static_cast<std::uint64_t>(n);
    const std::uint64_t size = npu_dtype_bytes(dtype);
    const double scale = p < 1 ? 1 / (1 - p) : 0;
    Bytes source(count * size);
    for (std::int64_t i = 0; i < n; ++i) {
      store(
          dtype,
          {.number = input(i)},
          source.data() + static_cast<std::uint64_t>(i) * size);
    }
    Buffer in(source);
    Buffer fresh(count * size);
    const Buffer& out = in_place ? in : fresh;
    Buffer mask(count);
    Frame frame(NPU_KIND_DROPOUT);
    frame.out(out, flat(dtype, n));
    with_mask ? frame.out(mask, flat(NPU_BOOL, n)) : frame.absent_out();
    View view = flat(dtype, n);
    view.flags = in_place ? NPU_TENSOR_ALIAS : 0;
    npu_dropout_attrs attrs{};
    attrs.p = p;
    attrs.scale = scale;
    frame.in(in, view).attrs(attrs).rng({77, 20, nullptr, nullptr});
    NPU_ASSERT_OK(frame.run());
    compare(out.get(), mask.get(), scale);
  }

  void compare(const Bytes& got, const Bytes& mask, double scale) const {
    const std::uint64_t size = npu_dtype_bytes(dtype);
    const auto limit = static_cast<std::uint64_t>(p * 0x1p32);
    const Words words(77, 20);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const bool kept = words(at) >= limit;
      const double factor = kept ? scale : 0;
      const double x = dtype == NPU_F64 ? input(i) * factor
                                        : static_cast<float>(input(i)) *
                                              static_cast<float>(factor);
      std::uint8_t expected[8];
      store(dtype, {.number = x}, expected);
      ASSERT_EQ(std::memcmp(expected, got.data() + at * size, size), 0)
          << npu_dtype_name(dtype) << " p=" << p << " element " << i;
      if (with_mask) {
        ASSERT_EQ(mask[at], kept ? 1 : 0) << "mask " << i;
      }
    }
  }
};

TEST(random, Dropout) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_DROPOUT, 0);
  npu_op_caps caps;
  declares(NPU_KIND_DROPOUT, 0, &caps);
  for (const npu_dtype dtype : kFloats) {
    if (!has(caps.dtypes[0], dtype)) {
      continue;
    }
    for (const double p : {0.0, 0.1, 0.5, 1.0}) {
      for (const std::int64_t n : {1, 5, 2047, 10001}) {
        Dropout{dtype, n, p}.check();
      }
    }
    Dropout{dtype, 999, 0.3, true}.check();
    Dropout{dtype, 999, 0.3, false, false}.check();
    set_threads(4);
    Dropout{dtype, 150001, 0.3}.check();
    set_threads(1);
  }
}

TEST(random, DropoutKeepsNan) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_DROPOUT, 0);
  const std::vector<float> source(1000, NAN);
  Buffer in(source);
  Buffer out(4000);
  Buffer mask(1000);
  Frame frame(NPU_KIND_DROPOUT);
  npu_dropout_attrs attrs{};
  attrs.p = 0.5;
  attrs.scale = 2;
  frame.out(out, flat(NPU_F32, 1000))
      .out(mask, flat(NPU_BOOL, 1000))
      .in(in, flat(NPU_F32, 1000))
      .attrs(attrs);
  NPU_ASSERT_OK(frame.run());
  for (const float x : out.get_as<float>()) {
    ASSERT_TRUE(std::isnan(x));
  }
}

// ---- randperm ----

TEST(random, Randperm) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDPERM, 0);
  npu_op_caps caps;
  declares(NPU_KIND_RANDPERM, 0, &caps);
  for (const npu_dtype dtype : {NPU_I64, NPU_I32, NPU_I16, NPU_F32, NPU_F64}) {
    for (const std::int64_t n : {1, 2, 10, 1000, 30000}) {
      if (!has(caps.dtypes[0], dtype)) {
        continue;
      }
      std::vector<std::int64_t> expected(static_cast<std::size_t>(n));
      std::iota(expected.begin(), expected.end(), 0);
      const Words words(5, 400);
      std::vector<std::uint64_t> keys(expected.size());
      for (std::size_t i = 0; i < keys.size(); ++i) {
        keys[i] = words.wide(i);
      }
      std::stable_sort(expected.begin(), expected.end(), [&](auto x, auto y) {
        return keys[static_cast<std::size_t>(x)] <
               keys[static_cast<std::size_t>(y)];
      });
      for (const int threads : {1, 4}) {
        set_threads(threads);
        Buffer out(static_cast<std::uint64_t>(n) * npu_dtype_bytes(dtype));
        Frame frame(NPU_KIND_RANDPERM);
        npu_randperm_attrs attrs{};
        attrs.n = n;
        frame.out(out, flat(dtype, n))
            .attrs(attrs)
            .rng({5, 400, nullptr, nullptr});
        NPU_ASSERT_OK(frame.run());
        const Bytes got = out.get();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const Value value =
              load(dtype, got.data() + i * npu_dtype_bytes(dtype));
          ASSERT_EQ(value.number.real(), static_cast<double>(expected[i]))
              << npu_dtype_name(dtype) << " n=" << n << " at " << i;
        }
      }
    }
  }
}

// ---- multinomial ----

struct Choices {
  npu_dtype dtype;
  std::int64_t rows;
  std::int64_t categories;
  std::int64_t samples;
  bool replacement;

  double weight(std::int64_t row, std::int64_t c) const {
    return static_cast<double>((c * 7 + row) % 5);
  }
  double total(std::int64_t row) const {
    double sum = 0;
    for (std::int64_t c = 0; c < categories; ++c) {
      sum += weight(row, c);
    }
    return sum;
  }

  std::vector<std::int64_t> run() const {
    const std::uint64_t size = npu_dtype_bytes(dtype);
    Bytes source(static_cast<std::uint64_t>(rows * categories) * size);
    for (std::int64_t i = 0; i < rows * categories; ++i) {
      store(
          dtype,
          {.number = weight(i / categories, i % categories)},
          source.data() + static_cast<std::uint64_t>(i) * size);
    }
    Buffer weights(source);
    Buffer out(static_cast<std::uint64_t>(rows * samples) * 8);
    Frame frame(NPU_KIND_MULTINOMIAL);
    npu_multinomial_attrs attrs{};
    attrs.samples = samples;
    attrs.replacement = replacement;
    frame.out(out, {.dtype = NPU_I64, .sizes = {rows, samples}, .strides = {}})
        .in(weights,
            {.dtype = dtype, .sizes = {rows, categories}, .strides = {}})
        .attrs(attrs)
        .rng({3, 8, nullptr, nullptr});
    const npu_status status = frame.run();
    EXPECT_EQ(status, NPU_OK) << explain(status);
    return out.get_as<std::int64_t>();
  }

  std::vector<std::int64_t> expected() const {
    std::vector<std::int64_t> out;
    const Words words(3, 8);
    const auto unit = [&](std::int64_t i) {
      return static_cast<double>(
                 words.wide(static_cast<std::uint64_t>(i)) >> 11) *
             0x1p-53;
    };
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<std::pair<double, std::int64_t>> keys;
      for (std::int64_t c = 0; c < categories; ++c) {
        const double w = weight(row, c);
        const double e = -std::log1p(-unit(row * categories + c));
        keys.emplace_back(w > 0 ? e / w : INFINITY, c);
      }
      std::sort(keys.begin(), keys.end());
      for (std::int64_t s = 0; s < samples; ++s) {
        if (!replacement) {
          out.push_back(keys[static_cast<std::size_t>(s)].second);
          continue;
        }
        const double x = unit(row * samples + s) * total(row);
        double sum = 0;
        std::int64_t c = 0;
        while ((sum += weight(row, c)) <= x) {
          ++c;
        }
        out.push_back(c);
      }
    }
    return out;
  }
};

TEST(random, Multinomial) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_MULTINOMIAL, 0);
  npu_op_caps caps;
  declares(NPU_KIND_MULTINOMIAL, 0, &caps);
  const npu_kind_info& kind = *npu_kind_of(NPU_KIND_MULTINOMIAL);
  for (const npu_dtype dtype : kFloats) {
    if (!has(taken_dtypes(kind, caps, 1), dtype)) {
      continue;
    }
    for (const int threads : {1, 4}) {
      set_threads(threads);
      for (const Choices& c :
           {Choices{dtype, 1, 10, 5000, true},
            Choices{dtype, 40, 31, 3, true},
            Choices{dtype, 1, 100, 80, false},
            Choices{dtype, 33, 20, 1, false}}) {
        EXPECT_EQ(c.run(), c.expected())
            << npu_dtype_name(dtype) << " rows " << c.rows;
      }
    }
  }
}

// ---- kinds that reject: distributions ----

struct Moments {
  double mean = 0;
  double variance = 0;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  m.mean =
      std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  for (const double v : x) {
    m.variance += (v - m.mean) * (v - m.mean);
  }
  m.variance /= static_cast<double>(x.size() - 1);
  return m;
}

// Five standard errors of the mean, and a generous limit for the variance.
void check_moments(const RandomCall& draw, double mean, double variance) {
  const std::vector<double> x = draw.numbers();
  const auto n = static_cast<double>(x.size());
  const Moments m = moments(x);
  const double grain = draw.dtype == NPU_BF16 ? 0.01 * mean : 0.002 * mean;
  EXPECT_NEAR(m.mean, mean, 5 * std::sqrt(variance / n) + grain) << draw.name();
  EXPECT_NEAR(m.variance, variance, 0.1 * variance + grain) << draw.name();
}

// Largest distance of the draws from a distribution function; at n = 20000
// 0.0138 is exceeded once in a thousand.
template <class Cdf>
void check_distance(const RandomCall& draw, Cdf cdf) {
  std::vector<double> x = draw.numbers();
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  double distance = 0;
  for (std::size_t i = 0; i < x.size();) {
    std::size_t end = i;
    while (end < x.size() && x[end] == x[i]) {
      ++end;
    }
    distance =
        std::max(distance, std::fabs(cdf(x[i]) - static_cast<double>(end) / n));
    i = end;
  }
  EXPECT_LT(distance, 0.0138) << draw.name();
}

double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

double poisson_cdf(double lambda, double k) {
  double sum = 0;
  for (double i = 0; i <= k; ++i) {
    sum += std::exp(i * std::log(lambda) - lambda - log_gamma(i + 1));
  }
  return sum;
}

double binomial_cdf(double n, double p, double k) {
  double sum = 0;
  for (double i = 0; i <= k; ++i) {
    sum += std::exp(
        log_gamma(n + 1) - log_gamma(i + 1) - log_gamma(n - i + 1) +
        i * std::log(p) + (n - i) * std::log1p(-p));
  }
  return sum;
}

// Regularised lower incomplete gamma function, by its series.
double gamma_cdf(double alpha, double x) {
  double term = 1 / alpha;
  double sum = term;
  for (double k = 1; k < 2000 && term > sum * 1e-16; ++k) {
    term *= x / (alpha + k);
    sum += term;
  }
  return sum * std::exp(alpha * std::log(x) - x - log_gamma(alpha));
}

RandomCall reject(std::uint32_t code, npu_dtype dtype, double p, double q = 0) {
  RandomCall draw{code, dtype, p, q};
  draw.n = 20000;
  draw.rng = {2024, 16, nullptr, nullptr};
  return draw;
}

TEST(random, Poisson) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_POISSON);
  for (const double lambda : {0.2, 3.0, 9.9, 10.1, 60.0}) {
    for (const npu_dtype dtype : {NPU_F32, NPU_F64, NPU_BF16}) {
      const RandomCall draw = reject(NPU_RANDOM_POISSON, dtype, lambda);
      check_moments(draw, lambda, lambda);
    }
    check_distance(reject(NPU_RANDOM_POISSON, NPU_F32, lambda), [=](double k) {
      return poisson_cdf(lambda, k);
    });
  }
  const RandomCall large = reject(NPU_RANDOM_POISSON, NPU_F64, 1e6);
  check_moments(large, 1e6, 1e6);
  for (const double x : reject(NPU_RANDOM_POISSON, NPU_F32, 0).numbers()) {
    ASSERT_EQ(x, 0);
  }
}

TEST(random, Gamma) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_GAMMA);
  for (const double alpha : {0.1, 0.5, 1.0, 2.5, 40.0}) {
    for (const npu_dtype dtype : {NPU_F32, NPU_F64}) {
      const RandomCall draw = reject(NPU_RANDOM_GAMMA, dtype, alpha);
      check_moments(draw, alpha, alpha);
      check_distance(draw, [=](double x) { return gamma_cdf(alpha, x); });
      for (const double x : draw.numbers()) {
        ASSERT_GT(x, 0);
      }
    }
  }
}

TEST(random, Binomial) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_BINOMIAL);
  constexpr double kCases[][2] = {
      {1, 0.5}, {10, 0.3}, {40, 0.5}, {200, 0.04}, {1000, 0.9}, {25, 0.97}};
  for (const auto& [count, prob] : kCases) {
    for (const npu_dtype dtype : {NPU_F32, NPU_F64}) {
      check_moments(
          reject(NPU_RANDOM_BINOMIAL, dtype, count, prob),
          count * prob,
          count * prob * (1 - prob));
    }
    const double n = count;
    const double p = prob;
    check_distance(reject(NPU_RANDOM_BINOMIAL, NPU_F64, n, p), [=](double k) {
      return binomial_cdf(n, p, k);
    });
  }
  for (const double x : reject(NPU_RANDOM_BINOMIAL, NPU_F32, 12, 1).numbers()) {
    ASSERT_EQ(x, 12);
  }
}

// Operands give each element what the attribute would have given it.
TEST(random, RejectingKindsTakeTensors) {
  NPU_NEEDS_CONTRACT_RANDOM();
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_POISSON);
  for (const std::uint32_t code :
       {NPU_RANDOM_POISSON, NPU_RANDOM_GAMMA, NPU_RANDOM_BINOMIAL}) {
    RandomCall each = reject(code, NPU_F32, -1, -1);
    each.n = 300;
    each.p = [](std::int64_t i) { return i % 2 == 0 ? 4.0 : 32.0; };
    if (code == NPU_RANDOM_BINOMIAL) {
      each.q = [](std::int64_t i) { return i % 2 == 0 ? 0.25 : 0.5; };
    }
    if (!each.declared()) {
      continue;
    }
    RandomCall even = reject(code, NPU_F32, 4, 0.25);
    RandomCall odd = reject(code, NPU_F32, 32, 0.5);
    even.n = odd.n = 300;
    const std::vector<double> mixed = each.numbers();
    const std::vector<double> a = even.numbers();
    const std::vector<double> b = odd.numbers();
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      ASSERT_EQ(mixed[i], i % 2 == 0 ? a[i] : b[i]) << each.name();
    }
  }
}

}  // namespace
}  // namespace npu::kit
