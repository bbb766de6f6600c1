// SPDX-License-Identifier: Apache-2.0
// The null driver: its device and the tables. `opennpu driver new` makes a
// driver of your own from this folder.
#include <pthread.h>

#include <cstdio>
#include <cstring>

#include "null.h"

namespace npu::null {
namespace {

// ---- device ----------------------------------------------------------------

npu_status count(int32_t* out) {
  return when_given([=] { *out = 1; }, out);
}

npu_status open(npu_device device) {
  const npu_status status = check_device(device);
  opened = opened || status == NPU_OK;
  return status;
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
    open, check_device, // close
    properties,
    check_device, // synchronize: streams are inline
    memory_info,
    nullptr, nullptr, nullptr, nullptr}; // peers, trim, native handle
// clang-format on

// ---- the driver ----

npu_status shutdown() {
  alive = false;
  return NPU_OK;
}

// clang-format off
const npu_driver driver = {
    sizeof(driver), NPU_ABI, "null", "OpenNPU", "0.1",
    // Add CONJ and NEG when the copy kernel resolves them.
    NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE | NPU_TENSOR_HOST_SCALAR |
        NPU_TENSOR_ALIAS,
    NPU_CALL_INDEX32 | NPU_CALL_COUNT,
    &device_table, &memory_table, &stream_table, &event_table, &op_table,
    nullptr, // no optional interfaces
    shutdown,
    0, 0, nullptr, // flags; imitates no other chip
    nullptr}; // no platform of PyTorch's
// clang-format on

}  // namespace
}  // namespace npu::null

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    uint32_t, const npu_host_services* services, const npu_driver** out) {
  using namespace npu::null;
  npu::null::services = services;
  if (npu_status status = read_settings()) {
    return status;
  }
  alive = true;
  // A process that only asked what there is may fork and use the devices.
  pthread_atfork(nullptr, nullptr, [] { alive = alive && !opened; });
  *out = &driver;
  return NPU_OK;
}
