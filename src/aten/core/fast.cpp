// SPDX-License-Identifier: Apache-2.0
// The fast path of the runner.
#include "aten/core/fast.h"

#include <ATen/Context.h>

#include "aten/core/queue.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu {
namespace {

// A forked child gets its error, debug logging a line per call and
// deterministic mode its question: all from the other path.
bool fast_path_disabled() {
  return (C10_UNLIKELY(calls_are_heard()) &&
          (forked_child() || log_enabled(NPU_LOG_DEBUG))) ||
         at::globalContext().deterministicAlgorithms();
}

}  // namespace

[[gnu::flatten]] const npu_op_caps* Site::fast_caps() const {
  const npu_op_caps* const can = caps();
  return can == nullptr || fast_path_disabled() ||
                 can->plan_use != NPU_PLAN_NONE
             ? nullptr
             : can;
}

void Site::run_fast(
    c10::DeviceIndex device,
    npu_dtype compute,
    const FastOperands& operands,
    const void* attrs,
    std::uint32_t attr_bytes) {
  const std::uint64_t dtypes =
      NPU_DTYPE_BIT(operands.tensors[operands.n_out].dtype);
  const bool counted =
      !dtypes_.takes(dtypes) && dtypes_.may_run(overload_, dtypes);
  const Driver& driver = active_driver();
  driver.ensure_warm(driver_device(device), slot_);
  npu_call frame{};
  frame.size = driver.frame_bytes();
  frame.slot = slot_;
  frame.code = code_;
  frame.flags = NPU_CALL_INDEX32 & driver.table().call_flags_known;
  frame.compute_dtype = compute;
  frame.label = overload_;
  frame.n_out = operands.n_out;
  frame.n_in = operands.n_in;
  frame.tensors = operands.tensors;
  frame.attrs = attrs;
  frame.attr_bytes = attr_bytes;
  check_driver(queue_frame(frame, device), overload_);
  count(1);
  if (C10_UNLIKELY(counted)) {
    dtypes_.count(dtypes);
  }
}

}  // namespace npu
