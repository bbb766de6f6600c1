// SPDX-License-Identifier: Apache-2.0
// Between PyTorch's tensors and the driver's call frame.
#include "aten/core/frame.h"

#include <array>

#include "runtime/device.h"
#include "runtime/error.h"

namespace npu {
namespace {

using c10::ScalarType;

constexpr std::size_t kScalarTypes =
    static_cast<std::size_t>(ScalarType::NumOptions);

struct Pair {
  ScalarType type;
  npu_dtype dtype;
};

constexpr Pair kPairs[] = {
    {ScalarType::Bool, NPU_BOOL},
    {ScalarType::Byte, NPU_U8},
    {ScalarType::Char, NPU_I8},
    {ScalarType::Short, NPU_I16},
    {ScalarType::Int, NPU_I32},
    {ScalarType::Long, NPU_I64},
    {ScalarType::UInt16, NPU_U16},
    {ScalarType::UInt32, NPU_U32},
    {ScalarType::UInt64, NPU_U64},
    {ScalarType::Half, NPU_F16},
    {ScalarType::BFloat16, NPU_BF16},
    {ScalarType::Float, NPU_F32},
    {ScalarType::Double, NPU_F64},
    {ScalarType::ComplexHalf, NPU_C32},
    {ScalarType::ComplexFloat, NPU_C64},
    {ScalarType::ComplexDouble, NPU_C128},
    {ScalarType::Float8_e4m3fn, NPU_F8_E4M3FN},
    {ScalarType::Float8_e5m2, NPU_F8_E5M2},
    {ScalarType::Float8_e4m3fnuz, NPU_F8_E4M3FNUZ},
    {ScalarType::Float8_e5m2fnuz, NPU_F8_E5M2FNUZ},
    {ScalarType::Float8_e8m0fnu, NPU_F8_E8M0FNU},
    {ScalarType::Float4_e2m1fn_x2, NPU_F4_E2M1FN_X2},
};

constexpr auto kDtypes = [] {
  std::array<npu_dtype, kScalarTypes> table{};
  for (const Pair& pair : kPairs) {
    table[static_cast<std::size_t>(pair.type)] = pair.dtype;
  }
  return table;
}();

}  // namespace

npu_dtype to_npu_dtype(ScalarType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < kScalarTypes ? kDtypes[index] : npu_dtype{NPU_ABSENT};
}

std::optional<ScalarType> to_scalar_type(npu_dtype dtype) noexcept {
  for (const Pair& pair : kPairs) {
    if (pair.dtype == dtype) {
      return pair.type;
    }
  }
  return std::nullopt;
}

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
