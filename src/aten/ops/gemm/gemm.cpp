// SPDX-License-Identifier: Apache-2.0
// mm, bmm, addmm, baddbmm, addbmm, addmv, dot, vdot, _int_mm and the rest of
// the products.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

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

// One value per column, the same in every row: a bias that was expanded.
bool is_row(const npu_tensor& c) {
  bool same = c.ndim >= 2;
  for (std::uint32_t d = 0; d + 1 < c.ndim; ++d) {
    same = same && (c.strides[d] == 0 || c.sizes[d] == 1);
  }
  return same;
}

npu_tensor last_dimension(npu_tensor tensor) {
  tensor.sizes += tensor.ndim - 1;
  tensor.strides += tensor.ndim - 1;
  tensor.ndim = 1;
  tensor.numel = *tensor.sizes;
  return tensor;
}

npu_reason run_product(NativeSite& site, const Product& product) {
  const at::Tensor& out = product.out;
  if (out.numel() == 0) {
    return NPU_REASON_NONE;
  }
  // Sums of nothing, mixed dtypes and outputs that are inputs are CPU's. So is
  // alpha 0, which there multiplies a NaN for some dtypes and sizes only.
  // Outputs whose elements share memory are refused there.
  if (const npu_reason why = first_failed(
          {{product.a.numel() > 0 && product.b.numel() > 0, NPU_REASON_SIZE},
           {same_dtype(product.a, product.b) && same_dtype(product.a, out),
            NPU_REASON_DTYPE},
           {!product.a.is_alias_of(out) && !product.b.is_alias_of(out) &&
                at::has_internal_overlap(out) != at::MemOverlap::Yes,
            NPU_REASON_ALIAS},
           {suits(product.alpha, out) && suits(product.beta, out) &&
                !product.alpha.equal(0),
            kLeaveToCpu}})) {
    return why;
  }
  npu_gemm_attrs attrs{
      .alpha = to_npu_scalar(product.alpha),
      .beta = to_npu_scalar(product.beta),
      .epilogue = product.epilogue};
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
  npu_tensor bias{};
  if (product.beta.equal(1) && (c.flags & NPU_TENSOR_ALIAS) == 0 && is_row(c)) {
    bias = last_dimension(c);
    c = npu_tensor{};
  }
  return run<build::gemm>(
      site, out, nullptr, product.a, product.b, &c, &bias, attrs);
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
    bool activated,
    const at::Tensor& self,
    const at::Tensor& a,
    const at::Tensor& b,
    const Scalar& beta,
    const Scalar& alpha,
    bool use_gelu,
    const at::Tensor& out) {
  if (!at::is_expandable_to(self.sizes(), out.sizes())) {
    return kLeaveToCpu;
  }
  const std::uint32_t epilogue = !activated ? NPU_GEMM_EPILOGUE_NONE
                                 : use_gelu ? NPU_GEMM_EPILOGUE_GELU
                                            : NPU_GEMM_EPILOGUE_RELU;
  return run_product(
      site, {out, a, b, self.expand(out.sizes()), beta, alpha, epilogue});
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

bool are_batches(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) &&
         a.size(2) == b.size(1);
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
  const std::int64_t sizes[] = {a.size(1), b.size(2)};
  // PyTorch's addbmm_ resizes a smaller tensor that it works on in place.
  const bool grows = out.at(0).is_same(self) && self.sizes() != sizes;
  if (!at::is_expandable_to(self.sizes(), sizes) || grows) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(out, 0, sizes, self);
  const at::Tensor left = a.transpose(0, 1).reshape({a.size(1), -1});
  const at::Tensor right = b.reshape({-1, b.size(2)});
  return run_product(
      site, {result, left, right, self.expand(sizes), beta, alpha});
}

// ---- dot ----

// What is conjugated by a bit needs no copy on the CPU.
bool fits_dot(const at::Tensor& self, const at::Tensor& other) {
  return self.dim() == 1 && self.sizes() == other.sizes() && on_device(other) &&
         !self.is_conj() && !other.is_conj();
}

