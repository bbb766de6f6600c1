// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: the few functions that take a tensor, an event or a generator
// apart.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/core/algorithms.h"
#include "aten/formats/formats.h"
#include "python/bindings.h"
#include "runtime/device.h"
#include "runtime/generator.h"

namespace py = pybind11;

namespace npu {
namespace {

// A tensor of sizes [0] over bytes that it does not own.
at::Tensor over_memory(
    void* data, std::size_t bytes, c10::Device device, caffe2::TypeMeta dtype) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      c10::DataPtr(data, device),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      dtype);
}

// The same bytes without a share in their ownership (vllm frees the original
// and keeps the address in a captured graph).
at::Tensor weak_ref_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.device().type() == kDeviceType,
      "npu: _weak_ref_tensor: expected an npu tensor, but got one on ",
      tensor.device(),
      ". Move it with .npu() first.");
  c10::StorageImpl* const owner = tensor.storage().unsafeGetStorageImpl();
  at::Tensor weak = over_memory(
      owner->mutable_data(), owner->nbytes(), tensor.device(), tensor.dtype());
  weak.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sizes(), tensor.strides(), tensor.storage_offset());
  restore_format(weak, format_of(tensor));
  return weak;
}

// A contiguous tensor over memory of the current device that another library
// allocated and keeps alive.
at::Tensor tensor_at_address(
    std::uintptr_t address,
    const std::vector<std::int64_t>& sizes,
    at::ScalarType dtype) {
  const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
  at::Tensor made = over_memory(
      reinterpret_cast<void*>(address),
      count * c10::elementSize(dtype),
      c10::Device(kDeviceType, current_device()),
      c10::scalarTypeToTypeMeta(dtype));
  made.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return made;
}

// Gives `dst` memory inside `src` from element `start` on, which it keeps
// alive. Its storage is its own, so that its size and format stay what they
// were.
void change_data_ptr(
    const at::Tensor& dst, const at::Tensor& src, std::int64_t start) {
  const std::int64_t format = format_of(dst);
  const std::size_t item = dst.element_size();
  const auto bytes = static_cast<std::size_t>(storage_size_of(dst)) * item;
  auto* const base = static_cast<std::byte*>(src.data_ptr()) +
                     static_cast<std::size_t>(start) * item;
  auto* const owner = new c10::Storage(src.storage());
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      c10::DataPtr(
          base,
          owner,
          [](void* kept) { delete static_cast<c10::Storage*>(kept); },
          dst.device()),
      /*allocator=*/nullptr,
      /*resizable=*/false);
  c10::TensorImpl* const impl = dst.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(c10::Storage(std::move(storage)));
  impl->set_storage_offset(0);
  restore_format(dst, format);
}

// torch.Event.elapsed_time takes nothing but a plain torch.Event.
double event_elapsed_time(py::handle start, py::handle end) {
  TORCH_CHECK_TYPE(
      THPEvent_Check(start.ptr()) && THPEvent_Check(end.ptr()),
      "elapsed_time: expected two events");
  return reinterpret_cast<THPEvent*>(start.ptr())
      ->event.elapsedTime(reinterpret_cast<THPEvent*>(end.ptr())->event);
}

}  // namespace

void bind_tensor(py::module_& m) {
  // `storage` is the address of a StorageImpl: UntypedStorage._cdata.
  m.def("_storage_Use_Count", [](std::uintptr_t storage) {
    auto* impl = reinterpret_cast<c10::StorageImpl*>(storage);
    const auto shared = c10::raw::intrusive_ptr::use_count(impl);
    return static_cast<std::int64_t>(shared);
  });
  m.def("_set_allow_internal_format", &set_allow_internal_format);
  m.def("_set_allow_hf32", &set_allow_hf32);
  m.def("_event_elapsed_time", &event_elapsed_time);
  m.def("_weak_ref_tensor", &weak_ref_tensor);
  m.def("_tensor_at_address", &tensor_at_address);
  m.def("_restore_format", &restore_format);
  m.def("_change_data_ptr", &change_data_ptr);
  m.def("_default_generator", [](int device) {
    return default_generator(static_cast<c10::DeviceIndex>(device));
  });
}

}  // namespace npu
