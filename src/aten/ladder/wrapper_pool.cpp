// SPDX-License-Identifier: Apache-2.0
// Wrappers, taken and given back.
#include "aten/ladder/wrapper_pool.h"

#include <c10/core/CPUAllocator.h>

namespace npu::ladder {

WrapperPool& WrapperPool::own() {
  static thread_local WrapperPool pool;
  return pool;
}

TensorImplPtr WrapperPool::take(const c10::TensorImpl& from) {
  const std::size_t slot = slot_of(from);
  TensorImplPtr wrapper = std::move(free_[slot]);
  if (C10_UNLIKELY(!wrapper)) {
    wrapper = std::move(free_[slot ^ 1]);
  }
  if (C10_UNLIKELY(!wrapper)) {
    c10::Storage storage(
        c10::Storage::use_byte_size_t(),
        0,
        c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)),
        c10::GetCPUAllocator(),
        /*resizable=*/true);
    return c10::make_intrusive<c10::TensorImpl>(
        std::move(storage),
        c10::DispatchKeySet(c10::DispatchKey::CPU),
        from.dtype());
  }
  if (C10_UNLIKELY(wrapper->dtype() != from.dtype())) {
    c10::Storage storage = wrapper->unsafe_storage();
    wrapper->set_storage_and_dtype(std::move(storage), from.dtype());
  }
  return wrapper;
}

void WrapperPool::give(TensorImplPtr wrapper) {
  c10::TensorImpl& impl = *wrapper;
  const c10::Storage& storage = impl.unsafe_storage();
  std::size_t slot = slot_of(impl);
  slot = C10_LIKELY(!free_[slot]) ? slot : slot ^ 1;
  if (C10_UNLIKELY(
          free_[slot] || wrapper.use_count() != 1 ||
          wrapper.weak_use_count() != 1 || storage.use_count() != 1 ||
          impl.is_inference() || impl.is_conj() || impl.is_neg())) {
    return;
  }
  c10::StorageImpl& bytes = *storage.unsafeGetStorageImpl();
  if (C10_UNLIKELY(
          bytes.data_ptr().get_deleter() != &c10::detail::deleteNothing)) {
    bytes.set_data_ptr_noswap(
        c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
  }
  free_[slot] = std::move(wrapper);
}

}  // namespace npu::ladder
