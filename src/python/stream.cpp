// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: what torch.Stream does not tell about a stream of ours.
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "driver/registry.h"
#include "python/bindings.h"
#include "python/index.h"
#include "runtime/capture_state.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/external_stream.h"
#include "runtime/stream.h"

namespace py = pybind11;

namespace npu {
namespace {

c10::Stream stream_of(std::int64_t id, int device) {
  return c10::Stream(
      c10::Stream::UNSAFE, c10::Device(kDeviceType, index_of(device)), id);
}

void sleep_on_stream(void* context) {
  const std::unique_ptr<std::int64_t> nanoseconds(
      static_cast<std::int64_t*>(context));
  std::this_thread::sleep_for(std::chrono::nanoseconds(*nanoseconds));
}

// Queued like any work, so that what runs behind it is really late.
void sleep_current_stream(std::int64_t nanoseconds) {
  const npu_stream handle = current_stream_handle(current_device());
  auto context = std::make_unique<std::int64_t>(nanoseconds);
  check_driver(
      active_driver().stream().host_call(
          handle, &sleep_on_stream, context.get()),
      "_sleep");
  context.release();  // sleep_on_stream frees it
}

}  // namespace

void bind_stream(py::module_& m) {
  m.def("_begin_stream_capture", [](std::int64_t id, int device) {
    return begin_stream_capture(stream_of(id, device));
  });
  m.def("_end_stream_capture", [](std::int64_t id, int device) {
    return end_stream_capture(stream_of(id, device));
  });
  m.def("_is_stream_capturing", [](std::int64_t id, int device) {
    return is_stream_capturing(stream_of(id, device));
  });
  // The driver's handle as a number; an id that is no stream raises.
  m.def(
      "_stream_handle",
      [](std::int64_t id, int device) {
        return reinterpret_cast<std::uintptr_t>(
            stream_handle(stream_of(id, device)));
      },
      py::arg("id"),
      py::arg("device"));
  m.def("_external_stream_id", [](std::uintptr_t handle, int device) {
    return external_stream_id(
        reinterpret_cast<npu_stream>(handle), index_of(device));
  });
  m.def("_sync_launch_stream_id", [](int device) {
    return sync_launch_stream(index_of(device)).id();
  });
  const auto current_raw_stream = [](int device) {
    return reinterpret_cast<std::uintptr_t>(
        current_stream_handle(device_or_current(index_of(device))));
  };
  m.def("_npu_getCurrentRawStream", current_raw_stream);
  m.def("_npu_getCurrentRawStreamNoWait", current_raw_stream);
  m.def("_stream_priority", [](std::int64_t id, int device) {
    return stream_priority(stream_of(id, device));
  });
  m.def(
      "_sleep",
      &sleep_current_stream,
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace npu
