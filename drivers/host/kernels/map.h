// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels: what one line of a table needs.
//
// An operator is one formula (formulas.h) and one line
// `map_row<code, formula, dtypes>()` in a table. Operands of any dtype and
// stride are converted to a compute type a few hundred elements at a time, the
// formula runs over them, and the result is converted to the output's dtype
// (map.cpp). Half types are computed in float and all integers in int64;
// results are rounded, or wrap, to the call's compute dtype when they are
// stored.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/formulas.h"
#include "kernels/kernel.h"

namespace npu::host {

// ---- sets of dtypes ----

inline constexpr std::uint64_t kBoolBit = NPU_DTYPE_BIT(NPU_BOOL);
inline constexpr std::uint64_t kHalfBits =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16);
inline constexpr std::uint64_t kWideBits =
    NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
inline constexpr std::uint64_t kFloatBits = kHalfBits | kWideBits;
inline constexpr std::uint64_t kComplexBits =
    NPU_DTYPE_BIT(NPU_C64) | NPU_DTYPE_BIT(NPU_C128);
// The integers that arithmetic is defined for.
inline constexpr std::uint64_t kIntBits =
    NPU_DTYPE_BIT(NPU_U8) | NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I16) |
    NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
inline constexpr std::uint64_t kWideUnsignedBits =
    NPU_DTYPE_BIT(NPU_U16) | NPU_DTYPE_BIT(NPU_U32) | NPU_DTYPE_BIT(NPU_U64);
inline constexpr std::uint64_t kAnyIntBits = kIntBits | kWideUnsignedBits;
inline constexpr std::uint64_t kC32Bit = NPU_DTYPE_BIT(NPU_C32);
inline constexpr std::uint64_t kRealBits = kFloatBits | kIntBits;
inline constexpr std::uint64_t kMapBits =
    kBoolBit | kAnyIntBits | kFloatBits | kComplexBits | NPU_DTYPE_BIT(NPU_C32);

// Not a dtype: the operator takes integers and bool, and computes them in the
// floating point type that the call names.
inline constexpr std::uint64_t kPromotes = UINT64_C(1) << 63;

// ---- compute types ----

using Complex64 = std::complex<float>;
using Complex128 = std::complex<double>;

enum ComputeType : int {
  kInFloat,
  kInDouble,
  kInComplex64,
  kInComplex128,
  kInInt64,
  kInBool,
  kComputeTypes,
};

// The type a dtype is computed in; -1: none.
constexpr int compute_type(npu_dtype dtype) noexcept {
  switch (dtype) {
    case NPU_F16:
    case NPU_BF16:
    case NPU_F32:
      return kInFloat;
    case NPU_F64:
      return kInDouble;
    case NPU_C32:
    case NPU_C64:
      return kInComplex64;
    case NPU_C128:
      return kInComplex128;
    case NPU_BOOL:
      return kInBool;
    default:
      return dtype >= NPU_U8 && dtype <= NPU_U64 ? kInInt64 : -1;
  }
}

inline constexpr npu_dtype kComputeDtype[kComputeTypes] = {
    NPU_F32, NPU_F64, NPU_C64, NPU_C128, NPU_I64, NPU_BOOL};

template <class T>
constexpr npu_dtype dtype_of() noexcept {
  return std::is_same_v<T, float>          ? NPU_F32
         : std::is_same_v<T, double>       ? NPU_F64
         : std::is_same_v<T, Complex64>    ? NPU_C64
         : std::is_same_v<T, Complex128>   ? NPU_C128
         : std::is_same_v<T, std::int64_t> ? NPU_I64
         : std::is_same_v<T, std::int32_t> ? NPU_I32
                                           : NPU_BOOL;
}

// ---- lines ----

// Integers divided by zero are an error.
#define NPU_MAP_DIVIDES(name, ...)         \
  NPU_MAP2(name##Unchecked, __VA_ARGS__)   \
  struct name : name##Unchecked {          \
    static constexpr bool kDivides = true; \
  };

template <class T>
struct IsPair : std::false_type {};
template <class A, class B>
struct IsPair<std::pair<A, B>> : std::true_type {};

npu_status zero_division() noexcept;  // the error of an integer divided by zero

