// SPDX-License-Identifier: Apache-2.0
// A number of an attribute as one element.
#include <cstring>
#include <type_traits>

#include "kernels/kernel.h"
#include "shared/dtype.h"

namespace npu::cuda {
namespace {

template <class T>
bool put(void* out, T value) {
  std::memcpy(out, &value, sizeof(value));
  return true;
}

// One part, given as a float64, an int64 or a uint64.
template <class From>
bool put_real(npu_dtype dtype, From value, void* out) {
  const auto narrow = static_cast<float>(value);
  switch (dtype) {
    case NPU_BOOL:
      return put<std::uint8_t>(out, value != From(0) ? 1 : 0);
    case NPU_U8:
    case NPU_I8:
      return put(
          out, static_cast<std::uint8_t>(static_cast<std::int64_t>(value)));
    case NPU_I16:
    case NPU_U16:
      return put(
          out, static_cast<std::uint16_t>(static_cast<std::int64_t>(value)));
    case NPU_I32:
    case NPU_U32:
      return put(
          out, static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
    case NPU_I64:
      return put(out, static_cast<std::int64_t>(value));
    case NPU_U64:
      if constexpr (std::is_floating_point_v<From>) {
        return put(
            out,
            value >= From(9223372036854775808.0)
                ? static_cast<std::uint64_t>(value)
                : static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
      } else {
        return put(out, static_cast<std::uint64_t>(value));
      }
    case NPU_F16:
      return put(out, F16(narrow).bits);
    case NPU_BF16:
      return put(out, BF16(narrow).bits);
    case NPU_F32:
      return put(out, narrow);
    case NPU_F64:
      return put(out, static_cast<double>(value));
    case NPU_F8_E4M3FN:
      return put(
          out, static_cast<std::uint8_t>(encode_float<kE4m3fnFormat>(narrow)));
    case NPU_F8_E5M2:
      return put(
          out, static_cast<std::uint8_t>(encode_float<kE5m2Format>(narrow)));
    case NPU_F8_E4M3FNUZ:
      return put(
          out,
          static_cast<std::uint8_t>(encode_float<kE4m3fnuzFormat>(narrow)));
    case NPU_F8_E5M2FNUZ:
      return put(
          out,
          static_cast<std::uint8_t>(encode_float<kE5m2fnuzFormat>(narrow)));
    case NPU_F8_E8M0FNU:
      return put(out, encode_e8m0(narrow));
    default:
      return false;
  }
}

npu_dtype part_of(npu_dtype dtype) {
  return dtype == NPU_C32    ? npu_dtype{NPU_F16}
         : dtype == NPU_C64  ? npu_dtype{NPU_F32}
         : dtype == NPU_C128 ? npu_dtype{NPU_F64}
                             : npu_dtype{NPU_ABSENT};
}

}  // namespace

bool convert_scalar(
    npu_dtype dtype, const npu_scalar& scalar, void* out) noexcept {
  const npu_dtype part = part_of(dtype);
  const npu_dtype target = part == NPU_ABSENT ? dtype : part;
  const bool is_float =
      scalar.kind == NPU_SCALAR_FLOAT || scalar.kind == NPU_SCALAR_COMPLEX;
  const bool fits =
      is_float ? put_real(target, scalar.re, out)
      : scalar.kind == NPU_SCALAR_UINT
          ? put_real(target, static_cast<std::uint64_t>(scalar.i), out)
          : put_real(target, scalar.i, out);
  if (!fits) {
    return false;
  }
  const double imaginary = scalar.kind == NPU_SCALAR_COMPLEX ? scalar.im : 0.0;
  char* const to = static_cast<char*>(out);
  if (part != NPU_ABSENT) {
    return put_real(target, imaginary, to + npu_dtype_bytes(part));
  }
  if (dtype == NPU_BOOL && imaginary != 0.0) {
    *to = 1;
  }
  return true;
}

}  // namespace npu::cuda
