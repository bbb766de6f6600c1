// SPDX-License-Identifier: Apache-2.0
// Device numbers as Python gives them: any integer.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>

#include "runtime/device.h"

namespace npu {

// One that PyTorch's 8 bits cannot hold must not wrap round to another device.
inline c10::DeviceIndex index_of(std::int64_t device) {
  using Limits = std::numeric_limits<c10::DeviceIndex>;
  if (device < Limits::min() || device > Limits::max()) {
    check_device_index(Limits::max());
  }
  return static_cast<c10::DeviceIndex>(device);
}

}  // namespace npu
