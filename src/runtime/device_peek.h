// SPDX-License-Identifier: Apache-2.0
// Properties of a device that are known before it is opened.
#pragma once

#include <c10/core/Device.h>

#include "npu/driver.h"

namespace npu {

// device_properties() without init(): names and sizes can be asked before a
// fork. Throws for an index out of range.
npu_device_properties peek_properties(c10::DeviceIndex device);

}  // namespace npu
