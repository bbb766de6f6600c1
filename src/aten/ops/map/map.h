// SPDX-License-Identifier: Apache-2.0
// Elementwise operators: a frame from PyTorch's TensorIterator, or a fast path
// around it. The generated adapters (codegen/aten_map.py) call these.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "aten/ladder/native.h"
#include "aten/ops/operands.h"
#include "aten/ops/structured.h"

namespace npu {

// Inputs in the kind's order. nullptr: a number that became an operand inside
// the meta function; an undefined tensor: an absent operand.
using MapInputs = std::initializer_list<const at::Tensor*>;

struct MapAttrs {
  const void* data = nullptr;
  std::uint32_t bytes = 0;
};
template <class Attrs>
MapAttrs as_attrs(Attrs& attrs) {
  attrs.size = sizeof(attrs);
  return {&attrs, sizeof(attrs)};
}

// Attributes of any schema type.
inline npu_scalar number(const c10::Scalar& value) {
  return to_npu_scalar(value);
}
template <class T>
npu_scalar number(const std::optional<T>& value) {
  return value ? to_npu_scalar(c10::Scalar(*value)) : npu_scalar{};
}

// Runs the call over an iterator that was built: rungs 1 and 2. Splits it when
// the driver has 32-bit offsets only.
npu_reason run_map(
    NativeSite& site,
    at::TensorIteratorBase& iter,
    MapInputs inputs,
    const MapAttrs& attrs);

// The same for an attempt, whose outputs the iterator makes or has been given.
npu_reason run_map(
    NativeSite& site,
    Outputs& outputs,
    at::TensorIterator iter,
    MapInputs inputs,
    const MapAttrs& attrs);

// How an operator without a structured meta treats dtypes.
enum class MapRule {
  kUnary,    // the result has the input's dtype
  kFloat,    // integers become the default floating point type
  kBool,     // the result is bool, or what out= is
  kBinary,   // operands are promoted
  kCompare,  // promoted, the result is bool, or what out= is
};
// `out` is made when undefined. Throws PyTorch's errors.
at::TensorIterator map_iterator(MapRule rule, at::Tensor out, MapInputs inputs);

// True when a number in an attribute changes no dtype and needs no check.
inline bool is_plain(const c10::Scalar& value) {
  return value.isFloatingPoint() || value.isIntegral(/*includeBool=*/false);
}
template <class T>
bool is_plain(const std::optional<T>& value) {
  return !value || is_plain(c10::Scalar(*value));
}

// True when a number in an attribute is a value that tensors like this can
// have. The CPU function raises for others, or wraps them around.
bool is_value_of(const c10::Scalar& value, const at::Tensor& like);
template <class T>
bool is_value_of(const std::optional<T>& value, const at::Tensor& like) {
  return !value || is_value_of(c10::Scalar(*value), like);
}

// Floating point tensors of one dtype, contiguous, broadcast where needed (or
// of one size, with a number on the host among them): without an iterator.
// False: not such a call, or not one the driver takes as it is; nothing has
// happened then. `bools`: the result is bool. `out` is made when undefined,
// else it is the first input (in-place).
bool run_map_fast(
    NativeSite& site,
    at::Tensor& out,
    MapInputs inputs,
    const MapAttrs& attrs,
    bool bools);

}  // namespace npu
