// SPDX-License-Identifier: Apache-2.0
// All kernels: one line per family.
#include <algorithm>
#include <array>

#include "dtype.h"
#include "host.h"
#include "host/fast_table.h"

namespace npu::host {
namespace {

// Pointers, because the tables may be initialised after this one.
const std::span<const KernelRow>* const kFamilies[] = {
    &kArrangeKernels,    &kAttentionKernels,  &kColumnsKernels,
    &kConvKernels,       &kEmbedKernels,      &kFusedKernels,
    &kGemmKernels,       &kGridSampleKernels, &kIndexKernels,
    &kIndexWriteKernels, &kListKernels,       &kLossKernels,
    &kMakeKernels,       &kMapKernels,        &kMoveKernels,
    &kNormaliseKernels,  &kOrderKernels,      &kOrderCountKernels,
    &kPoolKernels,       &kProgramKernels,    &kRandomKernels,
    &kRecurrentKernels,  &kReduceKernels,     &kResizeKernels,
    &kScanKernels,       &kSelectKernels,
};

std::array<const KernelRow*, NPU_KIND_LIMIT> index_by_slot() {
  std::array<const KernelRow*, NPU_KIND_LIMIT> rows{};
  for (const auto* family : kFamilies) {
    for (const KernelRow& row : *family) {
      rows[row.slot] = &row;
    }
  }
  return rows;
}

// Of inputs of several dtypes only PyTorch's own kernels make the CPU's bits: a
// 0-dim float32 beside half types is not rounded to them first, and what a row
// of the table says of one dtype says nothing of a computation in another.
bool mixes_dtypes(std::uint32_t slot) {
  return slot == NPU_KIND_BINARY || slot == NPU_KIND_COMPARE ||
         slot == NPU_KIND_TERNARY;
}

}  // namespace

const KernelRow* find_kernel(std::uint32_t slot) noexcept {
  static const auto rows = index_by_slot();
  return slot < rows.size() ? rows[slot] : nullptr;
}

bool limit_to_fast(
    std::uint32_t slot, std::uint32_t code, npu_op_caps& out) noexcept {
  const FastRow* const row = std::find_if(
      std::begin(kFastRows), std::end(kFastRows), [&](const FastRow& r) {
        return r.slot == slot && r.code == code;
      });
  if (row == std::end(kFastRows)) {
    return false;
  }
  std::copy(
      std::begin(row->numel_limit),
      std::end(row->numel_limit),
      std::begin(out.numel_limit));
  if (mixes_dtypes(slot)) {
    out.flags |= NPU_CAP_ONE_INPUT_DTYPE;
  }
  return true;
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
