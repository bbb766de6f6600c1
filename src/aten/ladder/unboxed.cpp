// SPDX-License-Identifier: Apache-2.0
// Rungs 4 and 5: what surrounds the CPU kernel.
#include "aten/ladder/unboxed.h"

#include <c10/util/ApproximateClock.h>

#include <array>
#include <atomic>

#include "aten/ladder/count.h"
#include "aten/ladder/run.h"
#include "aten/ladder/settle.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "profiler/watch.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/host_work.h"
#include "runtime/stream.h"

namespace npu::ladder {

// device_properties() checks its argument; every call asks three times.
std::uint32_t host_access(c10::Device device) {
  constexpr std::uint8_t kUnknown = 0;
  static std::array<std::atomic<std::uint8_t>, kMaxDevices> known{};
  auto& slot = known[static_cast<std::size_t>(device.index())];
  std::uint8_t value = slot.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(value == kUnknown)) {
    const std::uint32_t access = device_properties(device.index()).host_access;
    value = static_cast<std::uint8_t>(access + 1);
    slot.store(value, std::memory_order_relaxed);
  }
  return value - 1u;
}

void drain(c10::Device device) {
  const Driver& driver = active_driver();
  if (C10_LIKELY(driver.runs_inline() && !forked_child())) {
    return;
  }
  check_driver(
      driver.stream().synchronize(current_stream_handle(device.index())),
      "wait for the current stream");
}

CpuRun::CpuRun(Entry& entry, c10::Device device, npu_reason reason)
    : entry_(entry),
      reason_(reason),
      copies_(host_access(device) == NPU_HOST_ACCESS_NONE),
      opens_(!copies_ && host_access(device) == NPU_HOST_ACCESS_EXPLICIT),
      slow_(copies_ || calls_are_heard()),
      start_(start_of_call(entry)),
      call(entry, device, copies_, opens_) {
  settle(entry);
  note_host_work(&entry);
  if (C10_LIKELY(!copies_)) {
    drain(device);
  }
}

void CpuRun::ready_slowly() {
  if (log_enabled(NPU_LOG_DEBUG)) {
    log(NPU_LOG_DEBUG,
        "npu: " + entry_.label + ": rung " + (copies_ ? "5" : "4") + ":" +
            call.describe());
  }
  if (copies_) {
    call.download();
  }
  kernel_begin_ = c10::getApproximateTime();
  if (call.wide() != nullptr) {
    call.wide()->fill();
    entry_.counters.wide.fetch_add(1, std::memory_order_relaxed);
    note_host_work();  // more than the CPU kernel: no recording repeats it
  }
}

// Where the device is the CPU its kernels are work of the device.
void CpuRun::show_kernel() const {
  if (!copies_ && calls_are_heard()) {
    profiler::on_cpu_kernel(call.device().index(), entry_.label, kernel_begin_);
  }
}

void CpuRun::finish() {
  if (C10_UNLIKELY(slow_)) {
    show_kernel();
  }
  call.finish();
  count_call(entry_, reason_, copies_ ? 5 : 4, call.bytes(), start_);
}

c10::Device DeviceFinder::current() {
  return {kDeviceType, device_or_current(-1)};
}

Entry& UnboxedKernelBase::find_entry() {
  Entry& found = entry_for(op_);
  entry_.store(&found, std::memory_order_release);
  return found;
}

void UnboxedKernelBase::call_boxed(
    c10::OperatorKernel* self,
    const c10::OperatorHandle&,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  run_on_cpu(
      static_cast<UnboxedKernelBase*>(self)->entry(),
      c10::DispatchKey::CPU,
      stack,
      NPU_REASON_NO_KERNEL);
}

}  // namespace npu::ladder
