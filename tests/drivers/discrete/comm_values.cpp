// SPDX-License-Identifier: Apache-2.0
// What the communicators of the discrete driver reduce, and how.
#include "comm_values.h"

#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace npu::discrete {

bool wrong(const char* what) {
  const char* const asked = std::getenv("NPU_DISCRETE_COMM_WRONG");
  return asked != nullptr && std::strcmp(asked, what) == 0;
}

npu_status check_reduction(npu_dtype dtype, npu_reduction reduction) {
  const bool bits =
      reduction == NPU_REDUCTION_AND || reduction == NPU_REDUCTION_OR;
  return (kReduced & NPU_DTYPE_BIT(dtype)) != 0 && reduction < 64 &&
                 (kReductions >> reduction & 1) != 0 &&
                 !(bits && (kFloats & NPU_DTYPE_BIT(dtype)) != 0)
             ? NPU_OK
             : fail(NPU_E_UNSUPPORTED, "does not reduce that.");
}

namespace {

template <class T>
T combined(npu_reduction reduction, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;  // which may overflow
    switch (reduction) {
      case NPU_REDUCTION_AND:
        return a & b;
      case NPU_REDUCTION_OR:
        return a | b;
      case NPU_REDUCTION_SUM:
      case NPU_REDUCTION_AVERAGE:
        return T(Bits(a) + Bits(b));
      case NPU_REDUCTION_PRODUCT:
        return T(Bits(a) * Bits(b));
      default:
        break;
    }
  }
  const auto nan = [](T x) { return x != x; };
  switch (reduction) {
    case NPU_REDUCTION_PRODUCT:
      return a * b;
    case NPU_REDUCTION_MIN:
      return nan(a) || a < b ? a : b;
    case NPU_REDUCTION_MAX:
      return nan(a) || a > b ? a : b;
    default:
      return a + b;
  }
}

template <class T>
void reduce_as(
    npu_reduction reduction,
    const std::vector<const char*>& parts,
    char* out,
    uint64_t count) {
  const size_t terms = parts.size() - (wrong("sum") && parts.size() > 1);
  for (uint64_t i = 0; i < count; ++i) {
    T value = reinterpret_cast<const T*>(parts[0])[i];
    for (size_t r = 1; r < terms; ++r) {
      value =
          combined(reduction, value, reinterpret_cast<const T*>(parts[r])[i]);
    }
    reinterpret_cast<T*>(out)[i] =
        reduction == NPU_REDUCTION_AVERAGE ? T(value / T(parts.size())) : value;
  }
}

}  // namespace

void reduce_parts(
    npu_dtype dtype,
    npu_reduction reduction,
    const std::vector<const char*>& parts,
    char* out,
    uint64_t count) {
  switch (dtype) {
    case NPU_F32:
      return reduce_as<float>(reduction, parts, out, count);
    case NPU_F64:
      return reduce_as<double>(reduction, parts, out, count);
    case NPU_I32:
      return reduce_as<int32_t>(reduction, parts, out, count);
    case NPU_I64:
      return reduce_as<int64_t>(reduction, parts, out, count);
    default:
      return reduce_as<uint8_t>(reduction, parts, out, count);
  }
}

}  // namespace npu::discrete
