// SPDX-License-Identifier: Apache-2.0
// All kernels: one line per family.
#include <array>

#include "dtype.h"
#include "host.h"

namespace npu::host {
namespace {

// Pointers, because the tables may be initialised after this one.
const std::span<const KernelRow>* const kFamilies[] = {
    &kMoveKernels,
    &kRandomKernels,
};

std::array<const KernelRow*, NPU_KIND_LIMIT> index_by_slot() {
  std::array<const KernelRow*, NPU_KIND_LIMIT> rows{};
  for (const auto* family : kFamilies) {
    for (const KernelRow& row : *family) {
      if (row.fast || settings.all_kernels) {
        rows[row.slot] = &row;
      }
    }
  }
  return rows;
}

}  // namespace

const KernelRow* find_kernel(std::uint32_t slot) noexcept {
  static const auto rows = index_by_slot();
  return slot < rows.size() ? rows[slot] : nullptr;
}

const char* dtype_name(npu_dtype dtype) noexcept {
  constexpr const char* kNames[NPU_DTYPE_COUNT] = {
      "absent",          "bool",           "uint8",           "int8",
      "int16",           "int32",          "int64",           "uint16",
      "uint32",          "uint64",         "float16",         "bfloat16",
      "float32",         "float64",        "complex32",       "complex64",
      "complex128",      "float8_e4m3fn",  "float8_e5m2",     "float8_e4m3fnuz",
      "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"};
  return dtype < NPU_DTYPE_COUNT ? kNames[dtype] : "unknown";
}

}  // namespace npu::host
