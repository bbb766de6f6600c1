// SPDX-License-Identifier: Apache-2.0
// What PyTorch's CPU code asks of the accelerator.
#pragma once

#include <c10/core/Storage.h>

namespace npu {

// Storage.resize_: keeps the common bytes, on the current stream.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

}  // namespace npu
