// SPDX-License-Identifier: Apache-2.0
// The op table: finds the kernel's row, checks, launches.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/kernel.h"
#include "profiler.h"

namespace npu::cuda {
namespace {

const KernelRow* find_kernel(std::uint32_t slot) noexcept {
  static const std::vector<const KernelRow*> rows = [] {
    std::vector<const KernelRow*> by_slot;
    for (const Rows& table :
         {kCopyKernels,
          kMapKernels,
          kRandomKernels,
          kMakeKernels,
          kReduceKernels,
          kNormaliseKernels,
          kIndexKernels,
          kSortedKernels,
          kListKernels,
          kGemmKernels,
          kProgramKernels}) {
      if (table.data() == kProgramKernels.data() && !tries("program")) {
        continue;
      }
      for (const KernelRow& row : table) {
        if (by_slot.size() <= row.slot) {
          by_slot.resize(row.slot + 1);
        }
        by_slot[row.slot] = &row;
      }
    }
    return by_slot;
  }();
  return slot < rows.size() ? rows[slot] : nullptr;
}

npu_status no_kernel(std::uint32_t slot, std::uint32_t code) {
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: cuda driver: no kernel for kind %s (slot %u), code %u.",
      npu_kind_name(slot),
      slot,
      code);
}

npu_status find(const char* name, std::uint32_t* slot) {
  return entry([&]() -> npu_status {
    if (!given(name, slot)) {
      return null_argument();
    }
    *slot = npu_kind_find(name);
    return *slot != 0 && find_kernel(*slot)
               ? NPU_OK
               : fail(
                     NPU_E_UNSUPPORTED,
                     "npu: cuda driver: no kernel for kind '%s'.",
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
  return row && row->caps(code, out) == NPU_OK ? NPU_OK : no_kernel(slot, code);
}

npu_status caps(std::uint32_t slot, std::uint32_t code, npu_op_caps* out) {
  return entry([&]() -> npu_status {
    if (!out) {
      return null_argument();
    }
    npu_op_caps all;
    if (npu_status status = read_caps(find_kernel(slot), slot, code, all)) {
      return status;
    }
    limit_to_fast(slot, all);
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
    if (dtype != NPU_ABSENT && caps.dtypes[i] != 0 &&
        (dtype >= NPU_DTYPE_COUNT ||
         !(caps.dtypes[i] & NPU_DTYPE_BIT(dtype)))) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  return entry(given(call, verdict), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
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
          npu_dtype_name(call->tensors[refused].dtype));
      return NPU_OK;
    }
    verdict->answer = NPU_VERDICT_YES;
    return row->plan ? row->plan(device, *call, *verdict) : NPU_OK;
  });
}

npu_status run(npu_stream stream, const npu_call* call) {
  return queue(stream, given(call), [&](Stream& on) -> npu_status {
    const KernelRow* row = find_kernel(call->slot);
    npu_op_caps caps;
    if (npu_status status = read_caps(row, call->slot, call->code, caps)) {
      return status;
    }
    const int refused = refused_operand(caps, *call);
    if (refused >= 0) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: cuda driver: %s: operand %d is %s, which it does not take.",
          npu_kind_name(call->slot),
          refused,
          npu_dtype_name(call->tensors[refused].dtype));
    }
    const Numbered numbered(call->correlation);
    return row->run(on, *call);
  });
}

// gemm alone has plans that own something.
void release_plan(void* plan) {
  release_gemm_plan(plan);
}

}  // namespace

npu_status load_kernels() noexcept {
  std::size_t most = 0;
  for (const void* const kernel : all_kernels()) {
    cudaFuncAttributes attributes{};
    NPU_CUDA(
        cudaFuncGetAttributes(&attributes, kernel),
        "loading the driver's kernels");
    most = std::max(most, attributes.localSizeBytes);
  }
  return reserve_local_memory(most);
}

npu_status launch_any(
    Stream& stream,
    const void* kernel,
    std::uint64_t blocks,
    std::uint32_t threads,
    void** arguments,
    std::size_t shared_bytes) noexcept {
  const auto grid =
      static_cast<unsigned>(std::min<std::uint64_t>(blocks, 0x7fffffffu));
  return cuda_status(
      cudaLaunchKernel(
          kernel,
          dim3(grid > 0 ? grid : 1),
          dim3(threads),
          arguments,
          shared_bytes,
          stream.handle),
      "launching a kernel");
}

Note note_for(
    const Stream& stream,
    const npu_call& call,
    std::uint32_t operand,
    const char* label) noexcept {
  Note note{};
  note.mailbox = stream.mailbox;
  note.correlation = call.correlation;
  note.slot = call.slot;
  note.operand = operand;
  const char* const text = label        ? label
                           : call.label ? call.label
                                        : npu_kind_name(call.slot);
  std::snprintf(note.label, sizeof(note.label), "%s", text);
  return note;
}

npu_status refuse(const npu_call& call, const char* why) noexcept {
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: cuda driver: %s.%s: %s.",
      npu_kind_name(call.slot),
      npu_code_name(call.slot, call.code),
      why);
}

const npu_op_table op_table = {
    .size = sizeof(npu_op_table),
    .reserved = 0,
    .find = find,
    .caps = caps,
    .plan = plan,
    .run = run,
    .release_plan = release_plan,
    .warm = nullptr,
    .tune = nullptr,
    .prepare = nullptr,  // open has loaded every kernel
};

}  // namespace npu::cuda
