// SPDX-License-Identifier: Apache-2.0
// A driver for tests: two devices whose memory host code cannot touch, streams
// that work on threads of their own, few kernels.
//
// Device memory is mapped twice. The address that callers see has no access
// rights, so a stray read or write of the host side stops the process there;
// worker threads use the second mapping (`inside`).
//
//   NPU_DISCRETE_DELAY_US=50   every queued item waits first: missing
//                              synchronization shows every time
//   NPU_DISCRETE_PLATFORM=cuda it claims this platform
//   NPU_DISCRETE_PROFILER=1    it offers profiler/1
//   NPU_DISCRETE_CAPTURE=1     it offers capture/1; "broken": no capture ends
//                              well, "eager": what is recorded runs too
//   NPU_DISCRETE_COMM=1        it offers comm/1
//   NPU_DISCRETE_KERNELS=path  it has all kinds of that host driver, computed
//   by
//                              it on the worker threads
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "npu/kinds.h"

namespace npu::discrete {

inline constexpr int kDevices = 2;
inline constexpr uint64_t kCapacity = UINT64_C(1) << 28;  // of each

inline const npu_host_services* services = nullptr;
// False after shutdown, and in a child forked after a device was opened.
inline std::atomic<bool> alive{false};
inline std::atomic<bool> opened{false};
inline int delay_us = 0;

inline npu_status fail(npu_status status, const std::string& text) {
  services->set_error(("npu: discrete: " + text).c_str());
  return status;
}
// NPU_OK when the driver is alive and none of the pointers is null.
template <class... Pointers>
npu_status check(Pointers... pointers) {
  return !alive ? fail(NPU_E_SHUTDOWN, "used after shutdown or in a child.")
         : (... && (pointers != nullptr))
             ? NPU_OK
             : fail(NPU_E_INVALID, "an argument must not be null.");
}
template <class... Pointers>
npu_status check_device(npu_device device, Pointers... pointers) {
  return device >= 0 && device < kDevices
             ? check(pointers...)
             : fail(NPU_E_INVALID, "no npu:" + std::to_string(device) + ".");
}
// Leaves the function when a check fails.
#define NPU_TRY(checked)                   \
  if (const npu_status failed = (checked)) \
  return failed

// NPU_OK when [ptr, ptr + bytes) lies in one live block of the device.
npu_status check_range(npu_device device, const void* ptr, uint64_t bytes);
// Where worker threads find what callers see at `ptr`; null for other memory.
char* inside(const void* ptr);
uint64_t used_memory(npu_device device);

// One item of work; it fails by leaving a text.
using Work = std::function<void(std::string& failure)>;
// While the stream records, the work is kept instead; `tag` says what it is,
// and kNotRecorded that no graph can hold it: the capture is broken.
inline constexpr uint64_t kNotRecorded = 0;
npu_status enqueue(npu_stream stream, Work work, uint64_t tag = 1);
npu_device device_of(npu_stream stream);
npu_status drain(npu_stream stream);
npu_status drain_device(npu_device device);

extern const npu_memory_table memory_table;
extern const npu_stream_table stream_table;
extern const npu_event_table event_table;

}  // namespace npu::discrete
