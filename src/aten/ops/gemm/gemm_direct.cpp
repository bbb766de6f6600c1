// SPDX-License-Identifier: Apache-2.0
// mm and addmm by PyTorch's CPU functions on npu tensors (Note [Direct]): the
// layout decisions are theirs, so the bits are the CPU's.
#include <ATen/ops/addmm_native.h>
#include <ATen/ops/mm_native.h>

#include <algorithm>
#include <cstring>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "attempts/gemm.h"
#include "runtime/parallel.h"

namespace npu::ops {

namespace {

// As BLAS takes a matrix: rows or columns without gaps, the others apart by no
// less than their length. PyTorch copies all others first.
bool lies_for_blas(const at::Tensor& matrix) {
  const auto sizes = matrix.sizes();
  const auto strides = matrix.strides();
  return (strides[1] == 1 && strides[0] >= sizes[1]) ||
         (strides[0] == 1 && strides[1] >= sizes[0]);
}

bool is_product(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && is_float(a) && is_float(b) &&
         same_dtype(a, b) && a.sizes()[1] == b.sizes()[0] && lies_for_blas(a) &&
         lies_for_blas(b);
}

const at::Tensor& make_product(
    Outputs& out, const at::Tensor& a, const at::Tensor& b) {
  const std::int64_t sizes[] = {a.sizes()[0], b.sizes()[1]};
  const auto numel = static_cast<std::size_t>(sizes[0] * sizes[1]);
  out.keep(
      0,
      make_contiguous(
          sizes, numel * a.itemsize(), a.scalar_type(), a.device().index()));
  return out.at(0);
}

// A vector of the matrix's columns, or a matrix of its sizes.
bool may_begin_with(const at::Tensor& self, at::IntArrayRef sizes) {
  return self.is_contiguous() &&
         (self.sizes() == sizes ||
          (self.dim() == 1 && self.sizes()[0] == sizes[1]));
}

// Every row begins as the vector, or all begin as the matrix.
void begin_rows(const at::Tensor& result, const at::Tensor& self) {
  // So many bytes are worth a thread.
  constexpr std::int64_t kBytesOfTask = 1 << 17;
  const auto bytes = static_cast<std::int64_t>(self.nbytes());
  const auto total = static_cast<std::int64_t>(result.nbytes());
  const char* const from = static_cast<const char*>(self.const_data_ptr());
  char* const to = static_cast<char*>(result.mutable_data_ptr());
  parallel_ranges(
      total / bytes,
      kBytesOfTask / bytes,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          std::memcpy(to + row * bytes, from, static_cast<std::size_t>(bytes));
        }
      });
}

}  // namespace

bool product_direct(Outputs& out, const at::Tensor& a, const at::Tensor& b) {
  if (!is_product(a, b)) {
    return false;
  }
  const at::Tensor& result = make_product(out, a, b);
  StructuredOp<at::native::structured_mm_out_cpu, Outputs&>(out).impl(
      a, b, result);
  return true;
}

bool add_product_direct(
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const c10::Scalar& beta,
    const c10::Scalar& alpha) {
  if (!is_product(a, b) || !is_float(self) || !same_dtype(self, a) ||
      beta.isComplex() || alpha.isComplex() ||
      !may_begin_with(self, {a.sizes()[0], b.sizes()[1]})) {
    return false;
  }
  const at::Tensor& result = make_product(out, a, b);
  if (!beta.equal(0)) {
    begin_rows(result, self);
  }
  StructuredOp<at::native::structured_addmm_out_cpu, Outputs&>(out).impl(
      result, a, b, beta, alpha, result);
  return true;
}

}  // namespace npu::ops
