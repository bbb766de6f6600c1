// SPDX-License-Identifier: Apache-2.0
// Rungs 4 and 5: what surrounds the CPU kernel.
#include "aten/ladder/unboxed.h"

#include <array>
#include <atomic>

#include "aten/ladder/run.h"
#include "aten/ladder/settle.h"
#include "aten/ladder/ticks.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/host_work.h"
#include "runtime/stream.h"

namespace npu::ladder {
namespace {

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

// The clock is read at every call while there are few, then at one in 16 that
// stands for all of them: two reads cost as much as a small operator's checks.
constexpr std::uint64_t kTimedCalls = 64;
constexpr std::uint64_t kSampled = 16;

bool is_timed(const Entry& entry) {
  const std::uint64_t calls =
      entry.counters.calls.load(std::memory_order_relaxed);
  return calls < kTimedCalls || calls % kSampled == 0;
}

}  // namespace

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
      slow_(copies_ || log_enabled(NPU_LOG_DEBUG)),
      start_(is_timed(entry) ? read_ticks() : 0),
      call(entry, device, copies_, opens_) {
  settle(entry);
  note_host_work();
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
}

void CpuRun::finish() {
  call.finish();
  Counters& counters = entry_.counters;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const std::uint64_t before = counters.calls.fetch_add(1, kRelaxed);
  counters.bytes.fetch_add(call.bytes(), kRelaxed);
  if (start_ != 0) {
    const std::uint64_t stands_for = before < kTimedCalls ? 1 : kSampled;
    counters.ticks.fetch_add((read_ticks() - start_) * stands_for, kRelaxed);
  }
  counters.reason.store(reason_, kRelaxed);
  counters.rung.store(copies_ ? 5 : 4, kRelaxed);
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
