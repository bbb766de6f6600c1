// SPDX-License-Identifier: Apache-2.0
// Outputs of structured operators: made, checked or resized.
#include "aten/ops/structured.h"

#include <ATen/native/Resize.h>

#include "aten/core/copy.h"
#include "aten/core/factories.h"

namespace npu {
namespace {

at::Tensor make_output(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    const at::TensorOptions& options) {
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  const c10::DeviceIndex device = options.device().index();
  return strides.empty()
             ? make_empty(sizes, dtype, device, options.memory_format_opt())
             : make_empty_strided(sizes, strides, dtype, device);
}

void check_inplace(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == self.dtype(),
      "Bad in-place call: input tensor dtype ",
      self.dtype(),
      " and output tensor dtype ",
      options.dtype(),
      " should match");
  TORCH_CHECK(
      options.device() == self.device(),
      "Bad in-place call: input tensor device ",
      self.device(),
      " and output tensor device ",
      options.device(),
      " should match");
  TORCH_CHECK(
      sizes == self.sizes(),
      "Bad in-place call: input tensor size ",
      self.sizes(),
      " and output tensor size ",
      sizes,
      " should match");
}

void resize_out(
    const at::Tensor& out,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == out.dtype(),
      "Expected out tensor to have dtype ",
      options.dtype(),
      ", but got ",
      out.dtype(),
      " instead");
  TORCH_CHECK(
      options.device() == out.device(),
      "Expected out tensor to have device ",
      options.device(),
      ", but got ",
      out.device(),
      " instead");
  if (!at::native::resize_output(out, sizes)) {
    return;
  }
  // Only a tensor that was resized takes the kernel's favourite layout.
  if (!strides.empty()) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else if (options.memory_format_opt().has_value()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(
        *options.memory_format_opt());
  }
}

}  // namespace

void Outputs::set(
    std::int64_t i,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    const at::TensorOptions& options,
    bool exact) {
  if (form_ == Form::kFunctional) {
    made_[i] = make_output(sizes, strides, options);
    return;
  }
  const at::Tensor& given = *given_[i];
  if (form_ == Form::kInplace) {
    check_inplace(given, sizes, options);
  } else {
    resize_out(given, sizes, strides, options);
  }
  if (!exact) {
    return;
  }
  const bool fits =
      strides.empty() ? given.is_contiguous() : given.strides() == strides;
  if (!fits) {
    made_[i] = make_output(sizes, strides, options);
  }
}

void Outputs::set_like(
    std::int64_t i, const at::Tensor& like, c10::ScalarType dtype) {
  if (form_ == Form::kFunctional) {
    made_[i] = make_empty_like(like, dtype);
  } else {
    set(i, like.sizes(), {}, like.options().dtype(dtype), false);
  }
}

const at::Tensor& Outputs::at(std::int64_t i) const {
  return given_[i] != nullptr && !made_[i].defined() ? *given_[i] : made_[i];
}

void Outputs::finish() {
  for (int i = 0; i < kMost; ++i) {
    if (given_[i] != nullptr && made_[i].defined()) {
      copy(*given_[i], made_[i], false);
    }
  }
}

}  // namespace npu
