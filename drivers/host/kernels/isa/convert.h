// SPDX-License-Identifier: Apache-2.0
// Conversions of contiguous elements, one table per instruction set.
#pragma once

#include <cstdint>

namespace npu::host {

// Types the machine computes with. Half and quarter types go through f32,
// which is how PyTorch converts them; bool reads as u8.
enum Unit : int {
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kU16,
  kU32,
  kU64,
  kF32,
  kF64,
  kBool,  // only as destination
  kUnitCount,
};

// Floats that are stored small.
enum Packed : int {
  kF16,
  kBF16,
  kE4m3fn,
  kE5m2,
  kE4m3fnuz,
  kE5m2fnuz,
  kE8m0fnu,
  kPackedCount,
};

// n elements; dst may be src when the sizes are equal.
using ConvertFn = void (*)(void* dst, const void* src, std::int64_t n);

struct ConvertTable {
  ConvertFn cast[kBool][kUnitCount];  // [from][to]
  ConvertFn decode[kPackedCount];     // to f32
  ConvertFn encode[kPackedCount];     // from f32
  ConvertFn negate[kBool];
};

const ConvertTable& convert_table() noexcept;  // for the ISA in use

// Built by kernels/isa/convert_<isa>.cpp, each with its own compiler flags.
namespace isa_baseline {
extern const ConvertTable kConvert;
}
namespace isa_avx2 {
extern const ConvertTable kConvert;
}
namespace isa_avx512 {
extern const ConvertTable kConvert;
}

}  // namespace npu::host
