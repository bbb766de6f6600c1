// SPDX-License-Identifier: Apache-2.0
// The loops behind one ConvertTable. Included by each convert_<isa>.cpp with
// NPU_ISA set to its namespace; no other header may define inline functions
// that are not forced inline (see dtype.h).
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/isa/convert.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace npu::host::NPU_ISA {
namespace {

template <int>
struct UnitType;
#define NPU_UNIT(unit, type) \
  template <>                \
  struct UnitType<unit> {    \
    using T = type;          \
  };
NPU_UNIT(kU8, std::uint8_t)
NPU_UNIT(kI8, std::int8_t)
NPU_UNIT(kI16, std::int16_t)
NPU_UNIT(kI32, std::int32_t)
NPU_UNIT(kI64, std::int64_t)
NPU_UNIT(kU16, std::uint16_t)
NPU_UNIT(kU32, std::uint32_t)
NPU_UNIT(kU64, std::uint64_t)
NPU_UNIT(kF32, float)
NPU_UNIT(kF64, double)
NPU_UNIT(kBool, std::uint8_t)
#undef NPU_UNIT

// Out of range is undefined in C++. PyTorch's kernels give what the
// processor gives (the smallest integer); narrow and unsigned types go through
// a wider signed one so that it is the same for every instruction set.
template <int To, class From>
[[gnu::always_inline]] inline typename UnitType<To>::T float_to_int(From v) {
  using T = typename UnitType<To>::T;
  if constexpr (To == kU64) {
    constexpr From kTop = static_cast<From>(9223372036854775808.0);
    const bool high = v >= kTop;
    const auto low = static_cast<std::int64_t>(high ? v - kTop : v);
    return static_cast<T>(low) ^ (high ? UINT64_C(1) << 63 : 0);
  } else if constexpr (
      To == kI64 || To == kU32 || (To == kU8 && sizeof(From) == 8)) {
    return static_cast<T>(static_cast<std::int64_t>(v));
  } else {
    return static_cast<T>(static_cast<std::int32_t>(v));
  }
}

template <int From, int To>
void cast(void* dst, const void* src, std::int64_t n) {
  using S = typename UnitType<From>::T;
  using D = typename UnitType<To>::T;
  const S* in = static_cast<const S*>(src);
  D* out = static_cast<D*>(dst);
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (To == kBool) {
      out[i] = in[i] != S(0) ? 1 : 0;
    } else if constexpr (
        (From == kF32 || From == kF64) && !(To == kF32 || To == kF64)) {
      out[i] = float_to_int<To>(in[i]);
    } else {
      out[i] = static_cast<D>(in[i]);
    }
  }
}

template <int U>
void negate(void* dst, const void* src, std::int64_t n) {
  using T = typename UnitType<U>::T;
  const T* in = static_cast<const T*>(src);
  T* out = static_cast<T*>(dst);
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (U == kF32 || U == kF64) {
      out[i] = -in[i];
    } else {
      // Unsigned, so that the smallest integer wraps instead of overflowing.
      out[i] = static_cast<T>(UINT64_C(0) - static_cast<std::uint64_t>(in[i]));
    }
  }
}

template <int P>
[[gnu::always_inline]] inline float decode_one(std::uint16_t code) {
  if constexpr (P == kF16) {
    return decode_float<kF16Format>(code);
  } else if constexpr (P == kBF16) {
    return as_float(static_cast<std::uint32_t>(code) << 16);
  } else if constexpr (P == kE4m3fn) {
    return decode_float<kE4m3fnFormat>(code);
  } else if constexpr (P == kE5m2) {
    return decode_float<kE5m2Format>(code);
  } else if constexpr (P == kE4m3fnuz) {
    return decode_float<kE4m3fnuzFormat>(code);
  } else if constexpr (P == kE5m2fnuz) {
    return decode_float<kE5m2fnuzFormat>(code);
  } else {
    return decode_e8m0(static_cast<std::uint8_t>(code));
  }
}

template <int P>
[[gnu::always_inline]] inline std::uint16_t encode_one(float value) {
  if constexpr (P == kF16) {
    return encode_float<kF16Format>(value);
  } else if constexpr (P == kBF16) {
    return BF16::encode(value);
  } else if constexpr (P == kE4m3fn) {
    return encode_float<kE4m3fnFormat>(value);
  } else if constexpr (P == kE5m2) {
    return encode_float<kE5m2Format>(value);
  } else if constexpr (P == kE4m3fnuz) {
    return encode_float<kE4m3fnuzFormat>(value);
  } else if constexpr (P == kE5m2fnuz) {
    return encode_float<kE5m2fnuzFormat>(value);
  } else {
    return encode_e8m0(value);
  }
}

template <bool Wide>
struct Code {
  using T = std::uint8_t;
};
template <>
struct Code<true> {
  using T = std::uint16_t;
};

template <int P>
void decode(void* dst, const void* src, std::int64_t n) {
  using T = typename Code<P == kF16 || P == kBF16>::T;
  const T* in = static_cast<const T*>(src);
  float* out = static_cast<float*>(dst);
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (P == kF16) {
    for (; i + 8 <= n; i += 8) {
      const __m128i half =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
  }
#endif
  for (; i < n; ++i) {
    out[i] = decode_one<P>(in[i]);
  }
}

template <int P>
void encode(void* dst, const void* src, std::int64_t n) {
  using T = typename Code<P == kF16 || P == kBF16>::T;
  const float* in = static_cast<const float*>(src);
  T* out = static_cast<T*>(dst);
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (P == kF16) {
    for (; i + 8 <= n; i += 8) {
      const __m128i half =
          _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
    }
  }
#endif
  for (; i < n; ++i) {
    out[i] = static_cast<T>(encode_one<P>(in[i]));
  }
}

#define NPU_ROW(from)                                                     \
  {                                                                       \
    cast<from, kU8>, cast<from, kI8>, cast<from, kI16>, cast<from, kI32>, \
        cast<from, kI64>, cast<from, kU16>, cast<from, kU32>,             \
        cast<from, kU64>, cast<from, kF32>, cast<from, kF64>,             \
        cast<from, kBool>                                                 \
  }

}  // namespace

extern const ConvertTable kConvert = {
    {NPU_ROW(kU8),
     NPU_ROW(kI8),
     NPU_ROW(kI16),
     NPU_ROW(kI32),
     NPU_ROW(kI64),
     NPU_ROW(kU16),
     NPU_ROW(kU32),
     NPU_ROW(kU64),
     NPU_ROW(kF32),
     NPU_ROW(kF64)},
    {decode<kF16>,
     decode<kBF16>,
     decode<kE4m3fn>,
     decode<kE5m2>,
     decode<kE4m3fnuz>,
     decode<kE5m2fnuz>,
     decode<kE8m0fnu>},
    {encode<kF16>,
     encode<kBF16>,
     encode<kE4m3fn>,
     encode<kE5m2>,
     encode<kE4m3fnuz>,
     encode<kE5m2fnuz>,
     encode<kE8m0fnu>},
    {negate<kU8>,
     negate<kI8>,
     negate<kI16>,
     negate<kI32>,
     negate<kI64>,
     negate<kU16>,
     negate<kU32>,
     negate<kU64>,
     negate<kF32>,
     negate<kF64>}};

#undef NPU_ROW

}  // namespace npu::host::NPU_ISA
