// SPDX-License-Identifier: Apache-2.0
// Operators on a tensor's storage: set_, resize_, record_stream and the like.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_lazy_clone_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include "aten/profile/gap.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/storage.h"

namespace npu {
namespace {

at::Tensor& set_storage_(at::Tensor& self, c10::Storage source) {
  return at::native::set_(self, std::move(source));
}

// Grows the storage to `bytes`; a tensor without elements needs none. Comes
// before the sizes change, so that running out of memory changes nothing.
void fit_storage(
    const c10::Storage& storage, at::IntArrayRef sizes, std::size_t bytes) {
  if (c10::multiply_integers(sizes) != 0 && bytes > storage.nbytes()) {
    resize_bytes(storage.unsafeGetStorageImpl(), bytes);
  }
}

at::Tensor& set_storage_offset_(
    at::Tensor& self,
    c10::Storage source,
    std::int64_t offset,
    at::IntArrayRef sizes,
    at::IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  const std::size_t item = self.element_size();
  // No strides means contiguous.
  if (strides.data() != nullptr) {
    fit_storage(
        self.storage(),
        sizes,
        at::detail::computeStorageNbytes(sizes, strides, item, offset));
    impl->set_sizes_and_strides(sizes, strides);
  } else {
    fit_storage(
        self.storage(),
        sizes,
        at::detail::computeStorageNbytesContiguous(sizes, item, offset));
    impl->set_sizes_contiguous(sizes);
  }
  return self;
}

at::Tensor& set_tensor_(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

at::Tensor& set_empty_(at::Tensor& self) {
  c10::Storage storage(make_storage(0, self.device().index()));
  return set_storage_offset_(self, std::move(storage), 0, {0}, {});
}

// Not PyTorch's own: that moves the bytes with the host's memcpy, unordered
// with the stream, and takes new memory from the current device.
const at::Tensor& resize_(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    std::optional<c10::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  note_memory_format(format.value_or(c10::MemoryFormat::Contiguous));
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  const auto old_bytes = static_cast<std::int64_t>(self.storage().nbytes());
  if (!impl->sizes().equals(sizes)) {
    fit_storage(
        self.storage(),
        sizes,
        at::detail::computeStorageNbytesContiguous(
            sizes, self.element_size(), impl->storage_offset()));
    impl->set_sizes_contiguous(sizes);
  }
  if (format) {
    TORCH_CHECK(
        *format != c10::MemoryFormat::Preserve,
        "Unsupported memory format ",
        *format);
    impl->empty_tensor_restride(*format);
  }
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms()) &&
      context.deterministicFillUninitializedMemory()) {
    at::native::fill_resize_deterministic_(self, old_bytes);
  }
  return self;
}

void record_stream_op(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK(
      stream.device_type() == kDeviceType,
      "npu: record_stream: expected a stream of an npu device, got one of ",
      stream.device(),
      ".",
      ops_error(Code::kParam));
  if (self.has_storage() && self.storage().data() != nullptr) {
    record_stream(self.storage().data_ptr(), stream);
  }
}

// A clone that shares its memory until one side is written. The side that is
// written first allocates through its storage's allocator, whatever device is
// current by then.
at::Tensor lazy_clone(const at::Tensor& self) {
  self.storage().unsafeGetStorageImpl()->set_allocator(
      allocator_of(self.device().index()));
  return at::compositeexplicitautograd::_lazy_clone(self);
}

// PyTorch asks this before `param.data = tensor` and in module.to(): with true
// Parameters stay the same objects, so tied weights stay tied and optimizers
// made earlier keep working.
bool has_compatible_shallow_copy_type(const at::Tensor&, const at::Tensor&) {
  return true;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("set_.source_Storage", TORCH_FN(set_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset_));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor_));
  m.impl("set_", TORCH_FN(set_empty_));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("_lazy_clone", TORCH_FN(lazy_clone));
  m.impl("record_stream", TORCH_FN(record_stream_op));
  m.impl(
      "_has_compatible_shallow_copy_type",
      TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace npu
