// SPDX-License-Identifier: Apache-2.0
// A point in a stream that others wait for, and times between two of them.
#include "runtime/event.h"

#include <utility>

#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/host_wait.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {

Event::~Event() {
  // In a forked child the event is the parent's.
  if (handle_ == nullptr || !is_initialized()) {
    return;
  }
  sanitizer::on_event_gone(handle_);
  if (active_driver_or_null()->event().destroy(handle_) != NPU_OK) {
    log(NPU_LOG_WARNING, "npu: event: the driver could not destroy it");
  }
}

Event::Event(Event&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      device_(std::exchange(other.device_, -1)),
      flags_(other.flags_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(device_, other.device_);
  std::swap(flags_, other.flags_);
  return *this;
}

void Event::create(c10::DeviceIndex device) {
  const npu_device number = driver_device(device);
  check_driver(
      active_driver().event().create(number, flags_, &handle_), "create event");
  device_ = device;
}

void Event::check_owner(c10::DeviceIndex owner, c10::Stream stream) {
  TORCH_CHECK(
      owner == stream.device_index(),
      "npu: event: it belongs to npu:",
      static_cast<int>(owner),
      " and cannot record a stream of ",
      stream.device(),
      ". Use one event per device.",
      pta_error(Code::kParam));
}

void Event::record(c10::Stream stream) {
  const npu_stream target = stream_handle(stream);
  if (handle_ == nullptr) {
    create(stream.device_index());
  }
  check_owner(device_, stream);
  check_driver(active_driver().event().record(handle_, target), "record event");
  sanitizer::on_record(handle_, stream);
}

void Event::block(c10::Stream stream) const {
  if (handle_ == nullptr) {
    return;
  }
  const npu_stream target = stream_handle(stream);
  check_driver(
      active_driver().stream().wait_event(target, handle_), "wait for event");
  sanitizer::on_wait(stream, handle_);
}

bool Event::query() const {
  if (handle_ == nullptr) {
    return true;
  }
  init();
  const npu_status status = active_driver().event().query(handle_);
  if (status == NPU_NOT_READY) {
    return false;
  }
  check_driver(status, "query event");
  sanitizer::on_event_done(handle_);
  return true;
}

void Event::synchronize() const {
  if (handle_ == nullptr) {
    return;
  }
  init();
  const HostWait wait(WaitFor::kEvent, device_);
  check_driver(
      active_driver().event().synchronize(handle_), "synchronize event");
  sanitizer::on_event_done(handle_);
}

double Event::elapsed_ms(const Event& end) const {
  TORCH_CHECK(
      is_recorded() && end.is_recorded(),
      "npu: event: both events must be recorded before calculating elapsed "
      "time.",
      pta_error(Code::kInternal));
  TORCH_CHECK(
      (flags_ & end.flags_ & NPU_EVENT_TIMING) != 0,
      "npu: event: both events must be created with enable_timing=True.",
      pta_error(Code::kParam));
  TORCH_CHECK(
      query() && end.query(),
      "npu: event: both events must be completed before calculating elapsed "
      "time. Synchronize the later one first.",
      pta_error(Code::kUnavailable));
  double ms = 0;
  check_driver(
      active_driver().event().elapsed_ms(handle_, end.handle_, &ms),
      "measure time between events");
  return ms;
}

void* Event::native_handle() const {
  const auto native =
      handle_ == nullptr ? nullptr : active_driver().event().native_handle;
  return native != nullptr ? native(handle_) : static_cast<void*>(handle_);
}

}  // namespace npu
