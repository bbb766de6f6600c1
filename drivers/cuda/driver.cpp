// SPDX-License-Identifier: Apache-2.0
// The entry. Nothing here starts CUDA: see device.cpp.
#include <string_view>

#include "capture.h"
#include "comm.h"
#include "cuda.h"
#include "profiler.h"

namespace npu::cuda {
namespace {

npu_status shutdown() {
  return entry([] {
    alive = false;
    return NPU_OK;
  });
}

// What has not run on a GPU yet is there where the user asks for it.
const void* get_interface(const char* name) {
  if (name == nullptr || !alive.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  const std::string_view asked(name);
  if (asked == NPU_CAPTURE_INTERFACE && tries("capture")) {
    return &capture_table;
  }
  if (asked == NPU_COMM_INTERFACE && tries("comm")) {
    return comm_interface();
  }
  if (asked == NPU_PROFILER_INTERFACE && tries("profiler")) {
    return profiler_interface();
  }
  return nullptr;
}

npu_driver driver = {
    .size = sizeof(npu_driver),
    .abi = NPU_ABI,
    .name = "cuda",
    .vendor = "OpenNPU",
    .version = "0.1",
    .tensor_flags_known = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE |
                          NPU_TENSOR_HOST_SCALAR | NPU_TENSOR_CONJ |
                          NPU_TENSOR_NEG | NPU_TENSOR_ALIAS,
    .call_flags_known = NPU_CALL_INDEX32,
    .device = &device_table,
    .memory = &memory_table,
    .stream = &stream_table,
    .event = &event_table,
    .op = &op_table,
    .get_interface = get_interface,
    .shutdown = shutdown,
    .flags = 0,
    .reserved = 0,
    .default_profile = nullptr,
    .platform = NPU_PLATFORM_CUDA,
};

}  // namespace
}  // namespace npu::cuda

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    std::uint32_t, const npu_host_services* services, const npu_driver** out) {
  npu::cuda::services = services;
  npu::cuda::alive = true;
  if (npu::cuda::tries("capture")) {
    npu::cuda::driver.call_flags_known |= NPU_CALL_CAPTURE;
  }
  *out = &npu::cuda::driver;
  return NPU_OK;
}
