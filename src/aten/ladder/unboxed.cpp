// SPDX-License-Identifier: Apache-2.0
// Rungs 4 and 5: what surrounds the kernel.
#include "aten/ladder/unboxed.h"

#include <c10/util/ApproximateClock.h>

#include <atomic>

#include "aten/ladder/check_policy.h"
#include "aten/ladder/count.h"
#include "aten/ladder/watched.h"
#include "driver/services.h"
#include "profiler/watch.h"
#include "runtime/device.h"
#include "runtime/host_work.h"

namespace npu::ladder {

TwinRun::TwinRun(
    Entry& operator_entry,
    c10::Device device,
    npu_reason reason,
    const twin::Reach& reach)
    : reason_(reason),
      copies_(reach.copies),
      slow_(copies_ || calls_are_heard()),
      start_(start_of_call(operator_entry)),
      entry(operator_entry),
      call(entry, device, reach) {
  check_policy(entry);
  check_watched(entry);
  // A recording repeats CPU kernels only.
  note_host_work(reach.twin->waits() ? &entry : nullptr);
  if (C10_LIKELY(!copies_ && reach.twin->waits())) {
    twin::drain(device);
  }
}

void TwinRun::judge_dtypes() {
  counts_dtypes_ =
      entry.dtypes.may_run(entry.label.c_str(), call.judged_dtypes());
}

void TwinRun::ready_slowly() {
  if (log_enabled(NPU_LOG_DEBUG)) {
    log(NPU_LOG_DEBUG,
        "npu: " + entry.label + ": rung " + (copies_ ? "5" : "4") + ":" +
            call.describe());
  }
  if (copies_) {
    call.download();
  }
  kernel_begin_ = c10::getApproximateTime();
  if (call.wide() != nullptr) {
    call.wide()->fill();
    entry.counters.wide.fetch_add(1, std::memory_order_relaxed);
    note_host_work();  // more than the CPU kernel: no recording repeats it
  }
}

// A CPU kernel on the device's bytes may be work of the device. Kernels that
// are queued are seen by the profiler of their platform.
void TwinRun::show_kernel() const {
  if (!copies_ && call.twin().waits() && calls_are_heard()) {
    profiler::on_cpu_kernel(call.device().index(), entry.label, kernel_begin_);
  }
}

void TwinRun::finish() {
  if (C10_UNLIKELY(slow_)) {
    show_kernel();
  }
  call.finish();
  count_call(entry, reason_, copies_ ? 5 : 4, call.bytes(), start_);
  if (C10_UNLIKELY(counts_dtypes_)) {
    entry.dtypes.count(call.judged_dtypes());
  }
}

c10::Device DeviceFinder::current() {
  return {kDeviceType, device_or_current(-1)};
}

Entry& UnboxedKernelBase::find_entry() {
  Entry& found = twin::entry_for(op_);
  entry_.store(&found, std::memory_order_release);
  return found;
}

void UnboxedKernelBase::call_boxed(
    c10::OperatorKernel* self,
    const c10::OperatorHandle&,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  run_boxed(
      static_cast<UnboxedKernelBase*>(self)->entry(),
      c10::DispatchKey::PrivateUse1,
      stack,
      NPU_REASON_NO_KERNEL);
}

}  // namespace npu::ladder
