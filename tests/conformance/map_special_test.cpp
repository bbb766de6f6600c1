// SPDX-License-Identifier: Apache-2.0
// Group map: numbers that random cases never draw, in every floating point
// dtype that a driver has: not a number, infinities, and sizes at which a
// formula written without care overflows inside.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kit.h"
#include "reference.h"

namespace npu::kit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr npu_dtype kFloats[] = {NPU_F16, NPU_BF16, NPU_F32, NPU_F64};

using Numbers = std::vector<double>;

double as_held(npu_dtype dtype, double number) {
  return number_of(rounded(dtype, number_value(number)));
}

Bytes stored(npu_dtype dtype, const Numbers& numbers) {
  const std::uint32_t element = npu_dtype_bytes(dtype);
  Bytes out(numbers.size() * element);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    store(dtype, number_value(numbers[i]), out.data() + i * element);
  }
  return out;
}

// The caps of a kind, where it takes the dtype everywhere but in the outputs
// that `out` names.
bool takes(
    std::uint32_t slot, std::uint32_t code, npu_dtype in, npu_dtype out) {
  npu_op_caps caps;
  const npu_kind_info& kind = *npu_kind_of(slot);
  if (!declares(slot, code, &caps) || !has(taken_dtypes(kind, caps, 0), out)) {
    return false;
  }
  for (std::uint32_t i = kind.n_out; i < kind.n_out + kind.n_in; ++i) {
    if (kind.operands[i].dtypes == 0 && !kind.operands[i].optional &&
        !has(taken_dtypes(kind, caps, i), in)) {
      return false;
    }
  }
  return in == out || caps.dtype_rule != NPU_DTYPES_SAME;
}

// Four units in the last place; what is smaller than a normal number may be 0.
void expect_same(
    npu_dtype dtype,
    const Bytes& got,
    const Numbers& expected,
    const std::string& what) {
  const std::uint32_t element = npu_dtype_bytes(dtype);
  const double least = dtype == NPU_F16   ? 0x1p-14
                       : dtype == NPU_F64 ? 0x1p-1022
                                          : 0x1p-126;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double mine = number_of(load(dtype, got.data() + i * element));
    const double want = as_held(dtype, expected[i]);
    const bool tiny = std::abs(mine) < least && std::abs(want) <= least;
    const bool near = std::isfinite(mine) && std::isfinite(want) &&
                      (tiny || ulps(dtype, mine, want) <= 4);
    const bool same = mine == want || (std::isnan(mine) && std::isnan(want));
    EXPECT_TRUE(near || same) << what << ": element " << i << " is " << mine
                              << " instead of " << want;
  }
}

struct UnaryRow {
  std::uint32_t code;
  double (*function)(double);
  bool zero;  // the sign of a zero does not matter
};
const UnaryRow kUnary[] = {
    {NPU_UNARY_NEG, [](double x) { return -x; }, true},
    {NPU_UNARY_ABS, [](double x) { return std::abs(x); }, true},
    {NPU_UNARY_SQUARE, [](double x) { return x * x; }, true},
    {NPU_UNARY_RELU, [](double x) { return x < 0 ? 0 : x; }, true},
    {NPU_UNARY_SQRT, [](double x) { return std::sqrt(x); }, true},
    {NPU_UNARY_RSQRT, [](double x) { return 1 / std::sqrt(x); }, false},
    {NPU_UNARY_RECIPROCAL, [](double x) { return 1 / x; }, false},
    {NPU_UNARY_EXP, [](double x) { return std::exp(x); }, true},
    {NPU_UNARY_EXPM1, [](double x) { return std::expm1(x); }, true},
    {NPU_UNARY_LOG, [](double x) { return std::log(x); }, true},
    {NPU_UNARY_LOG1P, [](double x) { return std::log1p(x); }, true},
    {NPU_UNARY_TANH, [](double x) { return std::tanh(x); }, true},
    {NPU_UNARY_SIGMOID, [](double x) { return 1 / (1 + std::exp(-x)); }, true},
    {NPU_UNARY_ERF, [](double x) { return std::erf(x); }, true},
    {NPU_UNARY_FLOOR, [](double x) { return std::floor(x); }, true},
    {NPU_UNARY_CEIL, [](double x) { return std::ceil(x); }, true},
    {NPU_UNARY_TRUNC, [](double x) { return std::trunc(x); }, true},
};

