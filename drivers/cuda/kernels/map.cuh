// SPDX-License-Identifier: Apache-2.0
// One formula over the elements of a call, and the row that names its kernels.
//
// A kernel is compiled for a formula and a type it computes with; dtypes and
// strides of the operands are known when it runs.
#pragma once

#include "kernels/element.cuh"
#include "kernels/map.h"
#include "shared/map_pair.h"

namespace npu::cuda {

template <class T>
constexpr npu_dtype dtype_of() noexcept {
  return std::is_same_v<T, float>          ? NPU_F32
         : std::is_same_v<T, double>       ? NPU_F64
         : std::is_same_v<T, Complex64>    ? NPU_C64
         : std::is_same_v<T, Complex128>   ? NPU_C128
         : std::is_same_v<T, std::int64_t> ? NPU_I64
         : std::is_same_v<T, std::int32_t> ? NPU_I32
                                           : NPU_BOOL;
}

template <class T>
__device__ inline T load_operand(const MapOperand& from, std::int64_t offset) {
  T value =
      load<T>(from.is_number ? from.number : from.data + offset, from.dtype);
  if (from.negate) {
    if constexpr (std::is_same_v<T, bool>) {
      // true and its negative are both true
    } else {
      value = negate(value);
    }
  }
  if constexpr (kIsComplexType<T>) {
    if (from.conjugate) {
      value = T(value.re, -value.im);
    }
  }
  return rounded(value, from.rounds_to);
}

template <class T>
__device__ inline void store_operand(
    const MapOperand& to, std::int64_t offset, T value) {
  store<T>(to.data + offset, to.dtype, rounded(value, to.rounds_to));
}

// Also for the host: there nvcc knows no type deduced for device code alone.
template <class Op, class T>
NPU_SHARED inline auto apply_to(T x, T y, T z, const Scalars<T>& s) {
  if constexpr (arity<Op, T>() == 1) {
    return Op::apply(x, s);
  } else if constexpr (arity<Op, T>() == 2) {
    return Op::apply(x, y, s);
  } else {
    return Op::apply(x, y, z, s);
  }
}
template <class Op, class T>
struct ResultOf {
  using type = decltype(apply_to<Op, T>(
      T(0), T(0), T(0), std::declval<const Scalars<T>&>()));
};

template <class Op, class T>
inline constexpr bool kChecksZero = std::is_same_v<T, std::int64_t>&& requires {
  Op::kDivides;
};

template <class Op, class T>
__global__ void map_kernel(const __grid_constant__ MapArgs args) {
  const Scalars<T> s(args.scalars);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.layout.numel;
       i += step) {
    std::int64_t at[kMapOperands];
    args.layout.offsets(i, at);
    constexpr int kIn = arity<Op, T>();
    const T x = load_operand<T>(args.operands[2], at[2]);
    T y = T(0);
    T z = T(0);
    if constexpr (kIn > 1) {
      y = load_operand<T>(args.operands[3], at[3]);
    }
    if constexpr (kIn > 2) {
      z = load_operand<T>(args.operands[4], at[4]);
    }
    if constexpr (kChecksZero<Op, T>) {
      if (y == 0) {
        leave_note(args.note, NPU_MAILBOX_ASSERT, i, 0, 0);
        continue;
      }
    }
    const auto result = apply_to<Op, T>(x, y, z, s);
    if constexpr (IsPair<std::remove_const_t<decltype(result)>>::value) {
      if (args.operands[0].present) {
        store_operand(args.operands[0], at[0], result.first);
      }
      if (args.operands[1].present) {
        store_operand(args.operands[1], at[1], result.second);
      }
    } else {
      store_operand(args.operands[0], at[0], result);
    }
  }
}

// ---- frequent codes ----

struct Plain {
  using Stored = float;
  __device__ static float read(float x) {
    return x;
  }
  __device__ static float write(float x) {
    return x;
  }
};
struct PlainF16 {
  using Stored = std::uint16_t;
  __device__ static float read(std::uint16_t x) {
    return half_to_float(x);
  }
  __device__ static std::uint16_t write(float x) {
    return float_to_half(x);
  }
};
struct PlainBF16 {
  using Stored = std::uint16_t;
  __device__ static float read(std::uint16_t x) {
    return bfloat_to_float(x);
  }
  __device__ static std::uint16_t write(float x) {
    return float_to_bfloat(x);
  }
};

// A thread takes 16 bytes of every operand at a time.
template <class S>
union alignas(16) Sixteen {
  uint4 all;
  S each[16 / sizeof(S)];
};

