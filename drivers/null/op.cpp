// SPDX-License-Identifier: Apache-2.0
// Operators of the null driver: none. With NPU_NULL_ACCEPT=1 it accepts every
// call and computes nothing, to measure what the host side costs.
#include <cstdlib>
#include <cstring>

#include "null.h"

namespace npu::null {
namespace {

bool accept = false;

npu_status no_kernel() {
  return fail(NPU_E_UNSUPPORTED, "npu: null: has no kernels.");
}

npu_status find(const char* name, uint32_t* slot) {
  *slot = npu_kind_find(name);
  return accept && *slot != 0 ? NPU_OK : no_kernel();
}

npu_status caps(uint32_t, uint32_t, npu_op_caps* out) {
  if (!accept) {
    return no_kernel();
  }
  out->flags = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT | NPU_CAP_ALIAS |
               NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC | NPU_CAP_HOST_SCALAR;
  out->dtype_rule = NPU_DTYPES_FREE;
  out->plan_use = NPU_PLAN_NONE;
  out->alias_mask = ~UINT64_C(0);
  for (uint64_t& dtypes : out->dtypes) {
    dtypes = (UINT64_C(1) << NPU_DTYPE_COUNT) - 1;
  }
  return NPU_OK;
}

npu_status plan(npu_device device, const npu_call*, npu_verdict* verdict) {
  verdict->answer = accept ? NPU_VERDICT_YES : NPU_VERDICT_NO;
  verdict->reason = accept ? NPU_REASON_NONE : NPU_REASON_NO_KERNEL;
  return check_device(device);
}

npu_status run(npu_stream stream, const npu_call* call) {
  return accept ? check_given(stream, call) : no_kernel();
}

}  // namespace

npu_status read_settings() {
  const char* value = std::getenv("NPU_NULL_ACCEPT");
  accept = value && std::strcmp(value, "1") == 0;
  return !value || !*value || accept || std::strcmp(value, "0") == 0
             ? NPU_OK
             : fail(
                   NPU_E_INVALID, "npu: null: NPU_NULL_ACCEPT must be 0 or 1.");
}

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
    nullptr};

}  // namespace npu::null
