// SPDX-License-Identifier: Apache-2.0
// Conversions of lines of elements, built from the tables of kernels/isa.
#include "kernels/convert.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernel.h"

namespace npu::host {
namespace {

constexpr std::int64_t kChunk = 512;  // elements; buffers stay in the L1 cache

// A dtype as the machine type it is computed with, and its packed form if any.
struct Form {
  int unit = -1;
  int packed = -1;
};

constexpr Form form_of(npu_dtype dtype) {
  switch (dtype) {
    case NPU_BOOL:
    case NPU_U8:
      return {kU8, -1};
    case NPU_I8:
      return {kI8, -1};
    case NPU_I16:
      return {kI16, -1};
    case NPU_I32:
      return {kI32, -1};
    case NPU_I64:
      return {kI64, -1};
    case NPU_U16:
      return {kU16, -1};
    case NPU_U32:
      return {kU32, -1};
    case NPU_U64:
      return {kU64, -1};
    case NPU_F32:
      return {kF32, -1};
    case NPU_F64:
      return {kF64, -1};
    case NPU_F16:
      return {kF32, kF16};
    case NPU_BF16:
      return {kF32, kBF16};
    case NPU_F8_E4M3FN:
      return {kF32, kE4m3fn};
    case NPU_F8_E5M2:
      return {kF32, kE5m2};
    case NPU_F8_E4M3FNUZ:
      return {kF32, kE4m3fnuz};
    case NPU_F8_E5M2FNUZ:
      return {kF32, kE5m2fnuz};
    case NPU_F8_E8M0FNU:
      return {kF32, kE8m0fnu};
    default:
      return {};
  }
}

constexpr std::uint32_t kUnitBytes[kUnitCount] = {
    1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 1};

template <class T>
void copy_strided(
    char* dst,
    std::int64_t dst_stride,
    const char* src,
    std::int64_t src_stride,
    std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, src + i * src_stride, sizeof(T));
    std::memcpy(dst + i * dst_stride, &value, sizeof(T));
  }
}

// One side contiguous: strides known to the compiler.
template <class T>
void copy_typed(
    char* dst,
    std::int64_t dst_stride,
    const char* src,
    std::int64_t src_stride,
    std::int64_t n) {
  if (dst_stride == sizeof(T)) {
    copy_strided<T>(dst, sizeof(T), src, src_stride, n);
  } else if (src_stride == sizeof(T)) {
    copy_strided<T>(dst, dst_stride, src, sizeof(T), n);
  } else {
    copy_strided<T>(dst, dst_stride, src, src_stride, n);
  }
}

struct Sixteen {
  std::uint64_t words[2];
};

}  // namespace

const ConvertTable& convert_table() noexcept {
  return NPU_TABLE_IN_USE(kConvert);
}

void copy_line(
    std::uint32_t bytes,
    char* dst,
    std::int64_t dst_stride,
    const char* src,
    std::int64_t src_stride,
    std::int64_t n) noexcept {
  if (dst_stride == bytes && src_stride == bytes) {
    std::memmove(dst, src, static_cast<std::size_t>(n) * bytes);
    return;
  }
  switch (bytes) {
    case 1:
      return copy_typed<std::uint8_t>(dst, dst_stride, src, src_stride, n);
    case 2:
      return copy_typed<std::uint16_t>(dst, dst_stride, src, src_stride, n);
    case 4:
      return copy_typed<std::uint32_t>(dst, dst_stride, src, src_stride, n);
    case 8:
      return copy_typed<std::uint64_t>(dst, dst_stride, src, src_stride, n);
    default:
      return copy_typed<Sixteen>(dst, dst_stride, src, src_stride, n);
  }
}

bool Conversion::set(npu_dtype to, npu_dtype from, bool negate) noexcept {
  n_steps_ = 0;
  dst_bytes_ = static_cast<std::uint32_t>(element_bytes(to));
  src_bytes_ = static_cast<std::uint32_t>(element_bytes(from));
  const Form source = form_of(from);
  const Form target = form_of(to);
  if (to == from && !negate) {
    return dst_bytes_ != 0;
  }
  if (source.unit < 0 || target.unit < 0) {
    return false;
  }
  const ConvertTable& table = convert_table();
  if (source.packed >= 0) {
    add(table.decode[source.packed], 4);
  }
  if (negate) {
    add(table.negate[source.unit], kUnitBytes[source.unit]);
  }
  const int unit = to == NPU_BOOL ? static_cast<int>(kBool) : target.unit;
  if (unit != source.unit) {
    add(table.cast[source.unit][unit], kUnitBytes[unit]);
  }
  if (target.packed >= 0) {
    add(table.encode[target.packed], dst_bytes_);
  }
  return true;
}

void Conversion::line(
    char* dst,
    std::int64_t dst_stride,
    const char* src,
    std::int64_t src_stride,
    std::int64_t n) const noexcept {
  if (n_steps_ == 0) {
    copy_line(dst_bytes_, dst, dst_stride, src, src_stride, n);
    return;
  }
  const bool gather = src_stride != src_bytes_;
  const bool scatter = dst_stride != dst_bytes_;
  if (!gather && !scatter && n_steps_ == 1) {
    steps_[0].fn(dst, src, n);
    return;
  }
  alignas(64) char buffers[2][kChunk * 8];
  for (std::int64_t done = 0; done < n; done += kChunk) {
    const std::int64_t m = std::min(kChunk, n - done);
    const char* from = src + done * src_stride;
    char* to = dst + done * dst_stride;
    int next = 0;  // buffer that is free
    if (gather) {
      copy_line(src_bytes_, buffers[0], src_bytes_, from, src_stride, m);
      from = buffers[0];
      next = 1;
    }
    for (int i = 0; i < n_steps_; ++i) {
      const bool last = i + 1 == n_steps_ && !scatter;
      char* out = last ? to : buffers[next];
      steps_[i].fn(out, from, m);
      from = out;
      next ^= 1;
    }
    if (scatter) {
      copy_line(dst_bytes_, to, dst_stride, from, dst_bytes_, m);
    }
  }
}

bool convert_scalar(
    npu_dtype dtype, const npu_scalar& scalar, void* out) noexcept {
  const npu_dtype part = part_dtype(dtype);
  const npu_dtype target = part == NPU_ABSENT ? dtype : part;
  const bool is_float =
      scalar.kind == NPU_SCALAR_FLOAT || scalar.kind == NPU_SCALAR_COMPLEX;
  const npu_dtype from = is_float                         ? NPU_F64
                         : scalar.kind == NPU_SCALAR_UINT ? NPU_U64
                                                          : NPU_I64;
  const void* value = is_float ? static_cast<const void*>(&scalar.re)
                               : static_cast<const void*>(&scalar.i);
  Conversion conversion;
  if (!conversion.set(target, from, false)) {
    return false;
  }
  const auto bytes = static_cast<std::int64_t>(element_bytes(target));
  char* to = static_cast<char*>(out);
  conversion.line(to, bytes, static_cast<const char*>(value), 8, 1);
  const double imaginary = scalar.kind == NPU_SCALAR_COMPLEX ? scalar.im : 0.0;
  if (part != NPU_ABSENT) {
    conversion.set(target, NPU_F64, false);
    conversion.line(
        to + bytes, bytes, reinterpret_cast<const char*>(&imaginary), 8, 1);
  } else if (dtype == NPU_BOOL && imaginary != 0.0) {
    *to = 1;
  }
  return true;
}

}  // namespace npu::host