template <class Op, class S>
__global__ void flat_kernel(const __grid_constant__ FlatMapArgs args) {
  using Stored = typename S::Stored;
  using R = typename ResultOf<Op, float>::type;
  constexpr bool kTruth = std::is_same_v<R, bool>;
  using Made = std::conditional_t<kTruth, std::uint8_t, Stored>;
  constexpr int kIn = arity<Op, float>();
  constexpr int kEach = 16 / sizeof(Stored);
  const Scalars<float> s(args.scalars);
  const auto element = [&](const float(&x)[3]) -> Made {
    const R r = apply_to<Op, float>(x[0], x[1], x[2], s);
    if constexpr (kTruth) {
      return r ? 1 : 0;
    } else {
      return S::write(r);
    }
  };
  auto* const out = static_cast<Made*>(args.out);
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t first =
      std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t whole = args.aligned ? args.n / kEach : 0;
  for (std::int64_t i = first; i < whole; i += step) {
    Sixteen<Stored> in[3];
#pragma unroll
    for (int k = 0; k < kIn; ++k) {
      if (args.in[k] != nullptr) {
        in[k].all = static_cast<const uint4*>(args.in[k])[i];
      }
    }
    alignas(16) Made made[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      float x[3] = {0, 0, 0};
#pragma unroll
      for (int k = 0; k < kIn; ++k) {
        x[k] = args.in[k] != nullptr ? S::read(in[k].each[j]) : args.number[k];
      }
      made[j] = element(x);
    }
    if constexpr (kTruth) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        out[i * kEach + j] = made[j];
      }
    } else {
      reinterpret_cast<uint4*>(out)[i] = *reinterpret_cast<const uint4*>(made);
    }
  }
  for (std::int64_t i = whole * kEach + first; i < args.n; i += step) {
    float x[3] = {0, 0, 0};
#pragma unroll
    for (int k = 0; k < kIn; ++k) {
      x[k] = args.in[k] != nullptr
                 ? S::read(static_cast<const Stored*>(args.in[k])[i])
                 : args.number[k];
    }
    out[i] = element(x);
  }
}

namespace map_detail {
template <class Op, class S>
void set_flat(MapRow& row, int type) {
  static_cast<void>(&kEntryOf<&flat_kernel<Op, S>>);
  row.flat[type] = reinterpret_cast<const void*>(&flat_kernel<Op, S>);
}
template <class Op>
void set_flat(MapRow& row) {
  set_flat<Op, Plain>(row, kFlatF32);
  set_flat<Op, PlainF16>(row, kFlatF16);
  set_flat<Op, PlainBF16>(row, kFlatBF16);
}

template <class Op, class T>
void set(MapRow& row, int type) {
  using R = typename ResultOf<Op, T>::type;
  static_cast<void>(&kEntryOf<&map_kernel<Op, T>>);
  row.kernel[type] = reinterpret_cast<const void*>(&map_kernel<Op, T>);
  if constexpr (IsPair<R>::value) {
    row.out[type] = dtype_of<typename R::first_type>();
    row.out2[type] = dtype_of<typename R::second_type>();
  } else {
    row.out[type] = dtype_of<R>();
  }
  row.n_in = arity<Op, T>();
  row.divides = row.divides || kChecksZero<Op, T>;
}
}  // namespace map_detail

// `kComplex`: the formula is written for the complex numbers of this driver
// (shared/complex.h), which lack elementary functions.
template <
    std::uint32_t kCode,
    class Op,
    std::uint64_t kAll,
    bool kComplex,
    bool kFrequent>
MapRow map_row() {
  constexpr std::uint64_t kDtypes =
      kComplex ? kAll : kAll & ~(kComplexBits | kC32Bit);
  MapRow row{};
  row.code = kCode;
  row.dtypes = kDtypes & ~kPromotes;
  row.in_dtypes =
      row.dtypes | ((kDtypes & kPromotes) != 0 ? kAnyIntBits | kBoolBit : 0);
  if constexpr ((kDtypes & (kHalfBits | NPU_DTYPE_BIT(NPU_F32))) != 0) {
    map_detail::set<Op, float>(row, kInFloat);
  }
  if constexpr ((kDtypes & NPU_DTYPE_BIT(NPU_F64)) != 0) {
    map_detail::set<Op, double>(row, kInDouble);
  }
  if constexpr ((kDtypes & NPU_DTYPE_BIT(NPU_C64)) != 0) {
    map_detail::set<Op, Complex64>(row, kInComplex64);
  }
  if constexpr ((kDtypes & NPU_DTYPE_BIT(NPU_C128)) != 0) {
    map_detail::set<Op, Complex128>(row, kInComplex128);
  }
  if constexpr ((kDtypes & kAnyIntBits) != 0) {
    map_detail::set<Op, std::int64_t>(row, kInInt64);
  }
  if constexpr ((kDtypes & kBoolBit) != 0) {
    map_detail::set<Op, bool>(row, kInBool);
  }
  if constexpr (kFrequent) {
    map_detail::set_flat<Op>(row);
  }
  return row;
}

// A row as shared/map_*.h writes it. kHasComplex and kFrequent are the file's
// own.
#define NPU_MAP_ROW(code, op, dtypes) \
  map_row<code, op, dtypes, kHasComplex<op>, kFrequent<op>>(),

}  // namespace npu::cuda
