// SPDX-License-Identifier: Apache-2.0
// Streams and events of the null driver: work is done when a call returns.
#include <chrono>
#include <new>

#include "null.h"

struct npu_stream_s {};
struct npu_event_s {
  uint32_t flags;
  std::atomic<int64_t> nanoseconds;  // 0 = never recorded
};

namespace npu::null {
namespace {

template <class T, class... Args>
npu_status make(npu_device device, T** out, Args... args) {
  npu_status status = check_device(device);
  status = status ? status : check_given(out);
  if (status != NPU_OK) {
    return status;
  }
  *out = new (std::nothrow) T{args...};
  return *out ? NPU_OK : fail(NPU_E_OUT_OF_MEMORY, "npu: null: no memory.");
}

template <class T>
npu_status destroy(T* object) {
  return when_given([=] { delete object; }, object);
}

npu_status idle(npu_stream stream) {
  return check_given(stream);
}
npu_status done(npu_event event) {
  return check_given(event);
}

npu_status record(npu_event event, npu_stream stream) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return when_given([=] { event->nanoseconds = now; }, event, stream);
}

npu_status elapsed_ms(npu_event start, npu_event end, double* out) {
  if (npu_status status = check_given(start, end, out)) {
    return status;
  }
  if (!(start->flags & end->flags & NPU_EVENT_TIMING) || !start->nanoseconds ||
      !end->nanoseconds) {
    return fail(
        NPU_E_INVALID,
        "npu: null: elapsed time needs two recorded events with timing.");
  }
  *out = double(end->nanoseconds - start->nanoseconds) * 1e-6;
  return NPU_OK;
}

}  // namespace

// clang-format off
const npu_stream_table stream_table = {
    sizeof(stream_table), 0,
    [](npu_device device, int32_t, npu_stream* out) { return make(device, out); },
    destroy<npu_stream_s>,
    idle, idle, // synchronize, query
    [](npu_stream stream, npu_event event) { return check_given(stream, event); },
    [](npu_stream stream, npu_host_fn fn, void* context) {
      return when_given([=] { fn(context); }, stream, fn);
    },
    nullptr, nullptr, nullptr}; // priorities, native handle, mailbox

const npu_event_table event_table = {
    sizeof(event_table), 0,
    [](npu_device device, uint32_t flags, npu_event* out) {
      return make(device, out, flags, int64_t{0});
    },
    destroy<npu_event_s>, record,
    done, done, // query, synchronize
    elapsed_ms, nullptr};
// clang-format on

}  // namespace npu::null
