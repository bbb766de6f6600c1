// SPDX-License-Identifier: Apache-2.0
#include "nvml.h"

#include <dlfcn.h>

namespace npu::cuda {
namespace {

// The part of nvml.h that is used; its ABI has been the same since 2013.
using Return = int;
using Handle = void*;
struct Memory {
  unsigned long long total, free, used;
};

struct Nvml {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*count)(unsigned*) = nullptr;
  Return (*handle)(unsigned, Handle*) = nullptr;
  Return (*name)(Handle, char*, unsigned) = nullptr;
  Return (*uuid)(Handle, char*, unsigned) = nullptr;
  Return (*memory)(Handle, Memory*) = nullptr;
  Return (*capability)(Handle, int*, int*) = nullptr;
  Return (*cores)(Handle, unsigned*) = nullptr;

  bool open(void* library) {
    const auto take = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          dlsym(library, symbol));
      return function != nullptr;
    };
    take(cores, "nvmlDeviceGetNumGpuCores");  // younger than the rest
    return take(init, "nvmlInit_v2") && take(shutdown, "nvmlShutdown") &&
           take(count, "nvmlDeviceGetCount_v2") &&
           take(handle, "nvmlDeviceGetHandleByIndex_v2") &&
           take(name, "nvmlDeviceGetName") && take(uuid, "nvmlDeviceGetUUID") &&
           take(memory, "nvmlDeviceGetMemoryInfo") &&
           take(capability, "nvmlDeviceGetCudaComputeCapability");
  }
};

}  // namespace

bool read_gpus(std::vector<Gpu>& out, std::string& why) {
  out.clear();
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Nvml nvml;
  if (!library || !nvml.open(library)) {
    why =
        "this machine has no NVIDIA driver (libnvidia-ml.so.1 is missing or "
        "too old)";
    return false;
  }
  if (const Return code = nvml.init(); code != 0) {
    why = "the NVIDIA driver does not answer (NVML error " +
          std::to_string(code) + ")";
    return false;
  }
  unsigned n = 0;
  nvml.count(&n);
  for (unsigned i = 0; i < n; ++i) {
    Handle handle = nullptr;
    char name[96] = "";
    char uuid[96] = "";
    Memory memory{};
    Gpu gpu;
    if (nvml.handle(i, &handle) != 0 ||
        nvml.uuid(handle, uuid, sizeof(uuid)) != 0) {
      continue;
    }
    nvml.name(handle, name, sizeof(name));
    nvml.memory(handle, &memory);
    nvml.capability(handle, &gpu.major, &gpu.minor);
    unsigned cores = 0;
    if (nvml.cores) {
      nvml.cores(handle, &cores);
    }
    gpu.name = name;
    gpu.uuid = uuid;
    gpu.memory = memory.total;
    gpu.cores = static_cast<int>(cores);
    out.push_back(gpu);
  }
  nvml.shutdown();
  if (out.empty()) {
    why = "the NVIDIA driver finds no GPU";
    return false;
  }
  return true;
}

}  // namespace npu::cuda
