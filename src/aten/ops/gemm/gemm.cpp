// SPDX-License-Identifier: Apache-2.0
// mm, bmm, addmm, baddbmm, addbmm, addmv, dot, vdot, _int_mm and the rest of
// the products.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_addmm_activation_cpu_dispatch.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_int_mm_cpu_dispatch.h>
#include <ATen/ops/_scaled_mm_cpu_dispatch.h>
#include <ATen/ops/_weight_int8pack_mm_cpu_dispatch.h>
#include <ATen/ops/addbmm_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/dot_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/vdot_cpu_dispatch.h>

#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
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
  const bool plain = product.a.numel() > 0 && product.b.numel() > 0 &&
                     product.a.scalar_type() == product.b.scalar_type() &&
                     product.a.scalar_type() == out.scalar_type() &&
                     !product.a.is_alias_of(out) &&
                     !product.b.is_alias_of(out) && suits(product.alpha, out) &&
                     suits(product.beta, out);
  if (!plain) {
    return kOdd;
  }
  npu_gemm_attrs attrs{};
  attrs.alpha = to_npu_scalar(product.alpha);
  attrs.beta = to_npu_scalar(product.beta);
  attrs.epilogue = product.epilogue;
  npu_tensor c{};
  if (product.c.defined() && !product.beta.equal(0)) {
    if (product.c.scalar_type() != out.scalar_type()) {
      return kOdd;
    }
    c = input_operand(product.c, out);
    if ((c.flags & NPU_TENSOR_ALIAS) == 0 && product.c.is_alias_of(out)) {
      return kOdd;
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

template <class Meta>
npu_reason product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other) {
  if (const npu_reason why = site.wants(self, other); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, other);
  return run_product(site, {out.at(0), self, other, {}});
}

template <class Meta>
npu_reason add_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const Scalar& beta,
    const Scalar& alpha) {
  if (const npu_reason why = site.wants(self, a, b); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, a, b, beta, alpha);
  const at::Tensor& result = out.at(0);
  if (!at::is_expandable_to(self.sizes(), result.sizes())) {
    return kOdd;
  }
  return run_product(
      site, {result, a, b, self.expand(result.sizes()), beta, alpha});
}