TEST(map, UnaryOfSpecialNumbers) {
  int tested = 0;
  for (const UnaryRow& row : kUnary) {
    for (const npu_dtype dtype : kFloats) {
      if (!takes(NPU_KIND_UNARY, row.code, dtype, dtype)) {
        continue;
      }
      ++tested;
      Numbers x = {kNan, kInf, -kInf, 100, -100, 10000, -10000, 1e-6};
      if (row.zero) {
        x.push_back(0);
      }
      Numbers expected;
      for (double& each : x) {
        each = as_held(dtype, each);
        expected.push_back(row.function(each));
      }
      const auto n = static_cast<std::int64_t>(x.size());
      Buffer in(stored(dtype, x));
      Buffer out(x.size() * npu_dtype_bytes(dtype));
      Frame frame(NPU_KIND_UNARY, row.code);
      frame.out(out, flat(dtype, n)).absent_out().in(in, flat(dtype, n));
      NPU_EXPECT_OK(frame.run());
      expect_same(
          dtype,
          out.get(),
          expected,
          std::string(npu_code_name(NPU_KIND_UNARY, row.code)) + " of " +
              npu_dtype_name(dtype));
    }
  }
  if (tested == 0) {
    NPU_NOT_DECLARED("unary of floating point numbers");
  }
}

// ---- two operands ----

