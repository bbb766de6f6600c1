// SPDX-License-Identifier: Apache-2.0
// How PyTorch switches npu devices and streams: one class, all of 2.13.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "driver/services.h"
#include "runtime/allocator/allocator.h"
#include "runtime/autograd_threads.h"
#include "runtime/capture_state.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/stream.h"
#include "runtime/torch_compat.h"

namespace npu {
namespace {

Event& as_event(void* event) {
  return *static_cast<Event*>(event);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kDeviceType;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    return {kDeviceType, exchange_device(device.index())};
  }
  c10::Device getDevice() const override {
    return {kDeviceType, current_device()};
  }
  void setDevice(c10::Device device) const override {
    set_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    exchange_device_unchecked(device.index());
  }

  // None before init(): see Note [Autograd threads].
  c10::DeviceIndex deviceCount() const noexcept override {
    return is_initialized() && !hiding_devices() ? device_count() : 0;
  }

  c10::Stream getStream(c10::Device device) const override {
    note_thread_count_of_caller();
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return default_stream(device.index());
  }
  c10::Stream getStreamFromGlobalPool(
      c10::Device device, bool high_priority) const override {
    return stream_from_pool(high_priority ? -1 : 0, device.index());
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return stream_from_pool(priority, device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    follow_thread_count_of_caller();
    const c10::Stream previous = current_stream(stream.device_index());
    set_current_stream(stream);
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return stream_native_handle(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    refuse_in_capture(stream, "Stream.query");
    return query_stream(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    refuse_in_capture(stream, "Stream.synchronize");
    synchronize_stream(stream);
  }
  // NOLINTNEXTLINE: virtual only since 2.12
  bool isStreamCapturing(const c10::Stream& stream) const
      NPU_OVERRIDE_SINCE_2_12 {
    return is_stream_capturing(stream);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    const c10::DeviceIndex index = device_or_current(device);
    refuse_in_capture(index, "synchronize");
    synchronize_device(index);
  }

  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex device,
      const c10::EventFlag flag) const override {
    if (device != -1) {
      Event::check_owner(device, stream);
    }
    if (*event == nullptr) {
      const bool timing = flag == c10::EventFlag::BACKEND_DEFAULT;
      auto made = std::make_unique<Event>(timing ? NPU_EVENT_TIMING : 0u);
      made->record(stream);
      *event = made.release();
    } else {
      as_event(*event).record(stream);
    }
    note_event(*event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      as_event(event).block(stream);
    }
  }
  bool queryEvent(void* event) const override {
    refuse_in_capture(event, "Event.query");
    return event == nullptr || as_event(event).query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      refuse_in_capture(event, "Event.synchronize");
      as_event(event).synchronize();
    }
  }
  void destroyEvent(
      void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    forget_event(event);
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex /*device*/)
      const override {
    TORCH_CHECK(
        start != nullptr && end != nullptr,
        "npu: event: both events must be recorded before calculating elapsed "
        "time.",
        pta_error(Code::kInternal));
    return as_event(start).elapsed_ms(as_event(end));
  }

  // What the driver lacks comes through the ladder, so every dtype works.
  c10::DeviceCapability getDeviceCapability(
      c10::Device /*device*/) const override {
    return {};
  }

  void recordDataPtrOnStream(
      const c10::DataPtr& ptr, const c10::Stream& stream) const override {
    record_stream(ptr, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace npu
