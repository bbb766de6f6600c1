// SPDX-License-Identifier: Apache-2.0
// Frames of the fast paths.
#include "aten/core/fast.h"

#include <ATen/Context.h>

#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {

bool takes_the_long_way() {
  return forked_child() || log_enabled(NPU_LOG_DEBUG) ||
         at::globalContext().deterministicAlgorithms();
}

void run_fast(
    Site& site,
    c10::DeviceIndex device,
    npu_dtype compute,
    const FastOperands& operands,
    const void* attrs,
    std::uint32_t attr_bytes) {
  const Driver& driver = active_driver();
  npu_call frame{};
  frame.size = sizeof(frame);
  frame.slot = site.slot();
  frame.code = site.code();
  frame.flags = NPU_CALL_INDEX32 & driver.table().call_flags_known;
  frame.compute_dtype = compute;
  frame.label = site.overload();
  frame.n_out = operands.n_out;
  frame.n_in = operands.n_in;
  frame.tensors = operands.tensors;
  frame.attrs = attrs;
  frame.attr_bytes = attr_bytes;
  check_driver(
      driver.op().run(current_stream_handle(device), &frame), site.overload());
  site.count(1);
}

}  // namespace npu
