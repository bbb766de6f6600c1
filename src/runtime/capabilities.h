// SPDX-License-Identifier: Apache-2.0
// The capabilities of a device that the host side asks for.
//
// This header and src/driver/driver.h are the only places that know which
// processor a device is. Code elsewhere asks for the capability it needs;
// scripts/check_layers.py refuses other questions.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "npu/driver.h"

namespace npu {

// Whose addresses and streams a driver's are (npu_driver.platform), of those
// that PyTorch has kernels for.
enum class Platform : std::uint8_t { kNone, kCpu, kCuda };

// Of the driver in use; kNone before one is loaded.
Platform platform() noexcept;

// PyTorch has kernels for the platform, so that rung 4 is the device's own way
// to run an operator and no fallback.
bool twin_is_native() noexcept;

// Functions of host code run on the device's own processor: a hand-written one
// is as good as a kernel of the driver.
bool host_code_is_native() noexcept;

// Host code can read and write the device's memory once its stream is idle,
// after host_open where needs_host_open() says so.
bool host_can_read(c10::DeviceIndex device);
bool host_can_read(const npu_device_properties& properties) noexcept;
bool needs_host_open(c10::DeviceIndex device);

// Host code may use the device's memory at any time without asking: it needs
// no opening, and no work is under way when a call has returned.
bool host_shares_memory(c10::DeviceIndex device);

}  // namespace npu
