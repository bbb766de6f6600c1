// SPDX-License-Identifier: Apache-2.0
// mm, bmm, addmm, baddbmm, addbmm, addmv, dot, vdot, _int_mm and the rest of
// the products.
#include <ATen/ExpandUtils.h>

#include "aten/ops/op.h"
#include "attempts/gemm.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

using c10::Scalar;

// out = epilogue(alpha * a @ b + beta * c); c is absent for beta 0, and has
// the output's sizes.
struct Product {
  const at::Tensor& out;
  const at::Tensor& a;
  const at::Tensor& b;
  at::Tensor c;
  Scalar beta = 0;
  Scalar alpha = 1;
  std::uint32_t epilogue = NPU_GEMM_EPILOGUE_NONE;
};

bool suits(const Scalar& value, const at::Tensor& tensor) {
  return tensor.is_complex() ||
         (!value.isComplex() &&
          (tensor.is_floating_point() || value.isIntegral(true)));
}

npu_reason run_product(NativeSite& site, const Product& product) {
  const at::Tensor& out = product.out;
  if (out.numel() == 0) {
    return NPU_REASON_NONE;
  }
  // Sums of nothing, mixed dtypes and outputs that are inputs are CPU's.
  if (const npu_reason why = first_failed(
          {{product.a.numel() > 0 && product.b.numel() > 0, NPU_REASON_SIZE},
           {same_dtype(product.a, product.b) && same_dtype(product.a, out),
            NPU_REASON_DTYPE},
           {!product.a.is_alias_of(out) && !product.b.is_alias_of(out),
            NPU_REASON_ALIAS},
           {suits(product.alpha, out) && suits(product.beta, out),
            kLeaveToCpu}})) {
    return why;
  }
  npu_gemm_attrs attrs{};
  attrs.alpha = to_npu_scalar(product.alpha);
  attrs.beta = to_npu_scalar(product.beta);
  attrs.epilogue = product.epilogue;
  npu_tensor c{};
  if (product.c.defined() && !product.beta.equal(0)) {
    if (!same_dtype(product.c, out)) {
      return NPU_REASON_DTYPE;
    }
    c = input_operand(product.c, out);
    if ((c.flags & NPU_TENSOR_ALIAS) == 0 && product.c.is_alias_of(out)) {
      return NPU_REASON_ALIAS;
    }
  }
  Call call = site.call();
  build::gemm(
      call,
      to_operand(out),
      nullptr,
      to_operand(product.a),
      to_operand(product.b),
      &c,
      nullptr,
      attrs);
  return run(site, call, out);
}

}  // namespace

npu_reason product(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Tensor& out) {
  return run_product(site, {out, self, other, {}});
}

npu_reason add_product(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const Scalar& beta,
    const Scalar& alpha,
    const at::Tensor& out) {
  if (!at::is_expandable_to(self.sizes(), out.sizes())) {
    return kLeaveToCpu;
  }
  return run_product(site, {out, a, b, self.expand(out.sizes()), beta, alpha});
}

npu_reason add_product_activated(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const Scalar& beta,
    const Scalar& alpha,
    bool use_gelu,
    const at::Tensor& out) {
  if (!out.is_floating_point()) {
    return NPU_REASON_DTYPE;
  }
  return run_product(
      site,
      {out,
       a,
       b,
       self.expand(out.sizes()),
       beta,
       alpha,
       use_gelu ? NPU_GEMM_EPILOGUE_GELU : NPU_GEMM_EPILOGUE_RELU});
}

// A vector is a matrix of one column.
npu_reason add_matrix_vector(
    NativeSite& site,
    const at::Tensor& self,
    const at::Tensor& matrix,
    const at::Tensor& vector,
    const Scalar& beta,
    const Scalar& alpha,
    const at::Tensor& out) {
  const at::Tensor column = out.unsqueeze(1);
  const at::Tensor sum =
      self.is_same(out) ? column : self.expand(out.sizes()).unsqueeze(1);
  return run_product(
      site, {column, matrix, vector.unsqueeze(1), sum, beta, alpha});
}

// The batch is part of the sum.
npu_reason add_batch_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const Scalar& beta,
    const Scalar& alpha) {
  if (a.dim() != 3 || b.dim() != 3 || a.numel() == 0 || b.numel() == 0 ||
      a.size(0) != b.size(0) || a.size(2) != b.size(1) ||
      a.scalar_type() != self.scalar_type()) {
    return kLeaveToCpu;
  }
  const std::int64_t sizes[] = {a.size(1), b.size(2)};
  if (!at::is_expandable_to(self.sizes(), sizes)) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(out, 0, sizes, self);
  const at::Tensor left = a.transpose(0, 1).reshape({a.size(1), -1});
  const at::Tensor right = b.reshape({-1, b.size(2)});
  return run_product(
      site, {result, left, right, self.expand(sizes), beta, alpha});
}

