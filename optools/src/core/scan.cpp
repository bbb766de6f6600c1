// SPDX-License-Identifier: Apache-2.0
// Reading a tensor's values on the host.
#include "core/scan.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Half.h>
#include <c10/util/SmallVector.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace optools {
namespace {

using c10::ScalarType;

// Runs `body(pointer, count, stride, first)` over rows that cover the tensor;
// `first` is the row's first element in the tensor's own (C) order. Where the
// body does not care for that order, dense memory of any layout is one row.
template <class F>
void each_row(const at::Tensor& t, bool ordered, F&& body) {
  const auto* base = static_cast<const char*>(t.const_data_ptr());
  const int64_t total = t.numel();
  if (total == 0 || base == nullptr) {
    return;
  }
  if (t.is_contiguous() || (!ordered && t.is_non_overlapping_and_dense())) {
    body(base, total, int64_t{1}, int64_t{0});
    return;
  }
  const auto sizes = t.sizes();
  const auto strides = t.strides();
  const auto item = static_cast<int64_t>(t.element_size());
  const int last = static_cast<int>(t.dim()) - 1;
  const int64_t row = sizes[last];
  c10::SmallVector<int64_t, 8> at(t.dim(), 0);
  const char* pointer = base;
  for (int64_t first = 0; first < total; first += row) {
    body(pointer, row, strides[last], first);
    for (int d = last - 1; d >= 0; --d) {
      pointer += strides[d] * item;
      if (++at[d] < sizes[d]) {
        break;
      }
      pointer -= sizes[d] * strides[d] * item;
      at[d] = 0;
    }
  }
}

// All exponent bits set: infinite or NaN. No branch, so that it vectorises;
// in blocks, so that a bad tensor is left early.
template <class Bits>
bool row_nonfinite(
    const char* data, int64_t count, int64_t stride, Bits exponent) {
  constexpr int64_t kBlock = 4096;
  const auto* bits = reinterpret_cast<const Bits*>(data);
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t end = std::min(count, i + kBlock);
    Bits bad = 0;
    if (stride == 1) {
      for (int64_t j = i; j < end; ++j) {
        bad |= static_cast<Bits>((bits[j] & exponent) == exponent);
      }
    } else {
      for (int64_t j = i; j < end; ++j) {
        bad |= static_cast<Bits>((bits[j * stride] & exponent) == exponent);
      }
    }
    if (bad != 0) {
      return true;
    }
  }
  return false;
}

template <class Bits>
bool nonfinite(const at::Tensor& t, Bits exponent, int parts) {
  bool found = false;
  each_row(t, false, [&](const char* p, int64_t n, int64_t stride, int64_t) {
    if (found) {
      return;
    }
    if (parts == 2 && stride == 1) {
      found = row_nonfinite<Bits>(p, 2 * n, 1, exponent);
    } else {
      for (int part = 0; part < parts; ++part) {
        found =
            found || row_nonfinite<Bits>(
                         p + part * sizeof(Bits), n, stride * parts, exponent);
      }
    }
  });
  return found;
}

void add_value(Statistics& s, double value) {
  ++s.count;
  if (std::isnan(value)) {
    ++s.nan;
  } else if (std::isinf(value)) {
    ++(value > 0 ? s.positive_inf : s.negative_inf);
  } else {
    s.zero += value == 0;
    s.min = std::min(s.min, value);
    s.max = std::max(s.max, value);
    s.sum += value;
    s.squares += value * value;
  }
}

template <class T>
Statistics measure(const at::Tensor& t, int parts) {
  Statistics s;
  s.min = std::numeric_limits<double>::infinity();
  s.max = -s.min;
  each_row(t, false, [&](const char* p, int64_t n, int64_t stride, int64_t) {
    const auto* values = reinterpret_cast<const T*>(p);
    for (int64_t i = 0; i < n; ++i) {
      for (int part = 0; part < parts; ++part) {
        add_value(s, static_cast<double>(values[i * stride * parts + part]));
      }
    }
  });
  if (s.min > s.max) {
    s.min = s.max = std::numeric_limits<double>::quiet_NaN();
  }
  return s;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

template <class Bits>
void hash_rows(const at::Tensor& t, int parts, std::array<uint64_t, 2>& sum) {
  each_row(
      t, true, [&](const char* p, int64_t n, int64_t stride, int64_t first) {
        const auto* bits = reinterpret_cast<const Bits*>(p);
        for (int64_t i = 0; i < n; ++i) {
          for (int part = 0; part < parts; ++part) {
            const uint64_t value = bits[i * stride * parts + part];
            const auto place =
                static_cast<uint64_t>(first + i) * parts + part + 1;
            sum[0] += mix(value + place * 0x9E3779B97F4A7C15ull);
            sum[1] += mix((value ^ 0xD6E8FEB86659FD93ull) * (2 * place + 1));
          }
        }
      });
}

}  // namespace

