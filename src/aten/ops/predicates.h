// SPDX-License-Identifier: Apache-2.0
// Predicates that rows of ops/aten/*.yaml name with keys 'check' and 'anyway'.
// The generator reads their names here; a predicate that one adapter alone
// needs is declared by the generator and defined beside the adapter.
#pragma once

#include <c10/core/Scalar.h>

#include "aten/ops/operands.h"

namespace npu::ops {

using npu::is_float;
using npu::is_index;
using npu::on_device;

// ---- dtypes ----

template <class... Tensors>
bool same_dtype(const at::Tensor& tensor, const Tensors&... others) {
  return (npu::same_dtype(tensor, others) && ...);
}

inline bool is_floating(const at::Tensor& tensor) {
  return tensor.is_floating_point();
}
inline bool is_real(const at::Tensor& tensor) {
  return !tensor.is_complex();
}
// Floating point or complex.
inline bool is_inexact(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}
inline bool is_not_half(const at::Tensor& tensor) {
  return !is_half(tensor);
}
inline bool is_bool(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool;
}
inline bool is_long(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong;
}
inline bool is_not_int32(const at::Tensor& tensor) {
  return tensor.scalar_type() != at::kInt;
}
template <class... Tensors>
bool is_int8(const Tensors&... tensors) {
  return ((tensors.scalar_type() == at::kChar) && ...);
}
inline bool changes_dtype(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.scalar_type() != dtype;
}

// ---- shapes and memory ----

template <class... Tensors>
bool has_elements(const Tensors&... tensors) {
  return ((tensors.numel() != 0) && ...);
}
inline bool is_empty(const at::Tensor& tensor) {
  return tensor.numel() == 0;
}
inline bool same_numel(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == b.numel();
}
inline bool is_single(const at::Tensor& tensor) {
  return tensor.dim() == 0;
}
inline bool is_vector(const at::Tensor& tensor) {
  return tensor.dim() == 1;
}
inline bool is_matrix(const at::Tensor& tensor) {
  return tensor.dim() == 2;
}
template <class... Tensors>
bool is_contiguous(const Tensors&... tensors) {
  return (tensors.is_contiguous() && ...);
}
// The first shares its memory with none of the others.
template <class... Tensors>
bool is_apart(const at::Tensor& tensor, const Tensors&... others) {
  return (!tensor.is_alias_of(others) && ...);
}

// ---- numbers ----

inline bool is_off(bool flag) {
  return !flag;
}
template <class Number>
bool is_positive(Number number) {
  return number > 0;
}
inline bool is_not_negative(const c10::Scalar& number) {
  return number.toDouble() >= 0;
}
inline bool is_one(const c10::Scalar& number) {
  return number.equal(1);
}

}  // namespace npu::ops
