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
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/formulas.h"
#include "kernels/kernel.h"
#include "shared/complex.h"
#include "shared/dtype_sets.h"
#include "shared/map_pair.h"

namespace npu::host {

// ---- compute types ----

using Complex64 = Complex<float>;
using Complex128 = Complex<double>;

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
      const R result = apply_at<Op, T>(x, y, z, i, s);
      out[i] = result.first;
      out2[i] = result.second;
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

// A row as shared/map_*.h writes it.
#define NPU_MAP_ROW(code, op, dtypes) map_row<code, op, dtypes>(),

// The row of a code of kinds unary to ternary, with the loops of this machine;
// null: there is none.
const MapRow* find_map_row(std::uint32_t slot, std::uint32_t code);
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