// ---- dot ----

npu_reason dot(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other) {
  if (self.dim() != 1 || self.sizes() != other.sizes() || self.numel() == 0 ||
      !other.is_privateuseone() || self.scalar_type() != other.scalar_type()) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(out, 0, {}, self);
  // What is conjugated by a bit needs no copy.
  if (self.is_conj() || other.is_conj()) {
    return kLeaveToCpu;
  }
  Call call = site.call();
  build::dot(call, to_operand(result), to_operand(self), to_operand(other));
  return run(site, call, self);
}

// ---- 8-bit floats ----

namespace {

bool is_byte_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat8_e4m3fn ||
         tensor.scalar_type() == at::kFloat8_e5m2;
}

// One scale for all, or one per row of the first and column of the second.
std::optional<std::uint32_t> scaling_of(
    const at::Tensor& scale, at::IntArrayRef by_row) {
  if (scale.scalar_type() != at::kFloat) {
    return std::nullopt;
  }
  if (scale.numel() == 1) {
    return NPU_GEMM_SCALED_SCALING_A_TENSOR;
  }
  return scale.sizes() == by_row
             ? std::optional<std::uint32_t>(NPU_GEMM_SCALED_SCALING_A_ROW)
             : std::nullopt;
}

}  // namespace

npu_reason scaled_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Tensor& scale_a,
    const at::Tensor& scale_b,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& scale_result,
    std::optional<c10::ScalarType> out_dtype,
    bool use_fast_accum) {
  const c10::ScalarType dtype = out_dtype.value_or(self.scalar_type());
  if (self.dim() != 2 || other.dim() != 2 || self.size(1) != other.size(0) ||
      !is_byte_float(self) || !is_byte_float(other) || scale_result ||
      (dtype != at::kFloat && dtype != at::kBFloat16) || self.numel() == 0 ||
      other.numel() == 0 || other.size(0) % 16 != 0 ||
      other.size(1) % 16 != 0 ||
      (out.at(0).defined() && out.at(0).scalar_type() != dtype) ||
      (bias && bias->sizes() != at::IntArrayRef({other.size(1)}))) {
    return kLeaveToCpu;
  }
  const auto rows = scaling_of(scale_a, {self.size(0), 1});
  const auto columns = scaling_of(scale_b, {1, other.size(1)});
  if (!rows || !columns) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(
      out, 0, {self.size(0), other.size(1)}, self.options().dtype(dtype));
  npu_gemm_scaled_attrs attrs{};
  attrs.scaling_a = *rows;
  attrs.scaling_b = *columns;
  attrs.fast_accumulate = use_fast_accum ? 1 : 0;
  Call call = site.call();
  build::gemm_scaled(
      call,
      to_operand(result),
      nullptr,
      to_operand(self),
      to_operand(other),
      to_operand(scale_a),
      to_operand(scale_b),
      MaybeOperand(bias),
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return run(site, call, self);
}

// ---- 8-bit integers ----

npu_reason int_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other) {
  const at::Tensor& given = out.at(0);
  if (self.dim() != 2 || other.dim() != 2 || self.size(1) != other.size(0) ||
      self.scalar_type() != at::kChar || other.scalar_type() != at::kChar ||
      self.numel() == 0 || other.numel() == 0 ||
      (given.defined() &&
       (given.scalar_type() != at::kInt ||
        given.sizes() != at::IntArrayRef({self.size(0), other.size(1)})))) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(
      out, 0, {self.size(0), other.size(1)}, self.options().dtype(at::kInt));
  npu_gemm_int8_attrs attrs{};
  Call call = site.call();
  build::gemm_int8(
      call,
      to_operand(result),
      to_operand(self),
      to_operand(other),
      nullptr,
      nullptr,
      nullptr,
      attrs);
  return run(site, call, self);
}

npu_reason weight_int8_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& weight,
    const at::Tensor& scales) {
  if (self.dim() != 2 || weight.dim() != 2 || scales.dim() != 1 ||
      self.size(1) != weight.size(1) || scales.size(0) != weight.size(0) ||
      weight.scalar_type() != at::kChar || !self.is_floating_point() ||
      !self.is_contiguous() || !weight.is_contiguous() || self.numel() == 0 ||
      weight.numel() == 0 || weight.size(0) % 32 != 0) {
    return kLeaveToCpu;
  }
  const at::Tensor& result =
      set_output(out, 0, {self.size(0), weight.size(0)}, self);
  npu_gemm_int8_attrs attrs{};
  const at::Tensor columns = weight.t();
  Call call = site.call();
  build::gemm_int8(
      call,
      to_operand(result),
      to_operand(self),
      to_operand(columns),
      MaybeOperand(scales),
      nullptr,
      nullptr,
      attrs);
  return run(site, call, self);
}

}  // namespace npu::ops
