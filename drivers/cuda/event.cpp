// SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include <memory>

namespace npu::cuda {
namespace {

constexpr std::uint32_t kKinds = 4;  // with and without time, blocking or not
constexpr std::size_t kMostPooled = 1024;

struct Pool {
  std::mutex mutex;
  std::vector<cudaEvent_t> free[kKinds];
};

// One for each device, made when it is first asked for.
Pool& pool(npu_device device) {
  static auto* const pools = new std::vector<Pool>(
      static_cast<std::size_t>(std::max(device_count(), 1)));
  return (*pools)[static_cast<std::size_t>(device)];
}

npu_status create(npu_device device, std::uint32_t flags, npu_event* out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    auto event = std::make_unique<Event>();
    event->device = device;
    event->flags = flags & (NPU_EVENT_TIMING | NPU_EVENT_BLOCKING);
    Pool& from = pool(device);
    {
      const std::lock_guard lock(from.mutex);
      std::vector<cudaEvent_t>& free = from.free[event->flags];
      if (!free.empty()) {
        event->handle = free.back();
        free.pop_back();
      }
    }
    if (!event->handle) {
      const OnDevice on(device);
      const unsigned timing =
          (flags & NPU_EVENT_TIMING) != 0 ? 0u : cudaEventDisableTiming;
      const unsigned blocking =
          (flags & NPU_EVENT_BLOCKING) != 0 ? cudaEventBlockingSync : 0u;
      NPU_CUDA(
          cudaEventCreateWithFlags(&event->handle, timing | blocking),
          "making an event");
    }
    *out = reinterpret_cast<npu_event>(event.release());
    return NPU_OK;
  });
}

npu_status destroy(npu_event event) {
  return entry([&]() -> npu_status {
    if (!event) {
      return null_argument();
    }
    const std::unique_ptr<Event> gone(event_of(event));
    Pool& to = pool(gone->device);
    {
      const std::lock_guard lock(to.mutex);
      std::vector<cudaEvent_t>& free = to.free[gone->flags];
      if (free.size() < kMostPooled) {
        free.push_back(gone->handle);
        return NPU_OK;
      }
    }
    const OnDevice on(gone->device);
    NPU_CUDA(cudaEventDestroy(gone->handle), "destroying an event");
    return NPU_OK;
  });
}

npu_status record(npu_event event, npu_stream stream) {
  return queue(stream, given(event), [&](Stream& on) -> npu_status {
    Event& to = *event_of(event);
    if (to.device != on.device) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: an event of npu:%d cannot be recorded on a stream "
          "of npu:%d.",
          to.device,
          on.device);
    }
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    NPU_CUDA(cudaStreamIsCapturing(on.handle, &capture), "recording an event");
    NPU_CUDA(cudaEventRecord(to.handle, on.handle), "recording an event");
    to.in_capture.store(capture != cudaStreamCaptureStatusNone);
    to.recorded.store(true, std::memory_order_release);
    return NPU_OK;
  });
}

npu_status query(npu_event event) {
  return entry(given(event), [&]() -> npu_status {
    const Event& asked = *event_of(event);
    return asked.recorded.load(std::memory_order_acquire)
               ? cuda_status(cudaEventQuery(asked.handle), "asking an event")
               : NPU_OK;
  });
}

npu_status synchronize(npu_event event) {
  return entry(given(event), [&]() -> npu_status {
    const Event& waited = *event_of(event);
    return waited.recorded.load(std::memory_order_acquire)
               ? cuda_status(
                     cudaEventSynchronize(waited.handle),
                     "waiting for an event")
               : NPU_OK;
  });
}

npu_status elapsed_ms(npu_event start, npu_event end, double* out) {
  return entry(given(start, end, out), [&]() -> npu_status {
    const Event& from = *event_of(start);
    const Event& to = *event_of(end);
    for (const Event* event : {&from, &to}) {
      if ((event->flags & NPU_EVENT_TIMING) == 0 || !event->recorded) {
        return fail(
            NPU_E_INVALID,
            "npu: cuda driver: elapsed_ms: both events have to be made with "
            "NPU_EVENT_TIMING, and recorded.");
      }
    }
    if (from.device != to.device) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: elapsed_ms: the events belong to two GPUs.");
    }
    float ms = 0;
    const OnDevice on(from.device);
    NPU_CUDA(
        cudaEventElapsedTime(&ms, from.handle, to.handle),
        "measuring between events");
    *out = static_cast<double>(ms);
    return NPU_OK;
  });
}

void* native_handle(npu_event event) {
  return event ? event_of(event)->handle : nullptr;
}

}  // namespace

void drop_event_pool(npu_device device) noexcept {
  Pool& from = pool(device);
  const std::lock_guard lock(from.mutex);
  for (std::vector<cudaEvent_t>& free : from.free) {
    for (const cudaEvent_t event : free) {
      cudaEventDestroy(event);
    }
    free.clear();
  }
}

const npu_event_table event_table = {
    .size = sizeof(npu_event_table),
    .reserved = 0,
    .create = create,
    .destroy = destroy,
    .record = record,
    .query = query,
    .synchronize = synchronize,
    .elapsed_ms = elapsed_ms,
    .native_handle = native_handle,
};

}  // namespace npu::cuda