struct BinaryRow {
  std::uint32_t slot;
  std::uint32_t code;
  double (*function)(double, double);
};
double wins(double x, double y, bool greatest) {
  return std::isnan(x) || std::isnan(y) ? kNan
         : greatest                     ? std::max(x, y)
                                        : std::min(x, y);
}
const BinaryRow kBinary[] = {
    {NPU_KIND_BINARY, NPU_BINARY_ADD, [](double x, double y) { return x + y; }},
    {NPU_KIND_BINARY, NPU_BINARY_SUB, [](double x, double y) { return x - y; }},
    {NPU_KIND_BINARY, NPU_BINARY_MUL, [](double x, double y) { return x * y; }},
    {NPU_KIND_BINARY, NPU_BINARY_DIV, [](double x, double y) { return x / y; }},
    {NPU_KIND_BINARY,
     NPU_BINARY_MAXIMUM,
     [](double x, double y) { return wins(x, y, true); }},
    {NPU_KIND_BINARY,
     NPU_BINARY_MINIMUM,
     [](double x, double y) { return wins(x, y, false); }},
    {NPU_KIND_BINARY,
     NPU_BINARY_FMAX,
     [](double x, double y) { return std::fmax(x, y); }},
    {NPU_KIND_BINARY,
     NPU_BINARY_FMIN,
     [](double x, double y) { return std::fmin(x, y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_EQ,
     [](double x, double y) { return double(x == y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_NE,
     [](double x, double y) { return double(x != y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_LT,
     [](double x, double y) { return double(x < y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_LE,
     [](double x, double y) { return double(x <= y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_GT,
     [](double x, double y) { return double(x > y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_GE,
     [](double x, double y) { return double(x >= y); }},
};

TEST(map, BinaryOfSpecialNumbers) {
  const Numbers some = {kNan, kInf, -kInf, 0, 1.5, -2, 10000};
  int tested = 0;
  for (const BinaryRow& row : kBinary) {
    for (const npu_dtype dtype : kFloats) {
      const npu_dtype result =
          row.slot == NPU_KIND_COMPARE ? npu_dtype{NPU_BOOL} : dtype;
      if (!takes(row.slot, row.code, dtype, result)) {
        continue;
      }
      ++tested;
      Numbers x;
      Numbers y;
      Numbers expected;
      for (const double a : some) {
        for (const double b : some) {
          x.push_back(as_held(dtype, a));
          y.push_back(as_held(dtype, b));
          expected.push_back(row.function(x.back(), y.back()));
        }
      }
      const auto n = static_cast<std::int64_t>(x.size());
      Buffer left(stored(dtype, x));
      Buffer right(stored(dtype, y));
      Buffer out(x.size() * npu_dtype_bytes(result));
      Frame frame(row.slot, row.code);
      frame.out(out, flat(result, n))
          .in(left, flat(dtype, n))
          .in(right, flat(dtype, n));
      if (row.slot == NPU_KIND_BINARY) {
        frame.attrs(npu_binary_attrs{});
      }
      NPU_EXPECT_OK(frame.run());
      expect_same(
          result,
          out.get(),
          expected,
          std::string(npu_code_name(row.slot, row.code)) + " of " +
              npu_dtype_name(dtype));
    }
  }
  if (tested == 0) {
    NPU_NOT_DECLARED("binary of floating point numbers");
  }
}

// ---- rows ----

// Rows of four numbers; the kinds see them as (rows, 4).
const Numbers kRows = {
    1,    kNan,  3,    -2,    // not a number
    kInf, 1,     2,    3,     // infinite
    1000, 999,   -998, 1000,  // exp overflows in float32 and narrower
    -200, -200,  -201, -202,  // ... or all of it vanishes
    1,    -kInf, 2,    0};    // masked
constexpr std::int64_t kWidth = 4;

Numbers row_of(npu_dtype dtype, std::size_t row) {
  Numbers out;
  for (std::int64_t i = 0; i < kWidth; ++i) {
    out.push_back(
        as_held(dtype, kRows[row * kWidth + static_cast<std::size_t>(i)]));
  }
  return out;
}

TEST(map, RowsOfSpecialNumbers) {
  const std::int64_t rows = static_cast<std::int64_t>(kRows.size()) / kWidth;
  int tested = 0;
  for (const std::uint32_t code :
       {NPU_REDUCE_SUM, NPU_REDUCE_MIN, NPU_REDUCE_MAX}) {
    for (const npu_dtype dtype : kFloats) {
      if (!takes(NPU_KIND_REDUCE, code, dtype, dtype)) {
        continue;
      }
      Numbers expected;
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
        const Numbers row = row_of(dtype, i);
        double result = code == NPU_REDUCE_SUM ? 0 : row[0];
        for (const double each : row) {
          result = code == NPU_REDUCE_SUM
                       ? result + each
                       : wins(result, each, code == NPU_REDUCE_MAX);
        }
        expected.push_back(result);
      }
      Buffer in(stored(dtype, kRows));
      Buffer out(expected.size() * npu_dtype_bytes(dtype));
      npu_reduce_attrs attrs{};
      attrs.dims = 2;
      Frame frame(NPU_KIND_REDUCE, code);
      frame.out(out, flat(dtype, rows)).absent_out();
      frame.in(in, {.dtype = dtype, .sizes = {rows, kWidth}, .strides = {}});
      frame.attrs(attrs);
      if (frame.run() != NPU_OK) {
        continue;  // declined, or kind.reduce says why
      }
      ++tested;
      expect_same(
          dtype,
          out.get(),
          expected,
          std::string(npu_code_name(NPU_KIND_REDUCE, code)) + " of " +
              npu_dtype_name(dtype));
    }
  }
  if (tested == 0) {
    NPU_NOT_DECLARED("reductions of floating point numbers");
  }
}

TEST(map, SoftmaxOfLargeNumbers) {
  int tested = 0;
  for (const std::uint32_t code : {NPU_SOFTMAX_PLAIN, NPU_SOFTMAX_LOG}) {
    for (const npu_dtype dtype : kFloats) {
      if (!takes(NPU_KIND_SOFTMAX, code, dtype, dtype)) {
        continue;
      }
      Numbers x;
      Numbers expected;
      for (std::size_t i = 2; i < kRows.size() / kWidth; ++i) {
        const Numbers row = row_of(dtype, i);
        const double top = *std::max_element(row.begin(), row.end());
        double sum = 0;
        for (const double each : row) {
          sum += std::exp(each - top);
        }
        for (const double each : row) {
          x.push_back(each);
          const double log = each - top - std::log(sum);
          expected.push_back(code == NPU_SOFTMAX_LOG ? log : std::exp(log));
        }
      }
      const std::int64_t rows = static_cast<std::int64_t>(x.size()) / kWidth;
      const View view{.dtype = dtype, .sizes = {rows, kWidth}, .strides = {}};
      Buffer in(stored(dtype, x));
      Buffer out(x.size() * npu_dtype_bytes(dtype));
      npu_softmax_attrs attrs{};
      attrs.dim = 1;
      Frame frame(NPU_KIND_SOFTMAX, code);
      frame.out(out, view).in(in, view).absent_in().attrs(attrs);
      if (frame.run() != NPU_OK) {
        continue;
      }
      ++tested;
      expect_same(
          dtype,
          out.get(),
          expected,
          std::string("softmax.") + npu_code_name(NPU_KIND_SOFTMAX, code) +
              " of " + npu_dtype_name(dtype));
    }
  }
  if (tested == 0) {
    NPU_NOT_DECLARED("softmax of floating point numbers");
  }
}

}  // namespace
}  // namespace npu::kit
