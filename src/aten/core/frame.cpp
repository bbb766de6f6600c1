// SPDX-License-Identifier: Apache-2.0
// Between PyTorch's tensors and the driver's call frame.
#include "aten/core/frame.h"

#include "runtime/device.h"
#include "runtime/error.h"

namespace npu {
npu_tensor to_operand(const at::Tensor& tensor) {
  npu_tensor out{};
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  out.data = tensor.data_ptr();
  out.storage = storage.data_ptr().get();
  out.storage_bytes = storage.nbytes();
  out.numel = impl->numel();
  out.sizes = impl->sizes().data();
  out.strides = impl->strides().data();
  out.dtype = to_npu_dtype(tensor.scalar_type());
  out.ndim = static_cast<std::uint16_t>(impl->dim());
  out.flags = (impl->is_contiguous() ? NPU_TENSOR_CONTIGUOUS : 0u) |
              (impl->is_non_overlapping_and_dense() ? NPU_TENSOR_DENSE : 0u) |
              (tensor.is_conj() ? NPU_TENSOR_CONJ : 0u) |
              (tensor.is_neg() ? NPU_TENSOR_NEG : 0u);
  out.device = driver_device(impl->device().index());
  return out;
}

npu_scalar to_npu_scalar(const c10::Scalar& value) {
  npu_scalar out{};
  if (value.isComplex()) {
    const auto z = value.toComplexDouble();
    out.kind = NPU_SCALAR_COMPLEX;
    out.re = z.real();
    out.im = z.imag();
  } else if (value.isFloatingPoint()) {
    out.kind = NPU_SCALAR_FLOAT;
    out.re = value.toDouble();
  } else if (value.isBoolean()) {
    out.kind = NPU_SCALAR_BOOL;
    out.i = value.toBool() ? 1 : 0;
    out.re = static_cast<double>(out.i);
  } else if (value.isUnsigned()) {
    const std::uint64_t bits = value.toUInt64();
    out.kind = NPU_SCALAR_UINT;
    out.i = static_cast<std::int64_t>(bits);
    out.re = static_cast<double>(bits);
  } else {
    out.kind = NPU_SCALAR_INT;
    out.i = value.toLong();
    out.re = static_cast<double>(out.i);
  }
  return out;
}

c10::DeviceIndex check_same_device(
    const char* op, std::initializer_list<const at::Tensor*> tensors) {
  std::optional<c10::Device> common;
  for (const at::Tensor* tensor : tensors) {
    if (!tensor->defined()) {
      continue;
    }
    const c10::Device device = tensor->device();
    TORCH_CHECK(
        device.type() == kDeviceType && device == common.value_or(device),
        "Expected all tensors to be on the same device. Expected NPU tensor, "
        "please check whether the input tensor device is correct. (",
        op,
        ": got a tensor on ",
        device,
        ", expected ",
        common ? common->str() : std::string("npu"),
        ")",
        ops_error(Code::kParam));
    common = device;
  }
  TORCH_INTERNAL_ASSERT(common.has_value());
  return common->index();
}

}  // namespace npu
