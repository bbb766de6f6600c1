// SPDX-License-Identifier: Apache-2.0
// Matrix products with an output type of their own: half precision in, float
// accumulated and returned. No CPU kernel exists, so the operands are widened.
// And addr_.
#include <ATen/ops/addmm.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include <string>
#include <string_view>

#include "aten/ops/operands.h"
#include "aten/ops/out_form.h"

namespace npu {
namespace {

// "mm" of "aten::mm.dtype".
std::string_view base_name(std::string_view op) {
  op.remove_prefix(std::string_view("aten::").size());
  return op.substr(0, op.find('.'));
}

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
  TORCH_CHECK(
      out == a.scalar_type() || (out == at::kFloat && is_half(a)),
      "npu: ",
      base_name(op),
      ": out_dtype must be the input dtype, or float32 for "
      "float16 and bfloat16 inputs; got ",
      out,
      " for ",
      a.scalar_type(),
      " inputs.");
}

using Multiply = at::Tensor(const at::Tensor&, const at::Tensor&);
using MultiplyAdd = at::Tensor(
    const at::Tensor&,
    const at::Tensor&,
    const at::Tensor&,
    const c10::Scalar&,
    const c10::Scalar&);

template <const char* kOp, Multiply* kProduct>
at::Tensor product_as(
    const at::Tensor& a, const at::Tensor& b, c10::ScalarType dtype) {
  check_same_device(kOp, {&a, &b});
  check_types(kOp, a, b, dtype);
  return kProduct(a.to(dtype), b.to(dtype));
}

template <const char* kOp, MultiplyAdd* kSum>
at::Tensor sum_as(
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    c10::ScalarType dtype,
    const c10::Scalar& beta,
    const c10::Scalar& alpha) {
  check_same_device(kOp, {&self, &a, &b});
  check_types(kOp, a, b, dtype);
  return kSum(self.to(dtype), a.to(dtype), b.to(dtype), beta, alpha);
}

constexpr char kMm[] = "aten::mm.dtype";
constexpr char kBmm[] = "aten::bmm.dtype";
constexpr char kAddmm[] = "aten::addmm.dtype";
constexpr char kBaddbmm[] = "aten::baddbmm.dtype";

template <auto kFunction>
void add_both(torch::Library& m, const char* op) {
  m.impl(op, kFunction);
  m.impl((std::string(op) + "_out").c_str(), out_form<kFunction>);
}

// PyTorch's composite resizes a self of another shape.
at::Tensor& addr_in_place(
    at::Tensor& self,
    const at::Tensor& vec1,
    const at::Tensor& vec2,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  TORCH_CHECK(
      self.dim() == 2,
      "2D tensor expected, got ",
      self.dim(),
      "D tensor for input");
  TORCH_CHECK(
      vec1.dim() != 1 || vec2.dim() != 1 ||
          (self.size(0) == vec1.size(0) && self.size(1) == vec2.size(0)),
      "size mismatch, input: ",
      self.sizes(),
      ", v1: ",
      vec1.sizes(),
      ", v2: ",
      vec2.sizes());
  return at::addr_out(self, self, vec1, vec2, beta, alpha);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("addr_", &addr_in_place);
  add_both<&product_as<kMm, &at::mm>>(m, kMm);
  add_both<&product_as<kBmm, &at::bmm>>(m, kBmm);
  add_both<&sum_as<kAddmm, &at::addmm>>(m, kAddmm);
  add_both<&sum_as<kBaddbmm, &at::baddbmm>>(m, kBaddbmm);
}

}  // namespace npu
