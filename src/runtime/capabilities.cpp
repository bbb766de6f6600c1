// SPDX-License-Identifier: Apache-2.0
// Capabilities, from the driver's flags and its devices' properties.
#include "runtime/capabilities.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/device.h"

namespace npu {
namespace {

// A CUDA build of torch, with a GPU it can use.
bool torch_has_cuda() noexcept {
  static const bool has = [] {
    try {
      return at::detail::getCUDAHooks().hasCUDA();
    } catch (const std::exception&) {
      return false;
    }
  }();
  return has;
}

}  // namespace

Platform platform() noexcept {
  const Driver* const driver = active_driver_or_null();
  if (driver == nullptr) {
    return Platform::kNone;
  }
  if (driver->device_is_cpu()) {
    return Platform::kCpu;
  }
  return driver->has_platform(NPU_PLATFORM_CUDA) ? Platform::kCuda
                                                 : Platform::kNone;
}

bool twin_is_native() noexcept {
  switch (platform()) {
    case Platform::kCpu:
      return true;
    case Platform::kCuda:
      return torch_has_cuda();
    case Platform::kNone:
      break;
  }
  return false;
}

bool host_code_is_native() noexcept {
  return platform() == Platform::kCpu;
}

bool host_can_read(const npu_device_properties& properties) noexcept {
  return properties.host_access != NPU_HOST_ACCESS_NONE;
}

bool host_can_read(c10::DeviceIndex device) {
  return host_can_read(device_properties(device));
}

bool needs_host_open(c10::DeviceIndex device) {
  return device_properties(device).host_access == NPU_HOST_ACCESS_EXPLICIT;
}

bool host_shares_memory(c10::DeviceIndex device) {
  return !active_driver().queues_work() && !forked_child() &&
         device_properties(device).host_access == NPU_HOST_ACCESS_COHERENT;
}

}  // namespace npu
