// SPDX-License-Identifier: Apache-2.0
// fill_ and zero_: bytes when they will do, else the fill kind, else the host.
#include "aten/core/fill.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/TensorIterator.h>
#include <torch/library.h>

#include <cmath>

#include "aten/core/copy.h"
#include "aten/core/frame.h"
#include "aten/core/geometry.h"
#include "aten/core/host_view.h"
#include "aten/core/queue.h"
#include "aten/core/site.h"
#include "driver/build_call.h"

namespace npu {
namespace {

// The value as an element of `dtype`; throws CPU's overflow errors.
c10::Scalar converted(const c10::Scalar& value, c10::ScalarType dtype) {
  c10::Scalar out = value;
  AT_DISPATCH_V2(
      dtype,
      "fill_",
      AT_WRAP([&] { out = c10::Scalar(value.to<scalar_t>()); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
      c10::kComplexHalf,
      c10::kHalf,
      c10::kBFloat16,
      c10::kBool);
  return out;
}

// The same for a single element. As on the CPU it takes an infinity where
// larger tensors raise: torch.where(mask, half, -1e9) makes one.
c10::Scalar converted_one(const c10::Scalar& value, c10::ScalarType dtype) {
  if (value.isComplex() || !c10::isReducedFloatingType(dtype)) {
    return converted(value, dtype);
  }
  const auto number = static_cast<float>(value.toDouble());
  return dtype == c10::kHalf ? static_cast<float>(c10::Half(number))
                             : static_cast<float>(c10::BFloat16(number));
}

bool has_exact_conversion(c10::ScalarType dtype) {
  return !c10::isFloat8Type(dtype) && to_npu_dtype(dtype) != NPU_ABSENT &&
         dtype != c10::ScalarType::Float4_e2m1fn_x2;
}

bool is_all_zero_bytes(const c10::Scalar& value) {
  if (value.isComplex()) {
    const auto z = value.toComplexDouble();
    return z.real() == 0 && z.imag() == 0 && !std::signbit(z.real()) &&
           !std::signbit(z.imag());
  }
  if (value.isFloatingPoint()) {
    return value.toDouble() == 0 && !std::signbit(value.toDouble());
  }
  return value.equal(false) || value.equal(0);
}

void set_zero_bytes(const at::Tensor& self) {
  queue_zeros(self.data_ptr(), self.nbytes(), self.device().index(), "zero_");
}

bool run_fill(
    const at::Tensor& self,
    const npu_tensor& operand,
    const c10::Scalar& value) {
  static Site site("aten::fill_.Scalar", NPU_KIND_FILL, 0);
  Call call = site.call();
  npu_fill_attrs attrs{.value = to_npu_scalar(value)};
  build::fill(call, operand, attrs);
  return site.run(call, self.device().index()) == NPU_REASON_NONE;
}

bool fill_on_device(const at::Tensor& self, const c10::Scalar& value) {
  npu_tensor operand = to_operand(self);
  if (self.is_non_overlapping_and_dense()) {
    // The order of the dimensions does not matter.
    constexpr std::int64_t kUnitStride = 1;
    const std::int64_t numel = operand.numel;
    operand.ndim = 1;
    operand.sizes = &numel;
    operand.strides = &kUnitStride;
    return run_fill(self, operand, value);
  }
  // Writing one value twice does no harm: no overlap check.
  const at::TensorIterator iter = at::TensorIteratorConfig()
                                      .set_check_mem_overlap(false)
                                      .add_output(self)
                                      .check_all_same_dtype(false)
                                      .resize_outputs(false)
                                      .build();
  const Geometry<1> geometry(iter);
  geometry.apply(operand, 0);
  return run_fill(self, operand, value);
}

at::Tensor& fill_scalar_(at::Tensor& self, const c10::Scalar& value) {
  fill(self, value);
  return self;
}

at::Tensor& fill_tensor_(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(
      value.dim() == 0,
      "fill_ only supports 0-dimension value tensor but got tensor with ",
      value.dim(),
      " dimensions.");
  if (value.device() != self.device()) {
    fill(self, value.item());
  } else if (self.is_alias_of(value)) {
    copy(self, value.clone(), false);
  } else {
    copy(self, value, false);
  }
  return self;
}

at::Tensor& zero_(at::Tensor& self) {
  fill(self, 0);
  return self;
}

}  // namespace

void fill(const at::Tensor& self, const c10::Scalar& value) {
  const bool exact = has_exact_conversion(self.scalar_type());
  const c10::ScalarType dtype = self.scalar_type();
  const c10::Scalar element = !exact              ? value
                              : self.numel() == 1 ? converted_one(value, dtype)
                                                  : converted(value, dtype);
  if (self.numel() == 0) {
    return;
  }
  if (self.is_non_overlapping_and_dense() && is_all_zero_bytes(element)) {
    set_zero_bytes(self);
    return;
  }
  if (exact && fill_on_device(self, element)) {
    return;
  }
  HostView view(self, HostView::kWrite);
  view.tensor().fill_(value);
  view.write_back();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar_));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor_));
  m.impl("zero_", TORCH_FN(zero_));
}

}  // namespace npu
