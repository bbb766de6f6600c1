// SPDX-License-Identifier: Apache-2.0
// gemm, gemm_scaled, gemm_int8, dot: products of matrices and vectors.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dense.h"
#include "kernels/epilogue.h"
#include "kernels/gemm_grouped.h"
#include "kernels/kernel.h"

namespace npu::host {
namespace {

constexpr std::int64_t kWide = 256;   // columns a thread sums at a time
constexpr std::int64_t kDepth = 256;  // products summed before they join the
                                      // total: rounding grows with K / kDepth
constexpr int kRowsAtOnce = 4;

// Without the checks for infinities that complex operators make, and without
// undefined overflow: integers wrap.
template <class T>
inline void multiply_add(T& sum, T x, T y) {
  sum += x * y;
}
inline void multiply_add(std::int64_t& sum, std::int64_t x, std::int64_t y) {
  sum = static_cast<std::int64_t>(
      static_cast<std::uint64_t>(sum) +
      static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
}
inline void multiply_add(Complex& sum, Complex x, Complex y) {
  sum = {
      sum.real() + (x.real() * y.real() - x.imag() * y.imag()),
      sum.imag() + (x.real() * y.imag() + x.imag() * y.real())};
}

// `Rows` rows of a (each `depth` long) times columns [0, n) of b.
template <int Rows, class T>
void multiply_block(
    const T* a,
    const T* b,
    std::int64_t b_row,
    std::int64_t depth,
    std::int64_t n,
    T (*total)[kWide]) {
  for (std::int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    T part[Rows][kWide] = {};
    const std::int64_t last = std::min(depth, k0 + kDepth);
    for (std::int64_t k = k0; k < last; ++k) {
      for (int r = 0; r < Rows; ++r) {
        const T x = a[r * depth + k];
        for (std::int64_t j = 0; j < n; ++j) {
          multiply_add(part[r][j], x, b[k * b_row + j]);
        }
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (std::int64_t j = 0; j < n; ++j) {
        total[r][j] += part[r][j];
      }
    }
  }
}

// store(matrix, row, first column, values, n) for pieces of a @ b; both are
// contiguous. Returns when all are stored.
template <class T, class Store>
npu_status multiply(
    const T* a,
    const T* b,
    std::int64_t batches,
    std::int64_t m,
    std::int64_t n,
    std::int64_t depth,
    Store store) {
  const std::int64_t down = (m + kRowsAtOnce - 1) / kRowsAtOnce;
  const std::int64_t across = (n + kWide - 1) / kWide;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t batch = at / (down * across);
      const std::int64_t j0 = at / down % across * kWide;
      const std::int64_t i0 = at % down * kRowsAtOnce;
      const std::int64_t wide = std::min(kWide, n - j0);
      const T* const left = a + (batch * m + i0) * depth;
      const T* const right = b + batch * depth * n + j0;
      T total[kRowsAtOnce][kWide] = {};
      const std::int64_t rows = std::min<std::int64_t>(kRowsAtOnce, m - i0);
      if (rows == kRowsAtOnce) {
        multiply_block<kRowsAtOnce>(left, right, n, depth, wide, total);
      } else {
        for (std::int64_t r = 0; r < rows; ++r) {
          multiply_block<1>(left + r * depth, right, n, depth, wide, total + r);
        }
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        store(batch, i0 + r, j0, total[r], wide);
      }
    }
  };
  const std::int64_t work = kRowsAtOnce * kWide * depth;
  return parallel(batches * down * across, kGrain / work + 1, body);
}

struct Shape {
  std::int64_t batches, m, n, depth;
};

Shape shape_of(const npu_tensor& a, const npu_tensor& b) {
  const std::int64_t m = a.sizes[a.ndim - 2];
  const std::int64_t depth = a.sizes[a.ndim - 1];
  return {a.numel / (m * depth), m, b.sizes[b.ndim - 1], depth};
}

// ---- gemm ----

// The sums of a matrix over the products' dimension: of each row of a
// (batches, m, depth), or of each column of b (batches, depth, n).
template <class T, class Sums>
void sum_over_depth(
    const T* data,
    std::int64_t batches,
    std::int64_t kept,
    std::int64_t depth,
    bool of_rows,
    const Sums& sums) {
  for (std::int64_t i = 0; i < batches * kept; ++i) {
    const T* from =
        of_rows ? data + i * depth : data + i / kept * depth * kept + i % kept;
    T sum(0);
    for (std::int64_t k = 0; k < depth; ++k) {
      multiply_add(sum, from[of_rows ? k : k * kept], T(1));
    }
    sums[i] = sum;
  }
}

template <class T>
npu_status gemm_of(const npu_gemm_args& args) {
  const Shape s = shape_of(*args.a, *args.b);
  const T alpha = number<T>(args.attrs.alpha);
  const T beta = number<T>(args.attrs.beta);
  const Loaded<T> a(args.a);
  const Loaded<T> b(args.b);
  // With beta 0 nothing of c counts, not even NaN.
  const Loaded<T> c(beta == T(0) ? nullptr : args.c);
  const Loaded<T> bias(args.bias);
  const Loaded<T> aux(args.aux);
  const Stored<T> pre(args.pre, Stored<T>::kAsIs);
  const Stored<T> out(args.out, Stored<T>::kAsIs);
  if (const npu_status status = loaded(a, b, c, bias, aux)) {
    return status;
  }
  const std::uint32_t bias_of = args.attrs.bias_gradient;
  const auto store = [&](std::int64_t batch,
                         std::int64_t i,
                         std::int64_t j0,
                         const T* sums,
                         std::int64_t n) {
    const std::int64_t at = (batch * s.m + i) * s.n + j0;
    for (std::int64_t j = 0; j < n; ++j) {
      T x = alpha * sums[j];
      x += c ? beta * c[at + j] : T(0);
      x += bias ? bias[j0 + j] : T(0);
      if (pre && bias_of == NPU_GEMM_BIAS_GRADIENT_NONE) {
        pre[at + j] = x;
      }
      out[at + j] = aux ? finished_grad(args.attrs.epilogue, x, aux[at + j])
                        : finished(args.attrs.epilogue, x);
    }
  };
  npu_status status =
      multiply(a.data(), b.data(), s.batches, s.m, s.n, s.depth, store);
  if (pre && bias_of != NPU_GEMM_BIAS_GRADIENT_NONE) {
    const bool of_a = bias_of == NPU_GEMM_BIAS_GRADIENT_A;
    sum_over_depth(
        of_a ? a.data() : b.data(),
        s.batches,
        of_a ? s.m : s.n,
        s.depth,
        of_a,
        pre);
  }
  status = status || !pre ? status : pre.store();
  return status ? status : out.store();
}

// Operands of half precision with a float output compute as float too.
npu_status gemm(const npu_call& call) {
  const npu_gemm_args args = npu_gemm_unpack(&call);
  return with_number(
      args.a->dtype, [&](auto type) { return gemm_of<decltype(type)>(args); });
}

// ---- gemm_scaled ----

// One scale per block of a matrix; the scales of a (rows, depth) are (rows /
// high, depth / wide), those of b (depth, columns) the other way round.
class Scales {
 public:
  Scales(const npu_tensor* tensor, std::uint32_t scaling, std::int64_t depth)
      : scales_(tensor) {
    switch (scaling) {
      case NPU_GEMM_SCALED_SCALING_A_TENSOR:
        high_ = std::numeric_limits<std::int64_t>::max();
        break;
      case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X128:
        wide_ = 128;
        break;
      case NPU_GEMM_SCALED_SCALING_A_BLOCK_128X128:
        high_ = wide_ = 128;
        break;
      case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X32:
        wide_ = 32;
        break;
      case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X16:
        wide_ = 16;
        break;
      default:
        break;
    }
    blocks_ = wide_ == kWhole ? 1 : (depth + wide_ - 1) / wide_;
  }
  npu_status status() const noexcept {
    return scales_.status();
  }
  // Of row i (column i of b) at place k of the sum, among `rows` in all.
  float of_a(std::int64_t i, std::int64_t k) const {
    return scales_[i / high_ * blocks_ + k / wide_];
  }
  float of_b(std::int64_t k, std::int64_t j, std::int64_t columns) const {
    const std::int64_t across =
        high_ == kWhole ? 1 : (columns + high_ - 1) / high_;
    return scales_[k / wide_ * across + j / high_];
  }