npu_reason add_product_activated(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const Scalar& beta,
    const Scalar& alpha,
    bool use_gelu) {
  if (const npu_reason why = site.wants(self, a, b); why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured__addmm_activation>(
      out, self, a, b, beta, alpha, use_gelu);
  const at::Tensor& result = out.at(0);
  if (!result.is_floating_point()) {
    return kOdd;
  }
  return run_product(
      site,
      {result,
       a,
       b,
       self.expand(result.sizes()),
       beta,
       alpha,
       use_gelu ? NPU_GEMM_EPILOGUE_GELU : NPU_GEMM_EPILOGUE_RELU});
}

// A vector is a matrix of one column.
npu_reason add_matrix_vector(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& matrix,
    const at::Tensor& vector,
    const Scalar& beta,
    const Scalar& alpha) {
  if (const npu_reason why = site.wants(self, matrix, vector);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_addmv>(out, self, matrix, vector, beta, alpha);
  const at::Tensor column = out.at(0).unsqueeze(1);
  const at::Tensor sum = self.is_same(out.at(0))
                             ? column
                             : self.expand(out.at(0).sizes()).unsqueeze(1);
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
  if (const npu_reason why = site.wants(self, a, b); why != NPU_REASON_NONE) {
    return why;
  }
  if (a.dim() != 3 || b.dim() != 3 || a.numel() == 0 || b.numel() == 0 ||
      a.size(0) != b.size(0) || a.size(2) != b.size(1) ||
      a.scalar_type() != self.scalar_type()) {
    return kOdd;
  }
  const std::int64_t sizes[] = {a.size(1), b.size(2)};
  if (!at::is_expandable_to(self.sizes(), sizes)) {
    return kOdd;
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
  if (const npu_reason why = site.wants(self, other); why != NPU_REASON_NONE) {
    return why;
  }
  if (self.dim() != 1 || self.sizes() != other.sizes() || self.numel() == 0 ||
      !other.is_privateuseone() || self.scalar_type() != other.scalar_type()) {
    return kOdd;
  }
  const at::Tensor& result = set_output(out, 0, {}, self);
  // What is conjugated by a bit needs no copy.
  if (self.is_conj() || other.is_conj()) {
    return kOdd;
  }
  Call call = site.call();
  build::dot(call, to_operand(result), to_operand(self), to_operand(other));
  return run(site, call, self);
}

// ---- 8-bit floats ----

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
  if (const npu_reason why = site.wants(self, other, scale_a, scale_b);
      why != NPU_REASON_NONE) {
    return why;
  }
  const c10::ScalarType dtype = out_dtype.value_or(self.scalar_type());
  if (self.dim() != 2 || other.dim() != 2 || self.size(1) != other.size(0) ||
      !is_byte_float(self) || !is_byte_float(other) || scale_result ||
      (dtype != at::kFloat && dtype != at::kBFloat16) || self.numel() == 0 ||
      other.numel() == 0 || other.size(0) % 16 != 0 ||
      other.size(1) % 16 != 0 ||
      (out.at(0).defined() && out.at(0).scalar_type() != dtype) ||
      (bias && bias->sizes() != at::IntArrayRef({other.size(1)}))) {
    return kOdd;
  }
  const auto rows = scaling_of(scale_a, {self.size(0), 1});
  const auto columns = scaling_of(scale_b, {1, other.size(1)});
  if (!rows || !columns) {
    return kOdd;
  }
  const at::Tensor& result = set_output(
      out, 0, {self.size(0), other.size(1)}, self.options().dtype(dtype));
  npu_gemm_scaled_attrs attrs{};
  attrs.scaling_a = *rows;
  attrs.scaling_b = *columns;
  attrs.fast_accumulate = use_fast_accum ? 1 : 0;
  const npu_tensor added = optional_operand(bias);
  Call call = site.call();
  build::gemm_scaled(
      call,
      to_operand(result),
      nullptr,
      to_operand(self),
      to_operand(other),
      to_operand(scale_a),
      to_operand(scale_b),
      &added,
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
  if (const npu_reason why = site.wants(self, other); why != NPU_REASON_NONE) {
    return why;
  }
  const at::Tensor& given = out.at(0);
  if (self.dim() != 2 || other.dim() != 2 || self.size(1) != other.size(0) ||
      self.scalar_type() != at::kChar || other.scalar_type() != at::kChar ||
      self.numel() == 0 || other.numel() == 0 ||
      (given.defined() &&
       (given.scalar_type() != at::kInt ||
        given.sizes() != at::IntArrayRef({self.size(0), other.size(1)})))) {
    return kOdd;
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
  if (const npu_reason why = site.wants(self, weight, scales);
      why != NPU_REASON_NONE) {
    return why;
  }
  if (self.dim() != 2 || weight.dim() != 2 || scales.dim() != 1 ||
      self.size(1) != weight.size(1) || scales.size(0) != weight.size(0) ||
      weight.scalar_type() != at::kChar || !self.is_floating_point() ||
      !self.is_contiguous() || !weight.is_contiguous() || self.numel() == 0 ||
      weight.numel() == 0 || weight.size(0) % 32 != 0) {
    return kOdd;
  }
  const at::Tensor& result =
      set_output(out, 0, {self.size(0), weight.size(0)}, self);
  const npu_tensor scale = to_operand(scales);
  npu_gemm_int8_attrs attrs{};
  const at::Tensor columns = weight.t();
  Call call = site.call();
  build::gemm_int8(
      call,
      to_operand(result),
      to_operand(self),
      to_operand(columns),
      &scale,
      nullptr,
      nullptr,
      attrs);
  return run(site, call, self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::cpu;
  constexpr std::uint32_t k = NPU_KIND_GEMM;
  constexpr auto mm2 = product<at::meta::structured_mm>;
  constexpr auto mm3 = product<at::meta::structured_bmm>;
  constexpr auto add2 = add_product<at::meta::structured_addmm>;
  constexpr auto add3 = add_product<at::meta::structured_baddbmm>;
  constexpr auto act = add_product_activated;
  constexpr auto vec = add_matrix_vector;
  constexpr auto sum = add_batch_product;
  add<Op<"mm", k, 0, &mm, mm2>>(m);
  add<Op<"mm.out", k, 0, &mm_outf, mm2>>(m);
  add<Op<"bmm", k, 0, &bmm, mm3>>(m);
  add<Op<"bmm.out", k, 0, &bmm_outf, mm3>>(m);
  add<Op<"addmm", k, 0, &addmm, add2>>(m);
  add<Op<"addmm_", k, 0, &addmm_, add2>>(m);
  add<Op<"addmm.out", k, 0, &addmm_outf, add2>>(m);
  add<Op<"baddbmm", k, 0, &baddbmm, add3>>(m);
  add<Op<"baddbmm_", k, 0, &baddbmm_, add3>>(m);
  add<Op<"baddbmm.out", k, 0, &baddbmm_outf, add3>>(m);
  add<Op<"addbmm", k, 0, &addbmm, sum>>(m);
  add<Op<"addbmm_", k, 0, &addbmm_, sum>>(m);
  add<Op<"addbmm.out", k, 0, &addbmm_outf, sum>>(m);
  add<Op<"addmv", k, 0, &addmv, vec>>(m);
  add<Op<"addmv_", k, 0, &addmv_, vec>>(m);
  add<Op<"addmv.out", k, 0, &addmv_outf, vec>>(m);
  add<Op<"_addmm_activation", k, 0, &_addmm_activation, act>>(m);
  add<Op<"_addmm_activation.out", k, 0, &_addmm_activation_outf, act>>(m);
  constexpr std::uint32_t kDot = NPU_KIND_DOT;
  add<Op<"dot", kDot, NPU_DOT_DOT, &at::cpu::dot, npu::dot>>(m);
  add<Op<"vdot", kDot, NPU_DOT_VDOT, &vdot, npu::dot>>(m);
  constexpr std::uint32_t kScaled = NPU_KIND_GEMM_SCALED;
  add<Op<"_scaled_mm", kScaled, 0, &_scaled_mm, scaled_product>>(m);
  add<Op<"_scaled_mm.out", kScaled, 0, &_scaled_mm_outf, scaled_product>>(m);
  constexpr std::uint32_t kInt8 = NPU_KIND_GEMM_INT8;
  add<Op<"_int_mm", kInt8, 0, &_int_mm, int_product>>(m);
  add<Op<"_int_mm.out", kInt8, 0, &_int_mm_outf, int_product>>(m);
  add<
      Op<"_weight_int8pack_mm",
         kInt8,
         NPU_GEMM_INT8_WEIGHT_INT8,
         &_weight_int8pack_mm,
         weight_int8_product>>(m);
}

}  // namespace npu
