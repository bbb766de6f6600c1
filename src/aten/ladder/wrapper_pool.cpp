// SPDX-License-Identifier: Apache-2.0
// Wrappers, taken and given back.
#include "aten/ladder/wrapper_pool.h"

#include <c10/core/CPUAllocator.h>

namespace npu::ladder {

WrapperPool& WrapperPool::own() {
  static thread_local WrapperPool pool;
  return pool;
}

TensorImplPtr WrapperPool::take(caffe2::TypeMeta dtype) {
  if (C10_UNLIKELY(n_ == 0)) {
    c10::Storage storage(
        c10::Storage::use_byte_size_t(),
        0,
        c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)),
        c10::GetCPUAllocator(),
        /*resizable=*/true);
    return c10::make_intrusive<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  }
  TensorImplPtr wrapper = std::move(free_[--n_]);
  if (wrapper->dtype() != dtype) {
    c10::Storage storage = wrapper->unsafe_storage();
    wrapper->set_storage_and_dtype(std::move(storage), dtype);
  }
  return wrapper;
}

void WrapperPool::give(TensorImplPtr wrapper) {
  c10::TensorImpl& impl = *wrapper;
  const c10::Storage& storage = impl.unsafe_storage();
  if (n_ == kMost || wrapper.use_count() != 1 ||
      wrapper.weak_use_count() != 1 || storage.use_count() != 1 ||
      impl.is_inference() || impl.is_conj() || impl.is_neg()) {
    return;
  }
  c10::StorageImpl& bytes = *storage.unsafeGetStorageImpl();
  if (bytes.data_ptr().get_context() != nullptr) {
    bytes.set_data_ptr_noswap(
        c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
  }
  free_[n_++] = std::move(wrapper);
}

}  // namespace npu::ladder