 private:
  static constexpr std::int64_t kWhole =
      std::numeric_limits<std::int64_t>::max();
  Loaded<float> scales_;
  std::int64_t high_ = 1;
  std::int64_t wide_ = kWhole;
  std::int64_t blocks_ = 1;
};

npu_status gemm_scaled(const npu_call& call) {
  const npu_gemm_scaled_args args = npu_gemm_scaled_unpack(&call);
  const Shape s = shape_of(*args.a, *args.b);
  const Scales scale_a(args.scale_a, args.attrs.scaling_a, s.depth);
  const Scales scale_b(args.scale_b, args.attrs.scaling_b, s.depth);
  const Loaded<float> a(args.a);
  const Loaded<float> b(args.b);
  const Loaded<float> bias(args.bias);
  const Loaded<float> scale_out(args.scale_out);
  const Stored<float> out(args.out, Stored<float>::kAsIs);
  if (const npu_status status =
          loaded(a, b, bias, scale_a, scale_b, scale_out)) {
    return status;
  }
  std::vector<float> left(a.data(), a.data() + s.m * s.depth);
  std::vector<float> right(b.data(), b.data() + s.depth * s.n);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    left[i] *= scale_a.of_a(at / s.depth, at % s.depth);
  }
  for (std::size_t i = 0; i < right.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    right[i] *= scale_b.of_b(at / s.n, at % s.n, s.n);
  }
  const auto store = [&](std::int64_t,
                         std::int64_t i,
                         std::int64_t j0,
                         const float* sums,
                         std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = sums[j] + (bias ? bias[j0 + j] : 0.0f);
      out[i * s.n + j0 + j] = x * (scale_out ? scale_out[0] : 1.0f);
    }
  };
  npu_status status =
      multiply(left.data(), right.data(), 1, s.m, s.n, s.depth, store);
  if (args.amax != nullptr) {
    float most = 0;
    for (std::int64_t i = 0; i < s.m * s.n; ++i) {
      most = std::max(most, std::abs(out[i]));
    }
    *static_cast<float*>(args.amax->data) = most;
  }
  return status ? status : out.store();
}

