// SPDX-License-Identifier: Apache-2.0
// Matrix products with an output type of their own: half precision in, float
// accumulated and returned. No CPU kernel exists, so the operands are widened.
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "aten/core/copy.h"
#include "aten/core/frame.h"

namespace npu {
namespace {

void check_types(
    const char* op,
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType out) {
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type(),
      "expected mat1 and mat2 to have the same dtype, but got: ",
      a.scalar_type(),
      " != ",
      b.scalar_type());
  const bool half =
      a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16;
  TORCH_CHECK(
      out == a.scalar_type() || (out == at::kFloat && half),
      "npu: ",
      op,
      ": out_dtype must be the input dtype, or float32 for "
      "float16 and bfloat16 inputs; got ",
      out,
      " for ",
      a.scalar_type(),
      " inputs.");
}

at::Tensor& into(at::Tensor& out, const at::Tensor& result) {
  out.resize_(result.sizes());
  copy(out, result, false);
  return out;
}

at::Tensor mm_as(
    const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  check_same_device("aten::mm.dtype", {&a, &b});
  check_types("mm", a, b, dtype);
  return at::mm(a.to(dtype), b.to(dtype));
}

at::Tensor bmm_as(
    const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  check_same_device("aten::bmm.dtype", {&a, &b});
  check_types("bmm", a, b, dtype);
  return at::bmm(a.to(dtype), b.to(dtype));
}

at::Tensor addmm_as(
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    const c10::Scalar& beta,
    const c10::Scalar& alpha) {
  check_same_device("aten::addmm.dtype", {&self, &a, &b});
  check_types("addmm", a, b, dtype);
  return at::addmm(self.to(dtype), a.to(dtype), b.to(dtype), beta, alpha);
}

at::Tensor baddbmm_as(
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    const c10::Scalar& beta,
    const c10::Scalar& alpha) {
  check_same_device("aten::baddbmm.dtype", {&self, &a, &b});
  check_types("baddbmm", a, b, dtype);
  return at::baddbmm(self.to(dtype), a.to(dtype), b.to(dtype), beta, alpha);
}

at::Tensor& mm_as_out(
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    at::Tensor& out) {
  return into(out, mm_as(a, b, dtype));
}

at::Tensor& bmm_as_out(
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    at::Tensor& out) {
  return into(out, bmm_as(a, b, dtype));
}

at::Tensor& addmm_as_out(
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    const c10::Scalar& beta,
    const c10::Scalar& alpha,
    at::Tensor& out) {
  return into(out, addmm_as(self, a, b, dtype, beta, alpha));
}

at::Tensor& baddbmm_as_out(
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    const c10::Scalar& beta,
    const c10::Scalar& alpha,
    at::Tensor& out) {
  return into(out, baddbmm_as(self, a, b, dtype, beta, alpha));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm.dtype", TORCH_FN(mm_as));
  m.impl("mm.dtype_out", TORCH_FN(mm_as_out));
  m.impl("bmm.dtype", TORCH_FN(bmm_as));
  m.impl("bmm.dtype_out", TORCH_FN(bmm_as_out));
  m.impl("addmm.dtype", TORCH_FN(addmm_as));
  m.impl("addmm.dtype_out", TORCH_FN(addmm_as_out));
  m.impl("baddbmm.dtype", TORCH_FN(baddbmm_as));
  m.impl("baddbmm.dtype_out", TORCH_FN(baddbmm_as_out));
}

}  // namespace npu
