// SPDX-License-Identifier: Apache-2.0
// Queues the parts of a decomposition, one call after the other.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "compose/compose.h"
#include "compose/tensor.h"
#include "npu/kinds.h"

namespace npu::compose {

// Thrown when a part cannot be had; run() answers false.
struct Declined {};

inline npu_scalar number(double value) noexcept {
  return {NPU_SCALAR_FLOAT, 0, static_cast<std::int64_t>(value), value, 0};
}

inline npu_scalar whole_number(std::int64_t value) noexcept {
  return {NPU_SCALAR_INT, 0, value, static_cast<double>(value), 0};
}

// No output has elements: drivers are asked for nothing.
bool writes_nothing(const npu_call& call) noexcept;

// Functions that return a tensor make a temporary of the first operand's dtype
// and the operands' broadcast sizes. Codes are those of the kind.
class Builder {
 public:
  Builder(Runner& runner, const npu_call& call) noexcept
      : runner_(runner), call_(call) {}

  // Operands of the call that is decomposed; absent ones are absent tensors.
  Tensor out(std::uint32_t i) const;
  Tensor in(std::uint32_t i) const;
  const npu_call& call() const noexcept {
    return call_;
  }
  template <class Attrs>
  Attrs attrs() const noexcept {
    Attrs attrs;
    npu_call_attrs(&call_, &attrs, sizeof(attrs));
    return attrs;
  }

  Tensor make(npu_dtype dtype, const Sizes& sizes);
  // In the type sums are kept in: half types as float32.
  Tensor wide(const Tensor& x);
  Tensor contiguous(const Tensor& x);
  Tensor cast(const Tensor& x, npu_dtype dtype);

  void copy(const Tensor& out, const Tensor& x);
  void fill(const Tensor& out, double value);

  void unary(std::uint32_t code, const Tensor& out, const Tensor& x);
  void unary_with(
      std::uint32_t code,
      const Tensor& out,
      const Tensor& x,
      npu_scalar a,
      npu_scalar b = {});
  void binary(
      std::uint32_t code, const Tensor& out, const Tensor& x, const Tensor& y);
  Tensor unary(std::uint32_t code, const Tensor& x);
  Tensor affine(const Tensor& x, double times, double plus);
  Tensor binary(std::uint32_t code, const Tensor& x, const Tensor& y);
  Tensor compare(std::uint32_t code, const Tensor& x, const Tensor& y);
  Tensor where(const Tensor& mask, const Tensor& yes, const Tensor& no);
  Tensor constant(npu_dtype dtype, double value);  // without dimensions

  Tensor add(const Tensor& x, const Tensor& y) {
    return binary(NPU_BINARY_ADD, x, y);
  }
  Tensor sub(const Tensor& x, const Tensor& y) {
    return binary(NPU_BINARY_SUB, x, y);
  }
  Tensor mul(const Tensor& x, const Tensor& y) {
    return binary(NPU_BINARY_MUL, x, y);
  }
  Tensor div(const Tensor& x, const Tensor& y) {
    return binary(NPU_BINARY_DIV, x, y);
  }

  // Over the dimensions in the bit mask, which keep size 1. Codes are sum, mean
  // and norm.
  void reduce(
      std::uint32_t code,
      const Tensor& out,
      const Tensor& x,
      std::uint64_t dims,
      double p = 2);
  Tensor reduce(
      std::uint32_t code, const Tensor& x, std::uint64_t dims, double p = 2);

  // start, start + step, ... as int64.
  Tensor range(std::int64_t count, std::int64_t start, std::int64_t step);
  void index_select(
      const Tensor& out, const Tensor& x, const Tensor& index, int dim);
  void sort(const Tensor& out, const Tensor& x);  // one dimension, ascending
  Tensor searchsorted(const Tensor& sorted, const Tensor& values);
  Tensor cumprod(const Tensor& x, int dim);
  Tensor gather(const Tensor& x, const Tensor& index, int dim);
  void scatter(
      std::uint32_t code,
      const Tensor& out,
      const Tensor& index,
      const Tensor& src,
      int dim);
  // Queues a call of any kind that was filled by hand.
  void run(Call& call);

 private:
  // One call of the family map: operands broadcast to the first, dimensions
  // merged.
  void map(
      std::uint32_t slot,
      std::uint32_t code,
      const Tensor& out,
      std::initializer_list<const Tensor*> ins,
      std::uint32_t absent_outs,
      const void* attrs,
      std::uint32_t attr_bytes);

  Runner& runner_;
  const npu_call& call_;
};

// Dimensions as a mask.
inline std::uint64_t all_dims(const Tensor& x) noexcept {
  return (std::uint64_t{1} << x.ndim()) - 1;
}
inline std::uint64_t dim_bit(int dim) noexcept {
  return std::uint64_t{1} << dim;
}

using Decomposition = void (*)(Builder& build);

}  // namespace npu::compose
