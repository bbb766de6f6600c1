// SPDX-License-Identifier: Apache-2.0
// The tables of rules, one per file of families.
#pragma once

#include <span>

#include "draw.h"

namespace npu::kit {

extern const std::span<const Rule> kMapRules;
extern const std::span<const Rule> kOrderRules;
extern const std::span<const Rule> kIndexRules;
extern const std::span<const Rule> kGemmRules;
extern const std::span<const Rule> kImageRules;
extern const std::span<const Rule> kLayerRules;
extern const std::span<const Rule> kLossRules;
extern const std::span<const Rule> kFusedRules;

inline bool is_integer(npu_dtype dtype) {
  return !is_floating(dtype) && !is_complex(dtype);
}

inline double number(std::int64_t n) {
  return static_cast<double>(n);
}

// Statistics and saved values have the accumulate dtype.
inline npu_dtype statistics(npu_dtype dtype) {
  return dtype == NPU_F16 || dtype == NPU_BF16 ? npu_dtype{NPU_F32} : dtype;
}

inline Draw& stats(Draw& d, const char* name, const Shape& sizes) {
  return d.dtype(name, statistics(d.main())).set(name, sizes);
}

}  // namespace npu::kit
