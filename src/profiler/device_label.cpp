// SPDX-License-Identifier: Apache-2.0
// The name of a device that people see.
#include "profiler/device_label.h"

#include <atomic>

#include "driver/env.h"
#include "runtime/device.h"

namespace npu::profiler {
namespace {

std::atomic<DeviceNameFn> name_provider{nullptr};

}  // namespace

void set_device_name_provider(DeviceNameFn provider) noexcept {
  name_provider.store(provider);
}

std::string device_name(c10::DeviceIndex device) {
  const auto chosen = env::text("NPU_DEVICE_NAME");
  if (chosen.has_value() && !chosen->empty()) {
    return *chosen;
  }
  const DeviceNameFn ask = name_provider.load();
  std::string name = ask == nullptr ? std::string() : ask();
  return name.empty() ? device_properties(device).name : name;
}

}  // namespace npu::profiler
