// SPDX-License-Identifier: Apache-2.0
// Storages of device memory: making them, and changing their size in place.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace npu {

// A resizable storage of `bytes` bytes on `device`, uninitialised.
c10::intrusive_ptr<c10::StorageImpl> make_storage(
    std::size_t bytes, c10::DeviceIndex device);

// Gives `storage` new memory of `bytes` bytes, with as much of the old content
// as fits; tensors on it keep working. The hook resizePrivateUse1Bytes and
// every operator that grows a tensor come here.
void resize_bytes(c10::StorageImpl* storage, std::size_t bytes);

}  // namespace npu
