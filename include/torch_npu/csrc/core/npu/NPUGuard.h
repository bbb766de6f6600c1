// SPDX-License-Identifier: Apache-2.0
// The current device, for as long as a guard lives.
#pragma once

#include <c10/core/DeviceGuard.h>

namespace c10_npu {

class NPUGuard : public c10::DeviceGuard {
 public:
  explicit NPUGuard(c10::Device device) : DeviceGuard(device) {}
  explicit NPUGuard(c10::DeviceIndex index)
      : DeviceGuard(c10::Device(c10::DeviceType::PrivateUse1, index)) {}
};
using OptionalNPUGuard = c10::OptionalDeviceGuard;

}  // namespace c10_npu
