// SPDX-License-Identifier: Apache-2.0
// The op table: finds the kernel's row, checks, queues.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "decline.h"
#include "host.h"
#include "kernels/dtype.h"

namespace npu::host {
namespace {

npu_status no_kernel(std::uint32_t slot, std::uint32_t code) {
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: host driver: no kernel for kind %s (slot %u), code %u.",
      npu_kind_name(slot),
      slot,
      code);
}

npu_status find(const char* name, std::uint32_t* slot) {
  return entry(given(name, slot), [&]() -> npu_status {
    *slot = npu_kind_find(name);
    return *slot != 0 && find_kernel(*slot)
               ? NPU_OK
               : fail(
                     NPU_E_UNSUPPORTED,
                     "npu: host driver: no kernel for kind '%s'.",
                     name);
  });
}

npu_status read_caps(
    const KernelRow* row,
    std::uint32_t slot,
    std::uint32_t code,
    npu_op_caps& out) {
  out = npu_op_caps{};
  out.size = sizeof(out);
  if (!row || row->caps(code, out) != NPU_OK) {
    return no_kernel(slot, code);
  }
  return NPU_OK;
}

npu_status caps(std::uint32_t slot, std::uint32_t code, npu_op_caps* out) {
  return entry(given(out), [&]() -> npu_status {
    npu_op_caps all;
    if (npu_status status = read_caps(find_kernel(slot), slot, code, all)) {
      return status;
    }
    if (!settings.all_kernels && !limit_to_fast(slot, code, all)) {
      return no_kernel(slot, code);
    }
    if (!apply_decline(slot, code, all)) {
      return no_kernel(slot, code);
    }
    all.size = std::min<std::uint32_t>(out->size, sizeof(all));
    std::memcpy(out, &all, all.size);
    return NPU_OK;
  });
}

// The first operand whose dtype the kernel does not take, or -1.
int refused_operand(const npu_op_caps& caps, const npu_call& call) {
  const std::uint32_t n =
      std::min<std::uint32_t>(call.n_out + call.n_in, NPU_MAX_OPERANDS);
  for (std::uint32_t i = 0; i < n; ++i) {
    const npu_dtype dtype = call.tensors[i].dtype;
    if (dtype != NPU_ABSENT && (dtype >= NPU_DTYPE_COUNT ||
                                !(caps.dtypes[i] & NPU_DTYPE_BIT(dtype)))) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  return entry(given(call, verdict), [&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    const KernelRow* row = find_kernel(call->slot);
    npu_op_caps caps;
    verdict->answer = NPU_VERDICT_NO;
    if (read_caps(row, call->slot, call->code, caps) != NPU_OK) {
      verdict->reason = NPU_REASON_NO_KERNEL;
      return NPU_OK;
    }
    const int refused = refused_operand(caps, *call);
    if (refused >= 0) {
      verdict->reason = NPU_REASON_DTYPE;
      std::snprintf(
          verdict->detail,
          sizeof(verdict->detail),
          "operand %d is %s",
          refused,
          dtype_name(call->tensors[refused].dtype));
      return NPU_OK;
    }
    verdict->answer = NPU_VERDICT_YES;
    return row->plan ? row->plan(*call, *verdict) : NPU_OK;
  });
}

npu_status run_kernel(const KernelRow& row, const npu_call& call) {
  PageGuard guard;
  const npu_status status = guard.open_operands(call);
  return status ? status : row.run(call);
}

npu_status run(npu_stream stream, const npu_call* call) {
  return entry(given(stream, call), [&]() -> npu_status {
    const KernelRow* row = find_kernel(call->slot);
    if (!row) {
      return no_kernel(call->slot, call->code);
    }
    if (!settings.async) {
      return enqueue(
          stream, [&]() -> npu_status { return run_kernel(*row, *call); });
    }
    // Errors that can be found now are reported now, not by the queued call.
    npu_op_caps caps;
    if (npu_status status = read_caps(row, call->slot, call->code, caps)) {
      return status;
    }
    const int refused = refused_operand(caps, *call);
    if (refused >= 0) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: host driver: %s: operand %d is %s, which it does not take.",
          npu_kind_name(call->slot),
          refused,
          dtype_name(call->tensors[refused].dtype));
    }
    return enqueue(stream, [row, frame = Frame(*call)]() -> npu_status {
      return run_kernel(*row, frame.call());
    });
  });
}

}  // namespace

const npu_op_table op_table = {
    sizeof(op_table),
    0,
    find,
    caps,
    plan,
    run,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace npu::host
