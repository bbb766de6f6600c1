// SPDX-License-Identifier: Apache-2.0
// Storages of device memory: making them, and changing their size in place.
#include "runtime/storage.h"

#include <algorithm>
#include <utility>

#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {

c10::intrusive_ptr<c10::StorageImpl> make_storage(
    std::size_t bytes, c10::DeviceIndex device) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      allocate(bytes, device),
      device_allocator(),
      /*resizable=*/true);
}

void resize_bytes(c10::StorageImpl* storage, std::size_t bytes) {
  TORCH_CHECK(
      storage->resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceIndex device = storage->device().index();
  storage->mutable_data();  // a lazy clone copies what it shares first
  c10::DataPtr fresh = allocate(bytes, device);
  const std::size_t kept = std::min(bytes, storage->nbytes());
  if (kept != 0 && storage->data() != nullptr) {
    check_driver(
        active_driver().memory().copy_on_device(
            current_stream_handle(device), fresh.get(), storage->data(), kept),
        "resize a storage");
    // The old block goes back to the pool of its own stream, which need not be
    // the one that still reads from it.
    record_stream(storage->data_ptr(), current_stream(device));
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

}  // namespace npu
