// SPDX-License-Identifier: Apache-2.0
// Kernels of wide_rows.cu, thread by thread on the host (emulator.h), against
// float64: what they compute, and that they touch nothing beside their rows.
#include <gtest/gtest.h>

#include <random>
#include <string>

// First: it takes the place of CUDA's words.
#include "emulator.h"

#include "kernels/wide_rows.cuh"
#include "kernels/wide_rows.h"

namespace npu::cuda {

// A GPU of one processor.
Device& device_at(npu_device) noexcept {
  static Device one;
  one.properties.multiProcessorCount = 1;
  return one;
}

template <auto* kKernel, class Args>
npu_status emulated(
    Stream&, std::uint64_t blocks, std::uint32_t threads, Args args) {
  emulator::run(kKernel, blocks, threads, args);
  return NPU_OK;
}

}  // namespace npu::cuda

#define launch emulated
#include "kernels/wide_rows.cu"
#undef launch

namespace npu::cuda {
namespace {

using Numbers = std::vector<double>;

// Elements of one dtype, somewhere in memory that is guarded on both sides.
class Held {
 public:
  Held(npu_dtype dtype, std::size_t n, std::size_t offset)
      : dtype_(dtype), n_(n), bytes_(npu_dtype_bytes(dtype)) {
    memory_.resize((n + 2 * kGuard) * bytes_ + 64, 'g');
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    start_ = (16 - base % 16) % 16 + kGuard * bytes_ + offset * bytes_;
    start_ -= kGuard * bytes_ % 16;
    before_ = memory_;
  }
  void* data() {
    return memory_.data() + start_;
  }
  void set(std::size_t i, double value) {
    char* const at = memory_.data() + start_ + i * bytes_;
    if (dtype_ == NPU_F32) {
      put(at, static_cast<float>(value));
    } else {
      const auto narrow = static_cast<float>(value);
      put(at,
          dtype_ == NPU_F16 ? encode_float<kF16Format>(narrow)
                            : BF16::encode(narrow));
    }
    before_ = memory_;
  }
  double at(std::size_t i) const {
    const char* const from = memory_.data() + start_ + i * bytes_;
    std::uint16_t half = 0;
    if (dtype_ == NPU_F32) {
      float value = 0;
      std::memcpy(&value, from, sizeof(value));
      return static_cast<double>(value);
    }
    std::memcpy(&half, from, sizeof(half));
    return static_cast<double>(
        dtype_ == NPU_F16 ? decode_float<kF16Format>(half)
                          : as_float(std::uint32_t{half} << 16));
  }
  // Nothing outside was written.
  void expect_guarded(const std::string& where) const {
    const std::size_t end = start_ + n_ * bytes_;
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (i < start_ || i >= end) {
        ASSERT_EQ(memory_[i], before_[i]) << where << ": byte " << i;
      }
    }
  }
  Numbers numbers() const {
    Numbers made;
    for (std::size_t i = 0; i < n_; ++i) {
      made.push_back(at(i));
    }
    return made;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  template <class T>
  static void put(char* at, T value) {
    std::memcpy(at, &value, sizeof(value));
  }
  npu_dtype dtype_;
  std::size_t n_;
  std::size_t bytes_;
  std::size_t start_ = 0;
  std::vector<char> memory_;
  std::vector<char> before_;
};

Held drawn(
    npu_dtype dtype, std::size_t n, std::size_t offset, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<> draw(0, 2);
  Held made(dtype, n, offset);
  for (std::size_t i = 0; i < n; ++i) {
    made.set(i, draw(random));
  }
  return made;
}

// Halves are rounded once; what is computed before has float32's accuracy.
double bound(npu_dtype dtype, double size) {
  const double unit = dtype == NPU_F32   ? 1e-5
                      : dtype == NPU_F16 ? 1.0 / 1024
                                         : 1.0 / 128;
  return unit * (std::abs(size) + 1);
}

constexpr npu_dtype kDtypes[] = {NPU_F32, NPU_F16, NPU_BF16};
Stream stream;

std::string place(npu_dtype dtype, std::int64_t rows, int length, int offset) {
  return std::string(npu_dtype_name(dtype)) + " " + std::to_string(rows) +
         " x " + std::to_string(length) + " at " + std::to_string(offset);
}

void expect_softmax(
    npu_dtype dtype, std::int64_t rows, int length, int offset, bool log) {
  const std::string where =
      place(dtype, rows, length, offset) + (log ? " log" : "");
  const auto n = static_cast<std::size_t>(rows * length);
  Held in = drawn(dtype, n, static_cast<std::size_t>(offset), 1);
  Held out(dtype, n, static_cast<std::size_t>(offset));
  Held grad = drawn(dtype, n, static_cast<std::size_t>(offset), 2);
  Held grad_in(dtype, n, static_cast<std::size_t>(offset));
  WideSoftmaxArgs args{rows, length, log, 0, out.data(), in.data(), nullptr};
  ASSERT_TRUE(wide_softmax_fits(args, dtype));
  ASSERT_EQ(wide_softmax(stream, args, dtype), NPU_OK);
  out.expect_guarded(where);
  WideSoftmaxArgs back{
      rows, length, log, 0, grad_in.data(), grad.data(), out.data()};
  ASSERT_TRUE(wide_softmax_fits(back, dtype));
  ASSERT_EQ(wide_softmax(stream, back, dtype), NPU_OK);
  grad_in.expect_guarded(where);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = [&](int k) {
      return static_cast<std::size_t>(r * length + k);
    };
    double sum = 0;
    double total = 0;
    for (int k = 0; k < length; ++k) {
      sum += std::exp(in.at(at(k)));
      const double y = out.at(at(k));
      total += log ? grad.at(at(k)) : grad.at(at(k)) * y;
    }
    for (int k = 0; k < length; ++k) {
      const double x = in.at(at(k));
      const double want = log ? x - std::log(sum) : std::exp(x) / sum;
      ASSERT_NEAR(out.at(at(k)), want, bound(dtype, want)) << where;
      const double y = out.at(at(k));
      const double g = grad.at(at(k));
      const double slope = log ? g - std::exp(y) * total : (g - total) * y;
      ASSERT_NEAR(grad_in.at(at(k)), slope, bound(dtype, slope) * 4) << where;
    }
  }
}

TEST(WideRows, SoftmaxIsThatOfFloat64) {
  for (const npu_dtype dtype : kDtypes) {
    for (const bool log : {false, true}) {
      // Held by a warp, by a block; too long for that; rows that begin
      // anywhere.
      for (const int length : {8, 520, 1024, 2048, 9000}) {
        expect_softmax(dtype, length > 1000 ? 2 : 5, length, 0, log);
      }
      for (const int length : {1, 7, 31, 2051}) {
        for (const int offset : {0, 3}) {
          expect_softmax(dtype, 2, length, offset, log);
        }
      }
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(WideRows, SoftmaxOfOddRowsIsPyTorchs) {
  const double inf = INFINITY;
  for (const int length : {16, 2051, 9001}) {
    // A row of -inf, one with inf, one with NaN, one with a -inf, plain ones.
    Held in = drawn(NPU_F32, static_cast<std::size_t>(5 * length), 0, 3);
    for (int k = 0; k < length; ++k) {
      in.set(static_cast<std::size_t>(k), -inf);
    }
    const auto put = [&](int row, int k, double value) {
      in.set(static_cast<std::size_t>(row * length + k), value);
    };
    put(1, length / 2, inf);
    put(2, length - 1, NAN);
    put(3, 0, -inf);
    Held out(NPU_F32, static_cast<std::size_t>(5 * length), 0);
    WideSoftmaxArgs args{5, length, 0, 0, out.data(), in.data(), nullptr};
    ASSERT_TRUE(wide_softmax_fits(args, NPU_F32));
    ASSERT_EQ(wide_softmax(stream, args, NPU_F32), NPU_OK);
    const auto got = [&](int row, int k) {
      return out.at(static_cast<std::size_t>(row * length + k));
    };
    EXPECT_TRUE(std::isnan(got(0, 0)));
    EXPECT_TRUE(std::isnan(got(1, length / 2)));
    EXPECT_TRUE(std::isnan(got(2, 0)));
    EXPECT_EQ(got(3, 0), 0.0);
    EXPECT_TRUE(std::isfinite(got(3, 1)));
    EXPECT_TRUE(std::isfinite(got(4, 0)));
  }
}

void expect_layer_norm(
    npu_dtype dtype, std::int64_t rows, int length, bool wide, bool affine) {
  const std::string where = place(dtype, rows, length, 0) +
                            (wide ? " wide" : "") + (affine ? " affine" : "");
  const auto n = static_cast<std::size_t>(rows * length);
  const auto columns = static_cast<std::size_t>(length);
  const npu_dtype statistics = wide ? npu_dtype{NPU_F32} : dtype;
  Held in = drawn(dtype, n, 0, 4);
  Held weight = drawn(dtype, columns, 0, 5);
  Held bias = drawn(dtype, columns, 0, 6);
  Held grad = drawn(dtype, n, 0, 7);
  Held out(dtype, n, 0);
  Held grad_in(dtype, n, 0);
  Held mean(statistics, static_cast<std::size_t>(rows), 0);
  Held rstd(statistics, static_cast<std::size_t>(rows), 0);
  const std::int64_t pieces = rows > 20 ? 3 : 1;
  Held sums(NPU_F32, static_cast<std::size_t>(pieces) * 2 * columns, 0);
  WideNormArgs args{};
  args.rows = rows;
  args.length = length;
  args.wide_statistics = wide || dtype == NPU_F32 ? 1 : 0;
  args.eps = 1e-5F;
  args.out = out.data();
  args.mean = mean.data();
  args.rstd = rstd.data();
  args.in = in.data();
  args.weight = affine ? weight.data() : nullptr;
  args.bias = affine ? bias.data() : nullptr;
  ASSERT_TRUE(wide_norm_fits(args, dtype)) << where;
  ASSERT_EQ(wide_layer_norm(stream, args, dtype), NPU_OK);
  WideNormArgs back = args;
  back.out = grad_in.data();
  back.bias = nullptr;
  back.grad_out = grad.data();
  back.sums = static_cast<float*>(sums.data());
  back.pieces = pieces;
  ASSERT_TRUE(wide_norm_fits(back, dtype)) << where;
  ASSERT_EQ(wide_layer_norm(stream, back, dtype), NPU_OK);
  ASSERT_EQ(wide_column_sums(stream, back, dtype), NPU_OK);
  for (const Held* each : {&out, &grad_in, &mean, &rstd, &sums}) {
    each->expect_guarded(where);
  }
  Numbers dots(columns);
  Numbers totals(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = [&](int k) {
      return static_cast<std::size_t>(r * length + k);
    };
    double m = 0;
    double v = 0;
    for (int k = 0; k < length; ++k) {
      m += in.at(at(k)) / length;
    }
    for (int k = 0; k < length; ++k) {
      v += (in.at(at(k)) - m) * (in.at(at(k)) - m) / length;
    }
    const double s = 1 / std::sqrt(v + 1e-5);
    const auto row = static_cast<std::size_t>(r);
    ASSERT_NEAR(mean.at(row), m, bound(statistics, m)) << where;
    ASSERT_NEAR(rstd.at(row), s, bound(statistics, s)) << where;
    // The backward is that of the statistics it was given.
    const double km = mean.at(row);
    const double ks = rstd.at(row);
    double sum = 0;
    double dot = 0;
    const auto w = [&](int k) {
      return affine ? weight.at(static_cast<std::size_t>(k)) : 1.0;
    };
    for (int k = 0; k < length; ++k) {
      const double b = affine ? bias.at(static_cast<std::size_t>(k)) : 0.0;
      const double want = (in.at(at(k)) - m) * s * w(k) + b;
      ASSERT_NEAR(out.at(at(k)), want, bound(dtype, want)) << where;
      const double x = (in.at(at(k)) - km) * ks;
      sum += grad.at(at(k)) * w(k) / length;
      dot += grad.at(at(k)) * w(k) * x / length;
      dots[static_cast<std::size_t>(k)] += grad.at(at(k)) * x;
      totals[static_cast<std::size_t>(k)] += grad.at(at(k));
    }
    for (int k = 0; k < length; ++k) {
      const double x = (in.at(at(k)) - km) * ks;
      const double want = ks * (grad.at(at(k)) * w(k) - sum - x * dot);
      ASSERT_NEAR(grad_in.at(at(k)), want, bound(dtype, want) * 2) << where;
    }
  }
  for (std::size_t k = 0; k < columns; ++k) {
    double dot = 0;
    double sum = 0;
    for (std::size_t p = 0; p < static_cast<std::size_t>(pieces); ++p) {
      dot += sums.at(p * 2 * columns + k);
      sum += sums.at((p * 2 + 1) * columns + k);
    }
    ASSERT_NEAR(dot, dots[k], 1e-3 * (1 + std::abs(dots[k]))) << where;
    ASSERT_NEAR(sum, totals[k], 1e-3 * (1 + std::abs(totals[k]))) << where;
  }
}

TEST(WideRows, LayerNormIsThatOfFloat64) {
  for (const npu_dtype dtype : kDtypes) {
    for (const bool wide : {false, true}) {
      for (const int length : {8, 64, 768, 1024, 4096}) {
        expect_layer_norm(
            dtype, length > 1000 ? 2 : 25, length, wide, length != 64);
        if (HasFatalFailure()) {
          return;
        }
      }
    }
  }
}

TEST(WideRows, WhatDoesNotFitIsLeftToTheOtherKernels) {
  alignas(16) char memory[64];
  WideNormArgs norm{};
  norm.length = 12;
  norm.out = memory;
  norm.in = memory;
  EXPECT_TRUE(wide_norm_fits(norm, NPU_F32));
  EXPECT_FALSE(wide_norm_fits(norm, NPU_F16));  // not whole packs
  norm.in = memory + 4;
  EXPECT_FALSE(wide_norm_fits(norm, NPU_F32));
  norm.in = memory;
  norm.length = 1 << 20;  // more than registers hold
  EXPECT_FALSE(wide_norm_fits(norm, NPU_F32));
  WideSoftmaxArgs softmax{1, 5, 0, 0, memory, memory + 4, nullptr};
  EXPECT_FALSE(wide_softmax_fits(softmax, NPU_F32));  // they lie differently
  softmax.out = memory + 20;
  EXPECT_TRUE(wide_softmax_fits(softmax, NPU_F32));
  EXPECT_EQ(softmax.aligned, 0);
}

}  // namespace
}  // namespace npu::cuda