npu_reason dot(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other) {
  const at::Tensor& result = set_output(out, 0, {}, self);
  return run<build::dot>(site, result, self, other);
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
    const at::Tensor& bias,
    const at::Tensor& scale_result,
    std::optional<c10::ScalarType> out_dtype,
    bool use_fast_accum) {
  const c10::ScalarType dtype = out_dtype.value_or(self.scalar_type());
  if (self.dim() != 2 || other.dim() != 2 || self.size(1) != other.size(0)) {
    return kLeaveToCpu;
  }
  if (const npu_reason why = first_failed(
          {{is_byte_float(self) && is_byte_float(other) &&
                (dtype == at::kFloat || dtype == at::kBFloat16) &&
                (!out.at(0).defined() || out.at(0).scalar_type() == dtype),
            NPU_REASON_DTYPE},
           {self.numel() != 0 && other.numel() != 0 &&
                other.size(0) % 16 == 0 && other.size(1) % 16 == 0,
            NPU_REASON_SIZE},
           {!scale_result.defined() && has_sizes(bias, {other.size(1)}),
            kLeaveToCpu}})) {
    return why;
  }
  const auto rows = scaling_of(scale_a, {self.size(0), 1});
  const auto columns = scaling_of(scale_b, {1, other.size(1)});
  if (!rows || !columns) {
    return kLeaveToCpu;
  }
  const at::Tensor& result = set_output(
      out, 0, {self.size(0), other.size(1)}, self.options().dtype(dtype));
  npu_gemm_scaled_attrs attrs{
      .scaling_a = *rows,
      .scaling_b = *columns,
      .fast_accumulate = use_fast_accum};
  return run<build::gemm_scaled>(
      site,
      result,
      nullptr,
      self,
      other,
      scale_a,
      scale_b,
      bias,
      nullptr,
      nullptr,
      nullptr,
      attrs);
}

// ---- 8-bit integers ----

bool are_factors(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0);
}

npu_reason int_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other) {
  const at::Tensor& given = out.at(0);
  const at::DimVector sizes = {self.size(0), other.size(1)};
  if (!has_sizes(given, sizes)) {
    return kLeaveToCpu;
  }
  if (given.defined() && given.scalar_type() != at::kInt) {
    return NPU_REASON_DTYPE;
  }
  const at::Tensor& result =
      set_output(out, 0, sizes, self.options().dtype(at::kInt));
  npu_gemm_int8_attrs attrs{};
  return run<build::gemm_int8>(
      site, result, self, other, nullptr, nullptr, nullptr, attrs);
}

bool fits_weight_int8(
    const at::Tensor& self,
    const at::Tensor& weight,
    const at::Tensor& scales) {
  return self.dim() == 2 && weight.dim() == 2 && scales.dim() == 1 &&
         self.size(1) == weight.size(1) && scales.size(0) == weight.size(0);
}

bool has_whole_blocks(const at::Tensor& weight) {
  return weight.size(0) % 32 == 0;
}

npu_reason weight_int8_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& weight,
    const at::Tensor& scales) {
  const at::Tensor& result =
      set_output(out, 0, {self.size(0), weight.size(0)}, self);
  npu_gemm_int8_attrs attrs{};
  const at::Tensor columns = weight.t();
  return run<build::gemm_int8>(
      site, result, self, columns, scales, nullptr, nullptr, attrs);
}

// ---- groups ----

// Rows of `self` in groups, columns of `other` in groups, or both, which is the
// summed dimension in groups. The kind has its groups in `a`: columns are the
// rows of the transposed product.
npu_reason grouped_product(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& other,
    const at::Tensor& ends,
    const at::Tensor& bias,
    std::optional<c10::ScalarType> out_dtype) {
  const std::int64_t a_dim = self.dim();
  const std::int64_t b_dim = other.dim();
  const bool matrices = (a_dim == 2 || a_dim == 3) &&
                        (b_dim == 2 || b_dim == 3) && a_dim + b_dim < 6;
  if (!matrices || self.size(-1) != other.size(-2) || bias.defined() ||
      !ends.defined() || !on_device(ends) || ends.dim() != 1 ||
      ends.scalar_type() != at::kInt ||
      (a_dim == 3 && ends.size(0) != self.size(0)) ||
      (b_dim == 3 && ends.size(0) != other.size(0))) {
    return kLeaveToCpu;
  }
  const c10::ScalarType type = self.scalar_type();
  if (!is_float(self) || type == at::kDouble || !same_dtype(self, other) ||
      out_dtype.value_or(type) != type) {
    return NPU_REASON_DTYPE;
  }
  at::DimVector sizes = {self.size(-2), other.size(-1)};
  if (a_dim == b_dim) {
    sizes.insert(sizes.begin(), ends.size(0));
  }
  // Rows begin at multiples of 16 bytes, as PyTorch lays them out.
  const std::int64_t room = 16 / static_cast<std::int64_t>(self.element_size());
  const std::int64_t row = (other.size(-1) + room - 1) / room * room;
  at::DimVector strides = {row, 1};
  if (a_dim == b_dim) {
    strides.insert(strides.begin(), self.size(-2) * row);
  }
  out.set(0, sizes, strides, self.options(), false);
  npu_gemm_grouped_attrs attrs{};
  const auto product =
      [&](const at::Tensor& to, const at::Tensor& a, const at::Tensor& b) {
        return run<build::gemm_grouped>(
            site, to, a, b, ends, nullptr, nullptr, nullptr, attrs);
      };
  return a_dim == 3
             ? product(
                   out.at(0).transpose(-2, -1), other.t(), self.transpose(1, 2))
             : product(out.at(0), self, other);
}

}  // namespace npu::ops