template <class Op, class T>
npu_status map_line(const MapLine& line, std::int64_t n) {
  using R = Result<Op, T>;
  const T* x = static_cast<const T*>(line.in[0]);
  const T* y = static_cast<const T*>(line.in[1]);
  if constexpr (requires { Op::kDivides; } && std::is_integral_v<T>) {
    if (std::find(y, y + n, T(0)) != y + n) {
      return zero_division();
    }
  }
  if constexpr (IsPair<R>::value) {
    const Scalars<T> s(line.scalars);
    const T* z = static_cast<const T*>(line.in[2]);
    auto* out = static_cast<typename R::first_type*>(line.out[0]);
    auto* out2 = static_cast<typename R::second_type*>(line.out[1]);
    for (std::int64_t i = 0; i < n; ++i) {
      std::tie(out[i], out2[i]) = apply_at<Op, T>(x, y, z, i, s);
    }
  } else {
    run_line<Op, T>(line, n);
  }
  return NPU_OK;
}

// ---- rows ----

// One code of a kind.
struct MapRow {
  std::uint32_t code;
  int n_in;
  std::uint64_t dtypes;     // it can be computed in
  std::uint64_t in_dtypes;  // of inputs
  MapLineFn line[kComputeTypes];
  npu_dtype out[kComputeTypes];   // what `line` writes
  npu_dtype out2[kComputeTypes];  // absent in most
};

namespace map_detail {
template <class Op, class T>
constexpr void set(MapRow& row, int type) {
  using R = Result<Op, T>;
  // Lines with loops per instruction set are put in by map.cpp.
  if constexpr (!kHasIsaLoops<Op> || !kIsFloat<T>) {
    row.line[type] = map_line<Op, T>;
  }
  if constexpr (IsPair<R>::value) {
    row.out[type] = dtype_of<typename R::first_type>();
    row.out2[type] = dtype_of<typename R::second_type>();
  } else {
    row.out[type] = dtype_of<R>();
  }
  row.n_in = arity<Op, T>();
}
}  // namespace map_detail

template <std::uint32_t Code, class Op, std::uint64_t Dtypes>
constexpr MapRow map_row() {
  MapRow row{};
  row.code = Code;
  row.dtypes = Dtypes & ~kPromotes;
  row.in_dtypes =
      row.dtypes | ((Dtypes & kPromotes) != 0 ? kAnyIntBits | kBoolBit : 0);
  if constexpr ((Dtypes & (kHalfBits | NPU_DTYPE_BIT(NPU_F32))) != 0) {
    map_detail::set<Op, float>(row, kInFloat);
  }
  if constexpr ((Dtypes & NPU_DTYPE_BIT(NPU_F64)) != 0) {
    map_detail::set<Op, double>(row, kInDouble);
  }
  if constexpr ((Dtypes & NPU_DTYPE_BIT(NPU_C64)) != 0) {
    map_detail::set<Op, Complex64>(row, kInComplex64);
  }
  if constexpr ((Dtypes & NPU_DTYPE_BIT(NPU_C128)) != 0) {
    map_detail::set<Op, Complex128>(row, kInComplex128);
  }
  if constexpr ((Dtypes & kAnyIntBits) != 0) {
    map_detail::set<Op, std::int64_t>(row, kInInt64);
  }
  if constexpr ((Dtypes & kBoolBit) != 0) {
    map_detail::set<Op, bool>(row, kInBool);
  }
  return row;
}

// The row of a code of kinds unary to ternary, with the loops of this machine;
// null: there is none.
const MapRow* find_map_row(std::uint32_t slot, std::uint32_t code);
// What a result of `unit` is rounded to when the call computes in `dtype`;
// NPU_ABSENT when storing it as `out` is enough. Half types are computed in
// float and integers in int64, but what does not fit the dtype must not show in
// a wider output.
npu_dtype map_rounding(npu_dtype unit, npu_dtype dtype, npu_dtype out);
// Scalars that unary_with's codes leave to the dtypes; the code that runs.
std::uint32_t settle_scalars(
    std::uint32_t code, npu_dtype computed, npu_dtype out, npu_scalar* scalars);

// The tables, in the files of their operators.
extern const std::span<const MapRow> kUnaryElementary;
extern const std::span<const MapRow> kUnarySpecial;
extern const std::span<const MapRow> kUnaryActivations;
extern const std::span<const MapRow> kUnaryWithRows;
extern const std::span<const MapRow> kBinaryArithmetic;
extern const std::span<const MapRow> kBinarySpecial;
extern const std::span<const MapRow> kBinaryGradients;
extern const std::span<const MapRow> kCompareRows;
extern const std::span<const MapRow> kTernaryRows;

}  // namespace npu::host
