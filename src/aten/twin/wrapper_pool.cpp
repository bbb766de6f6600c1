// SPDX-License-Identifier: Apache-2.0
// Wrappers, taken and given back.
#include "aten/twin/wrapper_pool.h"

#include <map>

namespace npu::twin {

WrapperPool& WrapperPool::make_of_cpu() {
  static thread_local WrapperPool pool(
      cpu_twin(), c10::Device(c10::DeviceType::CPU));
  return pool;
}

WrapperPool& WrapperPool::find(const Twin& twin, c10::Device device) {
  static thread_local std::map<c10::DeviceIndex, WrapperPool> pools;
  return pools.try_emplace(device.index(), twin, device).first->second;
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
        c10::DataPtr(nullptr, device_),
        twin_.allocator(),
        /*resizable=*/true);
    return c10::make_intrusive<c10::TensorImpl>(
        std::move(storage),
        c10::DispatchKeySet(twin_.key_of(c10::DispatchKey::PrivateUse1)),
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
    bytes.set_data_ptr_noswap(c10::DataPtr(nullptr, device_));
  }
  free_[slot] = std::move(wrapper);
}

}  // namespace npu::twin
