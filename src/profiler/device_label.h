// SPDX-License-Identifier: Apache-2.0
// The name of a device that people see: the same in torch.npu, traces, `opennpu
// top` and `opennpu doctor`.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace npu::profiler {

// What the chosen profile calls its device; empty where it says nothing. Given
// once.
using DeviceNameFn = std::string (*)();
void set_device_name_provider(DeviceNameFn provider) noexcept;

// NPU_DEVICE_NAME, else the profile's name, else the driver's.
std::string device_name(c10::DeviceIndex device);

}  // namespace npu::profiler
