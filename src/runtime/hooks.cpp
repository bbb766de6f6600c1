// SPDX-License-Identifier: Apache-2.0
// What PyTorch's CPU code asks of the accelerator.
#include "runtime/hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>

#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(
      impl->resizable(),
      "Trying to resize storage that is not resizable",
      pta_error(Code::kNotSupported));
  const auto device = storage.device().index();
  c10::DataPtr fresh = allocate(bytes, device);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  const c10::Stream stream = current_stream(device);
  if (kept > 0) {
    check_driver(
        active_driver().memory().copy_on_device(
            stream_handle(stream), fresh.get(), storage.data(), kept),
        "copy a storage that is resized");
    // The old block may belong to another stream's pool.
    record_stream(storage.data_ptr(), stream);
  }
  impl->set_data_ptr_noswap(std::move(fresh));
  impl->set_nbytes(bytes);
}

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
    resize_storage(storage, bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace npu
