// SPDX-License-Identifier: Apache-2.0
// What can be asked about a device before it is used.
#pragma once

#include <c10/core/Device.h>

#include "npu/driver.h"

namespace npu {

// device_properties() without init(): names and sizes can be asked before a
// fork. Throws for an index out of range.
npu_device_properties peek_properties(c10::DeviceIndex device);

}  // namespace npu
