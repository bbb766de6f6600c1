// SPDX-License-Identifier: Apache-2.0
// Raw memory and events, straight from the driver's tables.
#include "runtime/allocator/driver_backend.h"

#include "driver/registry.h"
#include "runtime/error.h"
#include "runtime/external_stream.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu::memory {
namespace {

npu_device number(int device) {
  return driver_device(static_cast<c10::DeviceIndex>(device));
}

c10::Stream stream_of(StreamKey stream) {
  const auto index = static_cast<c10::DeviceIndex>(stream.device);
  return c10::Stream(
      c10::Stream::UNSAFE, c10::Device(kDeviceType, index), stream.id);
}

npu_stream handle_of(StreamKey stream) {
  return stream_handle(stream_of(stream));
}

}  // namespace

npu_status DriverBackend::alloc(int device, std::size_t bytes, void** out) {
  return active_driver().memory().alloc(number(device), bytes, out);
}

npu_status DriverBackend::free(int device, void* ptr) {
  if (sanitizer::finds_races()) {
    npu_pointer_info info{};
    info.size = sizeof(info);
    if (active_driver().memory().pointer_info(ptr, &info) == NPU_OK) {
      sanitizer::on_idle_memory(device, info.base, info.bytes);
    }
  }
  return active_driver().memory().free(number(device), ptr);
}

npu_status DriverBackend::synchronize(int device) {
  return active_driver().device().synchronize(number(device));
}

npu_status DriverBackend::memory_info(
    int device, std::uint64_t* free, std::uint64_t* total) {
  return active_driver().device().memory_info(number(device), free, total);
}

void DriverBackend::trim(int device) noexcept {
  const auto trim = active_driver().device().trim;
  if (trim != nullptr) {
    trim(number(device));
  }
}

bool DriverBackend::discards() const noexcept {
  return active_driver().can_discard();
}

npu_status DriverBackend::discard(
    StreamKey stream, void* ptr, std::size_t bytes) {
  if (!stream_exists(stream_of(stream))) {
    return NPU_E_SHUTDOWN;  // destroyed, and drained before that
  }
  return active_driver().memory().discard(handle_of(stream), ptr, bytes);
}

npu_status DriverBackend::record(StreamKey stream, npu_event* out) {
  if (!stream_exists(stream_of(stream))) {
    return NPU_E_SHUTDOWN;  // destroyed, and drained before that
  }
  const npu_event_table& table = active_driver().event();
  npu_event event = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& kept = events_[static_cast<std::size_t>(stream.device)];
    if (!kept.empty()) {
      event = kept.back();
      kept.pop_back();
    }
  }
  if (event == nullptr) {
    const npu_status made = table.create(number(stream.device), 0, &event);
    if (made != NPU_OK) {
      return made;
    }
  }
  const npu_status status = table.record(event, handle_of(stream));
  if (status != NPU_OK) {
    release(stream, event);
    return status;
  }
  *out = event;
  return NPU_OK;
}

npu_status DriverBackend::query(npu_event event) {
  return active_driver().event().query(event);
}

npu_status DriverBackend::synchronize(npu_event event) {
  return active_driver().event().synchronize(event);
}

void DriverBackend::release(StreamKey stream, npu_event event) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_[static_cast<std::size_t>(stream.device)].push_back(event);
}

void DriverBackend::fail(npu_status status, const char* what) {
  check_driver(status, what);
  TORCH_CHECK(false, "npu: ", what, ": unexpected driver status ", status, ".");
}

}  // namespace npu::memory