// ---- gemm_int8 ----

npu_status gemm_int8(const npu_call& call) {
  const npu_gemm_int8_args args = npu_gemm_int8_unpack(&call);
  const Shape s = shape_of(*args.a, *args.b);
  const Loaded<double> scales(args.scales);
  const Loaded<double> bias(args.bias);
  if (const npu_status status = loaded(scales, bias)) {
    return status;
  }
  // Sums of 8-bit products are exact in int64, those of floats wider than need.
  const auto product = [&](auto type, auto result) -> npu_status {
    using T = decltype(type);
    using R = decltype(result);
    const Loaded<T> a(args.a);
    const Loaded<T> b(args.b);
    const Stored<R> out(args.out, Stored<R>::kAsIs);
    if (const npu_status status = loaded(a, b)) {
      return status;
    }
    const auto store = [&](std::int64_t,
                           std::int64_t i,
                           std::int64_t j0,
                           const T* sums,
                           std::int64_t n) {
      for (std::int64_t j = 0; j < n; ++j) {
        const R x = static_cast<R>(sums[j]);
        const R scaled = scales ? static_cast<R>(scales[j0 + j]) * x : x;
        out[i * s.n + j0 + j] =
            bias ? static_cast<R>(scaled + static_cast<R>(bias[j0 + j]))
                 : scaled;
      }
    };
    const npu_status status =
        multiply(a.data(), b.data(), 1, s.m, s.n, s.depth, store);
    return status ? status : out.store();
  };
  if (call.code == NPU_GEMM_INT8_WEIGHT_INT8) {
    return product(double{}, double{});
  }
  return args.scales == nullptr ? product(std::int64_t{}, std::int64_t{})
                                : product(std::int64_t{}, double{});
}

