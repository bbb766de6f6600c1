// SPDX-License-Identifier: Apache-2.0
// Operators on a tensor's storage: set_, resize_, record_stream and the like.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/storage.h"

namespace npu {
namespace {

at::Tensor& set_storage_(at::Tensor& self, c10::Storage source) {
  return at::native::set_(self, std::move(source));
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
  const bool strided = strides.data() != nullptr;
  const std::size_t bytes =
      strided ? at::detail::computeStorageNbytes(sizes, strides, item, offset)
              : at::detail::computeStorageNbytesContiguous(sizes, item, offset);
  if (c10::multiply_integers(sizes) != 0 && bytes > self.storage().nbytes()) {
    resize_bytes(self.storage().unsafeGetStorageImpl(), bytes);
  }
  if (strided) {
    impl->set_sizes_and_strides(sizes, strides);
  } else {
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

const at::Tensor& resize_(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    std::optional<c10::MemoryFormat> format) {
  return at::native::resize_(self, sizes, format);
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
  m.impl("record_stream", TORCH_FN(record_stream_op));
  m.impl(
      "_has_compatible_shallow_copy_type",
      TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace npu
