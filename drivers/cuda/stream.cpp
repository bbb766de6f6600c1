// SPDX-License-Identifier: Apache-2.0
// Streams, and the mailbox in which kernels leave errors.
#include "stream.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "capture.h"
#include "event.h"
#include "profiler.h"

namespace npu::cuda {
namespace {

std::mutex mutex;
std::vector<Stream*>& streams() {
  static auto* const all = new std::vector<Stream*>;
  return *all;
}

npu_status create(npu_device device, std::int32_t priority, npu_stream* out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    const Device& known = device_at(device);
    const OnDevice on(device);
    auto stream = std::make_unique<Stream>();
    stream->device = device;
    void* mailbox = nullptr;
    NPU_CUDA(
        cudaHostAlloc(
            &mailbox,
            sizeof(npu_mailbox),
            cudaHostAllocPortable | cudaHostAllocMapped),
        "making a stream");
    std::memset(mailbox, 0, sizeof(npu_mailbox));
    stream->mailbox = static_cast<npu_mailbox*>(mailbox);
    stream->box = std::shared_ptr<npu_mailbox>(
        stream->mailbox, [](npu_mailbox* box) { cudaFreeHost(box); });
    const cudaError_t error = cudaStreamCreateWithPriority(
        &stream->handle,
        cudaStreamNonBlocking,
        std::clamp(priority, known.greatest_priority, known.least_priority));
    if (error != cudaSuccess) {
      return cuda_status(error, "making a stream");
    }
    const std::lock_guard lock(mutex);
    streams().push_back(stream.get());
    *out = reinterpret_cast<npu_stream>(stream.release());
    return NPU_OK;
  });
}

npu_status destroy(npu_stream stream) {
  return entry([&]() -> npu_status {
    if (!stream) {
      return null_argument();
    }
    leave_capture(*stream_of(stream));
    const std::unique_ptr<Stream> gone(stream_of(stream));
    if (profiling.load(std::memory_order_relaxed)) {
      remember_stream(*gone);
    }
    {
      const std::lock_guard lock(mutex);
      std::erase(streams(), gone.get());
    }
    const OnDevice on(gone->device);
    // Its kernels may still write to the mailbox.
    const cudaError_t error = cudaStreamSynchronize(gone->handle);
    if (error != cudaSuccess) {
      return cuda_status(error, "destroying a stream");
    }
    NPU_CUDA(cudaStreamDestroy(gone->handle), "destroying a stream");
    return NPU_OK;
  });
}

npu_status synchronize(npu_stream stream) {
  return entry(given(stream), [&]() -> npu_status {
    Stream& waited = *stream_of(stream);
    const OnDevice on(waited.device);
    NPU_CUDA(cudaStreamSynchronize(waited.handle), "waiting for a stream");
    const npu_status status = take_error(waited);
    // No launch is left of graphs that are gone.
    const std::lock_guard lock(waited.watching);
    std::erase_if(waited.watched, [](const auto& box) {
      return box.use_count() == 1 &&
             __atomic_load_n(&box->state, __ATOMIC_ACQUIRE) != NPU_MAILBOX_FULL;
    });
    return status;
  });
}

npu_status query(npu_stream stream) {
  return entry(given(stream), [&]() -> npu_status {
    Stream& asked = *stream_of(stream);
    const OnDevice on(asked.device);
    NPU_CUDA(cudaStreamQuery(asked.handle), "asking a stream");
    return take_error(asked);
  });
}

npu_status wait_event(npu_stream stream, npu_event event) {
  return queue(stream, given(event), [&](Stream& waits) -> npu_status {
    const Event& on = *event_of(event);
    if (!on.recorded.load(std::memory_order_acquire)) {
      return NPU_OK;
    }
    if (on.in_capture.load(std::memory_order_relaxed)) {
      cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
      NPU_CUDA(
          cudaStreamIsCapturing(waits.handle, &capture),
          "waiting for an event");
      if (capture == cudaStreamCaptureStatusNone) {
        return fail(
            NPU_E_INVALID,
            "npu: cuda driver: a stream cannot wait for an event that was "
            "recorded while a graph is captured: the stream would become part "
            "of the graph.");
      }
    }
    return cuda_status(
        cudaStreamWaitEvent(waits.handle, on.handle, 0),
        "waiting for an event");
  });
}

