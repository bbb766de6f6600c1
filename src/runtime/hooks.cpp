// SPDX-License-Identifier: Apache-2.0
// The hooks that PyTorch's CPU code calls on the accelerator.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/pinned.h"
#include "runtime/storage.h"

namespace npu {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device_is_open(device);
  }
  void init() const override {
    npu::init();
  }

  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchange_device(device);
  }

  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const auto device = device_of_pointer(data);
    TORCH_CHECK_VALUE(
        device >= 0,
        "npu: pointer ",
        data,
        " is not memory of an npu device.",
        pta_error(Code::kPointer));
    return {kDeviceType, device};
  }

  const at::Generator& getDefaultGenerator(
      c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device_or_current(device));
  }

  void resizePrivateUse1Bytes(
      const c10::Storage& storage, std::size_t bytes) const override {
    resize_bytes(storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool hooks_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace npu
