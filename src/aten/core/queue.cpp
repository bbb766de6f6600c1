// SPDX-License-Identifier: Apache-2.0
// Work given to the active driver, and shown to this thread's recorder.
#include "aten/core/queue.h"

#include "driver/registry.h"
#include "runtime/error.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {
namespace {

npu_status copy_bytes(const ByteWork& work, npu_stream stream) {
  const npu_memory_table& memory = active_driver().memory();
  switch (work.kind) {
    case ByteWork::kOnDevice:
      return memory.copy_on_device(stream, work.to, work.from, work.bytes);
    case ByteWork::kToDevice:
      return memory.copy_to_device(stream, work.to, work.from, work.bytes);
    case ByteWork::kToHost:
      return memory.copy_to_host(stream, work.to, work.from, work.bytes);
    case ByteWork::kSet:
      break;
  }
  return memory.set_bytes(stream, work.to, work.value, work.bytes);
}

void queue_bytes(
    const ByteWork& work, c10::DeviceIndex device, const char* what) {
  sanitizer::raise_pending();
  const npu_stream stream = current_stream_handle(device);
  check_driver(copy_bytes(work, stream), what);
  if (Recorder* const watching = recorder();
      C10_UNLIKELY(watching != nullptr)) {
    watching->on_bytes(work, device, stream);
  }
}

}  // namespace

npu_status queue_frame(Call& call, c10::DeviceIndex device) {
  sanitizer::raise_pending();
  const npu_stream stream = current_stream_handle(device);
  const npu_status status = call.run(active_driver(), stream);
  if (Recorder* const watching = recorder();
      C10_UNLIKELY(watching != nullptr) && status == NPU_OK) {
    watching->on_frame(call.frame(), call.plan_handle(), device, stream);
  }
  return status;
}

npu_status queue_frame(const npu_call& frame, c10::DeviceIndex device) {
  sanitizer::raise_pending();
  const npu_stream stream = current_stream_handle(device);
  const npu_status status = active_driver().run(stream, frame);
  if (Recorder* const watching = recorder();
      C10_UNLIKELY(watching != nullptr) && status == NPU_OK) {
    watching->on_frame(frame, nullptr, device, stream);
  }
  return status;
}

void queue_copy(
    ByteWork::Kind kind,
    void* to,
    const void* from,
    std::uint64_t bytes,
    c10::DeviceIndex device,
    const char* what) {
  queue_bytes({kind, to, from, 0, bytes}, device, what);
}

void queue_zeros(
    void* to, std::uint64_t bytes, c10::DeviceIndex device, const char* what) {
  queue_bytes({ByteWork::kSet, to, nullptr, 0, bytes}, device, what);
}

}  // namespace npu
