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

uint64_t dtypes_per_hop() {
  const char* const asked = std::getenv("NPU_DISCRETE_COMM_HALVES");
  const bool offered = asked != nullptr && std::strcmp(asked, "1") == 0;
  return offered ? NPU_DTYPE_BIT(NPU_BF16) : 0;
}

npu_status check_reduction(npu_dtype dtype, npu_reduction reduction) {
  const bool bits =
      reduction == NPU_REDUCTION_AND || reduction == NPU_REDUCTION_OR;
  return ((kReduced | dtypes_per_hop()) & NPU_DTYPE_BIT(dtype)) != 0 &&
                 reduction < 64 && (kReductions >> reduction & 1) != 0 &&
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

// bfloat16, rounded after each term.
struct Half {
  uint16_t bits;

  Half() = default;
  explicit Half(float value) {
    uint32_t all = 0;
    std::memcpy(&all, &value, sizeof(all));
    bits = uint16_t((all + 0x7fff + ((all >> 16) & 1)) >> 16);
  }
  operator float() const {
    const uint32_t all = uint32_t(bits) << 16;
    float value = 0;
    std::memcpy(&value, &all, sizeof(value));
    return value;
  }
};

void reduce_halves(
    npu_reduction reduction,
    const std::vector<const char*>& parts,
    char* out,
    uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    Half value = reinterpret_cast<const Half*>(parts[0])[i];
    for (size_t r = 1; r < parts.size(); ++r) {
      value = Half(combined<float>(
          reduction, value, reinterpret_cast<const Half*>(parts[r])[i]));
    }
    reinterpret_cast<Half*>(out)[i] =
        reduction == NPU_REDUCTION_AVERAGE
            ? Half(float(value) / float(parts.size()))
            : value;
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
    case NPU_BF16:
      return reduce_halves(reduction, parts, out, count);
    case NPU_I32:
      return reduce_as<int32_t>(reduction, parts, out, count);
    case NPU_I64:
      return reduce_as<int64_t>(reduction, parts, out, count);
    default:
      return reduce_as<uint8_t>(reduction, parts, out, count);
  }
}

}  // namespace npu::discrete
