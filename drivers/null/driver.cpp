// SPDX-License-Identifier: Apache-2.0
// The null driver: memory, streams and events, and not one kernel.
// Copy this folder to begin a driver; every operator falls back until then.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "null.h"

namespace npu::null {
namespace {

// NPU_NULL_ACCEPT=1: accept every call and compute nothing, to measure what
// the host side costs.
bool accept = false;

// ---- device ----------------------------------------------------------------

npu_status count(int32_t* out) {
  return when_given([=] { *out = 1; }, out);
}

npu_status properties(npu_device device, npu_device_properties* out) {
  npu_status status = check_device(device);
  status = status ? status : check_given(out);
  if (status != NPU_OK) {
    return status;
  }
  npu_device_properties p{};
  p.size = sizeof(p) < out->size ? sizeof(p) : out->size;
  p.host_access = NPU_HOST_ACCESS_COHERENT;
  std::snprintf(p.name, sizeof(p.name), "Null device");
  std::snprintf(p.architecture, sizeof(p.architecture), "null");
  p.total_memory = total_memory();
  p.allocation_alignment = 512;
  p.allocation_granularity = 512;
  p.compute_units = 1;
  p.integrated = 1;
  p.unified_address = 1;
  std::memcpy(out, &p, p.size);
  return NPU_OK;
}

npu_status memory_info(npu_device device, uint64_t* free, uint64_t* total) {
  const auto answer = [=] {
    *total = total_memory();
    *free = *total - used_memory();
  };
  const npu_status status = check_device(device);
  return status ? status : when_given(answer, free, total);
}

// clang-format off
const npu_device_table device_table = {
    sizeof(device_table), 0, count,
    check_device, check_device, // open, close
    properties,
    check_device, // synchronize: streams are inline
    memory_info,
    nullptr, nullptr, nullptr, nullptr}; // peers, trim, native handle
// clang-format on

// ---- operators ----

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

const npu_op_table op_table = {
    sizeof(op_table), 0, find, caps, plan, run, nullptr, nullptr, nullptr};

// ---- the driver ----

npu_status shutdown() {
  alive = false;
  return NPU_OK;
}

// clang-format off
const npu_driver driver = {
    sizeof(driver), NPU_ABI, "null", "OpenNPU", "0.1",
    ~0u, ~0u, // understands every flag, for it looks at none
    &device_table, &memory_table, &stream_table, &event_table, &op_table,
    nullptr, // no optional interfaces
    shutdown,
    0, 0, nullptr}; // flags; imitates no other chip
// clang-format on

}  // namespace
}  // namespace npu::null

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    uint32_t, const npu_host_services* services, const npu_driver** out) {
  using namespace npu::null;
  npu::null::services = services;
  const char* value = std::getenv("NPU_NULL_ACCEPT");
  accept = value && std::strcmp(value, "1") == 0;
  if (value && *value && !accept && std::strcmp(value, "0") != 0) {
    return fail(NPU_E_INVALID, "npu: null: NPU_NULL_ACCEPT must be 0 or 1.");
  }
  alive = true;
  pthread_atfork(nullptr, nullptr, [] { alive = false; });
  *out = &driver;
  return NPU_OK;
}
