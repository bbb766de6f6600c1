// SPDX-License-Identifier: Apache-2.0
// Elements of any dtype, read into and written from the types that kernels
// compute with, as copy converts them. The dtype is known when the kernel runs.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/kernel.h"
#include "shared/complex.h"
#include "shared/dtype.h"

namespace npu::cuda {

using Complex64 = Complex<float>;
using Complex128 = Complex<double>;

template <class T>
inline constexpr bool kIsComplexType =
    std::is_same_v<T, Complex64> || std::is_same_v<T, Complex128>;

// ---- bits ----

template <class T>
__device__ inline T bits_at(const void* at) {
  return *static_cast<const T*>(at);
}
template <class T>
__device__ inline void put(void* at, T value) {
  *static_cast<T*>(at) = value;
}

__device__ inline float half_to_float(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline std::uint16_t float_to_half(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ inline float bfloat_to_float(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}
__device__ inline std::uint16_t float_to_bfloat(float value) {
  return BF16::encode(value);
}

// ---- numbers of one type to another ----

// As shared/formulas' integers: out of range wraps through a wider one.
template <class To, class From>
__device__ inline To convert(From value) {
  if constexpr (kIsComplexType<From> && kIsComplexType<To>) {
    using Part = decltype(To().re);
    return To(static_cast<Part>(value.re), static_cast<Part>(value.im));
  } else if constexpr (kIsComplexType<From>) {
    return convert<To>(value.re);
  } else if constexpr (kIsComplexType<To>) {
    using Part = decltype(To().re);
    return To(convert<Part>(value), Part(0));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (
      std::is_floating_point_v<From> && std::is_same_v<To, std::uint64_t>) {
    return value >= From(9223372036854775808.0)
               ? static_cast<std::uint64_t>(value)
               : static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  } else if constexpr (
      std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return static_cast<To>(static_cast<std::int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

// ---- load ----

// The element at `at`, of a dtype that has one part.
template <class T>
__device__ inline T load_real(const void* at, npu_dtype dtype) {
  switch (dtype) {
    case NPU_BOOL:
    case NPU_U8:
      return convert<T>(bits_at<std::uint8_t>(at));
    case NPU_I8:
      return convert<T>(bits_at<std::int8_t>(at));
    case NPU_I16:
      return convert<T>(bits_at<std::int16_t>(at));
    case NPU_I32:
      return convert<T>(bits_at<std::int32_t>(at));
    case NPU_I64:
      return convert<T>(bits_at<std::int64_t>(at));
    case NPU_U16:
      return convert<T>(bits_at<std::uint16_t>(at));
    case NPU_U32:
      return convert<T>(bits_at<std::uint32_t>(at));
    case NPU_U64:
      return convert<T>(bits_at<std::uint64_t>(at));
    case NPU_F16:
      return convert<T>(half_to_float(bits_at<std::uint16_t>(at)));
    case NPU_BF16:
      return convert<T>(bfloat_to_float(bits_at<std::uint16_t>(at)));
    case NPU_F32:
      return convert<T>(bits_at<float>(at));
    case NPU_F64:
      return convert<T>(bits_at<double>(at));
    case NPU_F8_E4M3FN:
      return convert<T>(decode_float<kE4m3fnFormat>(bits_at<std::uint8_t>(at)));
    case NPU_F8_E5M2:
      return convert<T>(decode_float<kE5m2Format>(bits_at<std::uint8_t>(at)));
    case NPU_F8_E4M3FNUZ:
      return convert<T>(
          decode_float<kE4m3fnuzFormat>(bits_at<std::uint8_t>(at)));
    case NPU_F8_E5M2FNUZ:
      return convert<T>(
          decode_float<kE5m2fnuzFormat>(bits_at<std::uint8_t>(at)));
    case NPU_F8_E8M0FNU:
      return convert<T>(decode_e8m0(bits_at<std::uint8_t>(at)));
    default:
      return T(0);
  }
}

template <class T>
__device__ __noinline__ T load(const char* at, npu_dtype dtype) {
  switch (dtype) {
    case NPU_C32:
      return convert<T>(Complex64(
          half_to_float(bits_at<std::uint16_t>(at)),
          half_to_float(bits_at<std::uint16_t>(at + 2))));
    case NPU_C64:
      return convert<T>(Complex64(bits_at<float>(at), bits_at<float>(at + 4)));
    case NPU_C128:
      return convert<T>(
          Complex128(bits_at<double>(at), bits_at<double>(at + 8)));
    default:
      return load_real<T>(at, dtype);
  }
}

// ---- store ----

template <class T>
__device__ inline void store_real(void* at, npu_dtype dtype, T value) {
  switch (dtype) {
    case NPU_BOOL:
      return put<std::uint8_t>(at, convert<bool>(value) ? 1 : 0);
    case NPU_U8:
      return put(at, convert<std::uint8_t>(value));
    case NPU_I8:
      return put(at, convert<std::int8_t>(value));
    case NPU_I16:
      return put(at, convert<std::int16_t>(value));
    case NPU_I32:
      return put(at, convert<std::int32_t>(value));
    case NPU_I64:
      return put(at, convert<std::int64_t>(value));
    case NPU_U16:
      return put(at, convert<std::uint16_t>(value));
    case NPU_U32:
      return put(at, convert<std::uint32_t>(value));
    case NPU_U64:
      return put(at, convert<std::uint64_t>(value));
    case NPU_F16:
      return put(at, float_to_half(convert<float>(value)));
    case NPU_BF16:
      return put(at, float_to_bfloat(convert<float>(value)));
    case NPU_F32:
      return put(at, convert<float>(value));
    case NPU_F64:
      return put(at, convert<double>(value));
    case NPU_F8_E4M3FN:
      return put(
          at,
          static_cast<std::uint8_t>(
              encode_float<kE4m3fnFormat>(convert<float>(value))));
    case NPU_F8_E5M2:
      return put(
          at,
          static_cast<std::uint8_t>(
              encode_float<kE5m2Format>(convert<float>(value))));
    case NPU_F8_E4M3FNUZ:
      return put(
          at,
          static_cast<std::uint8_t>(
              encode_float<kE4m3fnuzFormat>(convert<float>(value))));
    case NPU_F8_E5M2FNUZ:
      return put(
          at,
          static_cast<std::uint8_t>(
              encode_float<kE5m2fnuzFormat>(convert<float>(value))));
    case NPU_F8_E8M0FNU:
      return put(at, encode_e8m0(convert<float>(value)));
    default:
      return;
  }
}

template <class T>
__device__ __noinline__ void store(char* at, npu_dtype dtype, T value) {
  switch (dtype) {
    case NPU_C32: {
      const auto z = convert<Complex64>(value);
      put(at, float_to_half(z.re));
      return put(at + 2, float_to_half(z.im));
    }
    case NPU_C64: {
      const auto z = convert<Complex64>(value);
      put(at, z.re);
      return put(at + 4, z.im);
    }
    case NPU_C128: {
      const auto z = convert<Complex128>(value);
      put(at, z.re);
      return put(at + 8, z.im);
    }
    default:
      return store_real(at, dtype, value);
  }
}

// The value as an element of the dtype holds it. Only what is narrower than T
// makes a difference.
template <class T>
__device__ inline T rounded(T value, npu_dtype dtype) {
  if (dtype == NPU_ABSENT) {
    return value;
  }
  if constexpr (kIsComplexType<T>) {
    using Part = decltype(value.re);
    const npu_dtype part = dtype == NPU_C32   ? npu_dtype{NPU_F16}
                           : dtype == NPU_C64 ? npu_dtype{NPU_F32}
                                              : npu_dtype{NPU_ABSENT};
    return T(rounded<Part>(value.re, part), rounded<Part>(value.im, part));
  } else if constexpr (std::is_floating_point_v<T>) {
    switch (dtype) {
      case NPU_F16:
        return static_cast<T>(
            half_to_float(float_to_half(static_cast<float>(value))));
      case NPU_BF16:
        return static_cast<T>(
            bfloat_to_float(float_to_bfloat(static_cast<float>(value))));
      case NPU_F32:
        return static_cast<T>(static_cast<float>(value));
      default:
        return value;
    }
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    switch (dtype) {
      case NPU_BOOL:
        return value != 0;
      case NPU_U8:
        return static_cast<std::uint8_t>(value);
      case NPU_I8:
        return static_cast<std::int8_t>(value);
      case NPU_I16:
        return static_cast<std::int16_t>(value);
      case NPU_I32:
        return static_cast<std::int32_t>(value);
      case NPU_U16:
        return static_cast<std::uint16_t>(value);
      case NPU_U32:
        return static_cast<std::uint32_t>(value);
      default:
        return value;
    }
  } else {
    return value;
  }
}

// ---- errors ----

__device__ inline void leave_note(
    const Note& note,
    std::uint32_t error,
    std::int64_t position,
    std::int64_t value,
    std::int64_t limit) {
  npu_mailbox* const box = note.mailbox;
  if (atomicCAS_system(&box->state, NPU_MAILBOX_EMPTY, NPU_MAILBOX_TAKEN) !=
      NPU_MAILBOX_EMPTY) {
    return;
  }
  volatile npu_mailbox* const to = box;
  to->error = error;
  to->slot = note.slot;
  to->operand = note.operand;
  to->correlation = note.correlation;
  to->position = position;
  to->value = value;
  to->limit = limit;
  for (int i = 0; i < 64; ++i) {
    to->label[i] = note.label[i];
  }
  __threadfence_system();
  to->state = NPU_MAILBOX_FULL;
}

}  // namespace npu::cuda