npu_status host_call(npu_stream stream, npu_host_fn fn, void* context) {
  return queue(stream, fn != nullptr, [&](Stream& on) -> npu_status {
    return cuda_status(
        cudaLaunchHostFunc(on.handle, fn, context), "queueing a host function");
  });
}

npu_status priority_range(
    npu_device device, std::int32_t* least, std::int32_t* greatest) {
  return entry(given(least, greatest), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    *least = device_at(device).least_priority;
    *greatest = device_at(device).greatest_priority;
    return NPU_OK;
  });
}

void* native_handle(npu_stream stream) {
  return stream ? stream_of(stream)->handle : nullptr;
}

npu_mailbox* mailbox(npu_stream stream) {
  return stream ? stream_of(stream)->mailbox : nullptr;
}

}  // namespace

namespace {

npu_status take_from(npu_mailbox* box) noexcept {
  if (__atomic_load_n(&box->state, __ATOMIC_ACQUIRE) != NPU_MAILBOX_FULL) {
    return NPU_OK;
  }
  // Two threads may look at once: one of them tells.
  const npu_mailbox found = *box;
  std::uint32_t full = NPU_MAILBOX_FULL;
  if (!__atomic_compare_exchange_n(
          &box->state,
          &full,
          NPU_MAILBOX_EMPTY,
          false,
          __ATOMIC_ACQ_REL,
          __ATOMIC_RELAXED)) {
    return NPU_OK;
  }
  char text[256];
  if (found.error == NPU_MAILBOX_ASSERT) {
    // The label is the whole message: "ZeroDivisionError".
    return fail(
        NPU_E_ASYNC,
        "%.*s",
        static_cast<int>(sizeof(found.label)) - 1,
        found.label);
  }
  npu_mailbox_text(&found, text, sizeof(text));
  services->set_error(text);
  return NPU_E_ASYNC;
}

}  // namespace

void watch(
    Stream& stream, const std::vector<std::shared_ptr<npu_mailbox>>& boxes) {
  const std::lock_guard lock(stream.watching);
  for (const auto& box : boxes) {
    if (std::ranges::find(stream.watched, box) == stream.watched.end()) {
      stream.watched.push_back(box);
    }
  }
}

npu_status take_error(Stream& stream) noexcept {
  if (const npu_status status = take_from(stream.mailbox)) {
    return status;
  }
  const std::lock_guard lock(stream.watching);
  for (const auto& box : stream.watched) {
    if (const npu_status status = take_from(box.get())) {
      return status;
    }
  }
  return NPU_OK;
}

void for_each_stream(
    npu_device device, const std::function<void(const Stream&)>& visit) {
  const std::lock_guard lock(mutex);
  for (const Stream* const stream : streams()) {
    if (stream->device == device) {
      visit(*stream);
    }
  }
}

npu_status take_errors(npu_device device) noexcept {
  const std::lock_guard lock(mutex);
  for (Stream* const stream : streams()) {
    if (stream->device == device) {
      if (npu_status status = take_error(*stream)) {
        return status;
      }
    }
  }
  return NPU_OK;
}

const npu_stream_table stream_table = {
    .size = sizeof(npu_stream_table),
    .reserved = 0,
    .create = create,
    .destroy = destroy,
    .synchronize = synchronize,
    .query = query,
    .wait_event = wait_event,
    .host_call = host_call,
    .priority_range = priority_range,
    .native_handle = native_handle,
    .mailbox = mailbox,
};

}  // namespace npu::cuda