bool host_readable(const at::Tensor& t) {
  return t.device().is_cpu() && t.layout() == c10::kStrided && !t.is_nested() &&
         t.has_storage() && !t.is_quantized() &&
         !t.unsafeGetTensorImpl()->is_python_dispatch();
}

bool has_nonfinite(ScalarType dtype) {
  return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
}

bool any_nonfinite(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case ScalarType::Half:
      return nonfinite<uint16_t>(t, 0x7C00, 1);
    case ScalarType::BFloat16:
      return nonfinite<uint16_t>(t, 0x7F80, 1);
    case ScalarType::Float:
      return nonfinite<uint32_t>(t, 0x7F800000, 1);
    case ScalarType::Double:
      return nonfinite<uint64_t>(t, 0x7FF0000000000000, 1);
    case ScalarType::ComplexHalf:
      return nonfinite<uint16_t>(t, 0x7C00, 2);
    case ScalarType::ComplexFloat:
      return nonfinite<uint32_t>(t, 0x7F800000, 2);
    case ScalarType::ComplexDouble:
      return nonfinite<uint64_t>(t, 0x7FF0000000000000, 2);
    case ScalarType::Float8_e5m2:
      return nonfinite<uint8_t>(t, 0x7C, 1);
    case ScalarType::Float8_e4m3fn:  // one NaN, no infinity
      return nonfinite<uint8_t>(t, 0x7F, 1);
    default:
      return false;
  }
}

std::vector<int64_t> first_nonfinite(const at::Tensor& t) {
  std::vector<int64_t> place;
  at::Tensor rest = t;
  while (rest.dim() > 0) {
    int64_t clean = 0;  // as many at the beginning are finite
    int64_t dirty = rest.size(0);
    while (clean + 1 < dirty) {
      const int64_t middle = (clean + dirty) / 2;
      const bool found = any_nonfinite(rest.narrow(0, clean, middle - clean));
      (found ? dirty : clean) = middle;
    }
    place.push_back(clean);
    rest = rest.select(0, clean);
  }
  return place;
}

Statistics statistics(const at::Tensor& t) {
  switch (t.scalar_type()) {
#define OPTOOLS_CASE(name, type, parts) \
  case ScalarType::name:                \
    return measure<type>(t, parts);
    OPTOOLS_CASE(Half, c10::Half, 1)
    OPTOOLS_CASE(BFloat16, c10::BFloat16, 1)
    OPTOOLS_CASE(Float, float, 1)
    OPTOOLS_CASE(Double, double, 1)
    OPTOOLS_CASE(ComplexHalf, c10::Half, 2)
    OPTOOLS_CASE(ComplexFloat, float, 2)
    OPTOOLS_CASE(ComplexDouble, double, 2)
    OPTOOLS_CASE(Float8_e5m2, c10::Float8_e5m2, 1)
    OPTOOLS_CASE(Float8_e4m3fn, c10::Float8_e4m3fn, 1)
    OPTOOLS_CASE(Float8_e5m2fnuz, c10::Float8_e5m2fnuz, 1)
    OPTOOLS_CASE(Float8_e4m3fnuz, c10::Float8_e4m3fnuz, 1)
    OPTOOLS_CASE(Bool, uint8_t, 1)
    OPTOOLS_CASE(Byte, uint8_t, 1)
    OPTOOLS_CASE(Char, int8_t, 1)
    OPTOOLS_CASE(Short, int16_t, 1)
    OPTOOLS_CASE(Int, int32_t, 1)
    OPTOOLS_CASE(Long, int64_t, 1)
    OPTOOLS_CASE(UInt16, uint16_t, 1)
    OPTOOLS_CASE(UInt32, uint32_t, 1)
    OPTOOLS_CASE(UInt64, uint64_t, 1)
#undef OPTOOLS_CASE
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "op_tools: no statistics of ", t.scalar_type());
  }
}

std::array<uint64_t, 2> content_hash(const at::Tensor& t) {
  std::array<uint64_t, 2> sum{};
  switch (t.element_size()) {
    case 1:
      hash_rows<uint8_t>(t, 1, sum);
      break;
    case 2:
      hash_rows<uint16_t>(t, 1, sum);
      break;
    case 4:
      hash_rows<uint32_t>(t, 1, sum);
      break;
    case 8:
      hash_rows<uint64_t>(t, 1, sum);
      break;
    default:
      TORCH_CHECK(t.element_size() == 16, "op_tools: no hash of ", t.dtype());
      hash_rows<uint64_t>(t, 2, sum);
  }
  return sum;
}

}  // namespace optools
