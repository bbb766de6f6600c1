// SPDX-License-Identifier: Apache-2.0
// The part of NVML that the driver asks: how many GPUs there are.
#include <cstdint>
#include <cstdio>

#include "machine.h"

using stand_in::gpus;

extern "C" {

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index + 1));
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned bytes) {
  std::snprintf(name, bytes, "Stand-in");
  return 0;
}
int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned bytes) {
  std::snprintf(
      uuid,
      bytes,
      "GPU-%08x-0000-0000-0000-000000000000",
      static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(handle)));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 1ull << 32;
  memory[1] = 1ull << 32;
  memory[2] = 0;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetNumGpuCores(void*, unsigned* cores) {
  *cores = 512;
  return 0;
}

}  // extern "C"