// ---- dot ----

npu_status dot(const npu_call& call) {
  const npu_dot_args args = npu_dot_unpack(&call);
  return with_number(args.a->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    using Sum = std::conditional_t<std::is_same_v<T, float>, double, T>;
    const Loaded<T> a(args.a);
    const Loaded<T> b(args.b);
    const Stored<T> out(args.out, Stored<T>::kAsIs);
    if (const npu_status status = loaded(a, b)) {
      return status;
    }
    Sum sum(0);
    for (std::int64_t i = 0; i < args.a->numel; ++i) {
      Sum x = a[i];
      if constexpr (std::is_same_v<T, Complex>) {
        x = call.code == NPU_DOT_VDOT ? std::conj(x) : x;
      }
      multiply_add(sum, x, Sum(b[i]));
    }
    out[0] = static_cast<T>(sum);
    return out.store();
  });
}

// ---- rows ----

constexpr std::uint64_t kProductDtypes =
    kUsualDtypes & ~NPU_DTYPE_BIT(NPU_BOOL);

npu_status gemm_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out,
      NPU_DTYPES_CAST,
      {kProductDtypes,
       kProductDtypes,
       kProductDtypes,
       kProductDtypes,
       kProductDtypes,
       kProductDtypes,
       kProductDtypes},
      UINT64_C(1) << 2);
  out.accumulate = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
  out.flags |= NPU_CAP_BIAS_GRADIENT | NPU_CAP_EPILOGUE_GRAD;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status gemm_scaled_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kLow =
      NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_F8_E4M3FN) |
      NPU_DTYPE_BIT(NPU_F8_E5M2) | NPU_DTYPE_BIT(NPU_F8_E4M3FNUZ) |
      NPU_DTYPE_BIT(NPU_F8_E5M2FNUZ);
  constexpr std::uint64_t kF32 = NPU_DTYPE_BIT(NPU_F32);
  constexpr std::uint64_t kScale =
      kF32 | NPU_DTYPE_BIT(NPU_F8_E8M0FNU) | NPU_DTYPE_BIT(NPU_F8_E4M3FN);
  // Sums are float32: a float64 result would suggest
  // precision that is not there.
  constexpr std::uint64_t kResult = kFloatDtypes & ~NPU_DTYPE_BIT(NPU_F64);
  plain_caps(
      out,
      NPU_DTYPES_FREE,
      {kResult | kLow, kF32, kLow, kLow, kScale, kScale, kResult, kF32});
  out.accumulate = kF32;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

// Packed 4-bit weights have no common layout.
npu_status gemm_int8_caps(std::uint32_t code, npu_op_caps& out) {
  constexpr std::uint64_t kI8 = NPU_DTYPE_BIT(NPU_I8);
  constexpr std::uint64_t kI32 = NPU_DTYPE_BIT(NPU_I32);
  const bool integers = code == NPU_GEMM_INT8_INT8;
  plain_caps(
      out,
      NPU_DTYPES_FREE,
      {integers ? kI32 | kFloatDtypes : kFloatDtypes,
       integers ? kI8 : kFloatDtypes,
       kI8,
       kFloatDtypes,
       0,
       kI32 | kFloatDtypes});
  return integers || code == NPU_GEMM_INT8_WEIGHT_INT8 ? NPU_OK
                                                       : NPU_E_UNSUPPORTED;
}

npu_status dot_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out, NPU_DTYPES_SAME, {kProductDtypes, kProductDtypes, kProductDtypes});
  return code < NPU_DOT_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_GEMM, gemm_caps, nullptr, gemm},
    {NPU_KIND_GEMM_SCALED, gemm_scaled_caps, nullptr, gemm_scaled},
    {NPU_KIND_GEMM_INT8, gemm_int8_caps, nullptr, gemm_int8},
    {NPU_KIND_GEMM_GROUPED, gemm_grouped_caps, nullptr, gemm_grouped_run},
    {NPU_KIND_DOT, dot_caps, nullptr, dot},
};

}  // namespace

const std::span<const KernelRow> kGemmKernels = kRows;

}  // namespace npu::host
