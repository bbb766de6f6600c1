// SPDX-License-Identifier: Apache-2.0
// Factories: empty, empty_strided, zero tensors. On every operator's path.
#include "aten/core/factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include "aten/profile/gap.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/storage.h"

namespace npu {
namespace {

using c10::ScalarType;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::TensorImpl* impl_of(const at::TensorBase& tensor) {
  return tensor.unsafeGetTensorImpl();
}

at::Tensor tensor_on(
    c10::intrusive_ptr<c10::StorageImpl> storage, ScalarType dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      kKeys,
      c10::scalarTypeToTypeMeta(dtype));
}

// Checks what core does not check for a backend; gives the device's index.
c10::DeviceIndex checked_device(
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  TORCH_CHECK(
      layout.value_or(c10::kStrided) == c10::kStrided,
      "npu: empty: cannot make a tensor with layout ",
      *layout,
      ". Make a strided one and convert it.",
      ops_error(Code::kNotSupported));
  TORCH_CHECK(
      !pin_memory.value_or(false),
      "Only dense CPU tensors can be pinned, not npu ones.",
      ops_error(Code::kParam));
  TORCH_INTERNAL_ASSERT(!device || device->type() == kDeviceType);
  const c10::DeviceIndex index =
      device_or_current(device ? device->index() : c10::DeviceIndex{-1});
  check_device_index(index);
  return index;
}

// torch.use_deterministic_algorithms with fill_uninitialized_memory: values
// that show up when read by mistake.
void fill_deterministic(at::Tensor& tensor) {
  const auto& context = at::globalContext();
  if (C10_LIKELY(!context.deterministicAlgorithms()) ||
      !context.deterministicFillUninitializedMemory()) {
    return;
  }
  at::native::fill_empty_deterministic_(tensor);
}

at::Tensor empty(
    at::IntArrayRef sizes,
    std::optional<ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<c10::MemoryFormat> format) {
  note_memory_format(format.value_or(c10::MemoryFormat::Contiguous));
  at::Tensor out = make_empty(
      sizes,
      c10::dtype_or_default(dtype),
      checked_device(layout, device, pin_memory),
      format);
  fill_deterministic(out);
  return out;
}

at::Tensor empty_strided(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    std::optional<ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  at::Tensor out = make_empty_strided(
      sizes,
      strides,
      c10::dtype_or_default(dtype),
      checked_device(layout, device, pin_memory));
  fill_deterministic(out);
  return out;
}

// All zeros without memory; autograd's forward mode makes and tests for these
// by their key, and materialises them when they are written to.
at::Tensor efficient_zero_tensor(
    at::IntArrayRef sizes,
    std::optional<ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = checked_device(layout, device, pin_memory);
  at::native::ZeroTensorAllocator allocator(c10::Device(kDeviceType, index));
  return at::Tensor(at::detail::empty_generic(
      sizes,
      &allocator,
      kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype),
      std::nullopt));
}

}  // namespace

at::Tensor make_contiguous(
    at::IntArrayRef sizes,
    std::size_t bytes,
    ScalarType dtype,
    c10::DeviceIndex device) {
  at::Tensor out = tensor_on(make_storage(bytes, device), dtype);
  if (sizes.size() != 1 || sizes[0] != 0) {
    impl_of(out)->set_sizes_contiguous(sizes);
  }
  return out;
}

at::Tensor make_empty(
    at::IntArrayRef sizes,
    ScalarType dtype,
    c10::DeviceIndex device,
    std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  const std::size_t bytes = at::detail::computeStorageNbytesContiguous(
      sizes, c10::elementSize(dtype));
  at::Tensor out = make_contiguous(sizes, bytes, dtype, device);
  if (format && *format != c10::MemoryFormat::Contiguous) {
    impl_of(out)->empty_tensor_restride(*format);
  }
  return out;
}

at::Tensor make_empty_strided(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    ScalarType dtype,
    c10::DeviceIndex device) {
  at::detail::check_size_nonnegative(sizes);
  const std::size_t bytes =
      at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor out = tensor_on(make_storage(bytes, device), dtype);
  impl_of(out)->set_sizes_and_strides(sizes, strides);
  return out;
}

at::Tensor make_empty_like(const at::Tensor& like, ScalarType dtype) {
  const c10::DeviceIndex device = like.device().index();
  if (like.is_non_overlapping_and_dense()) {
    return make_empty_strided(like.sizes(), like.strides(), dtype, device);
  }
  const std::vector<std::int64_t> strides =
      at::infer_dense_strides(like.sizes(), like.strides());
  return make_empty_strided(like.sizes(), strides, dtype, device);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
}

}  // namespace npu
