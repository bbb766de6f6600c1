// SPDX-License-Identifier: Apache-2.0
// The device table. What can be asked before `open` comes from NVML.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "cuda.h"
#include "nvml.h"
#include "visible.h"

namespace npu::cuda {
namespace {

// The GPUs that this process may see, in the order of CUDA_VISIBLE_DEVICES.
struct Machine {
  std::vector<Gpu> gpus;
  std::unique_ptr<Device[]> devices;
  std::string why;  // there is none

  Machine() {
    std::vector<Gpu> all;
    if (!read_gpus(all, why)) {
      return;
    }
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    // A part of a GPU: CUDA uses the first that is named.
    const char* const part = visible ? std::strstr(visible, "MIG-") : nullptr;
    if (part == visible && visible) {
      gpus.push_back(all.front());
    } else {
      std::vector<std::string> uuids;
      for (const Gpu& gpu : all) {
        uuids.push_back(gpu.uuid);
      }
      for (const int i : visible_devices(visible, uuids)) {
        gpus.push_back(all[static_cast<std::size_t>(i)]);
      }
    }
    if (gpus.empty()) {
      why = std::string("CUDA_VISIBLE_DEVICES='") + visible +
            "' names none of the " + std::to_string(all.size()) +
            " GPU(s) of this machine";
    }
    devices = std::make_unique<Device[]>(gpus.size());
  }
};

Machine& machine() {
  static Machine one;
  return one;
}

std::uint8_t hex(char c) {
  return static_cast<std::uint8_t>(
      c >= '0' && c <= '9'   ? c - '0'
      : c >= 'a' && c <= 'f' ? c - 'a' + 10
      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                             : 0);
}

// "GPU-8c3f9a62-..." as 16 bytes.
void uuid_bytes(const std::string& text, std::uint8_t* out) {
  std::size_t n = 0;
  for (std::size_t i = text.find('-') + 1; i + 1 < text.size() && n < 16;) {
    if (text[i] == '-') {
      ++i;
      continue;
    }
    out[n++] = static_cast<std::uint8_t>(hex(text[i]) << 4 | hex(text[i + 1]));
    i += 2;
  }
}

// Cores that NVML counts in one multiprocessor.
int cores_each(int major, int minor) {
  return (major == 8 && minor > 0) || major > 8 || (major == 6 && minor > 0)
             ? 128
             : 64;
}

npu_status count(std::int32_t* out) {
  return entry([&]() -> npu_status {
    if (!out) {
      return null_argument();
    }
    *out = static_cast<std::int32_t>(machine().gpus.size());
    if (*out == 0) {
      // Not an error; the text is kept for callers that ask why.
      fail(
          NPU_OK,
          "npu: cuda driver: there is no GPU to use: %s.",
          machine().why.c_str());
    }
    return NPU_OK;
  });
}

npu_status open_device(npu_device number) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Device& device = device_at(number);
  if (device.open) {
    return NPU_OK;
  }
  // Only now: a child of a process that merely counted devices may use them.
  static const int watching =
      pthread_atfork(nullptr, nullptr, [] { alive = false; });
  static_cast<void>(watching);
  const OnDevice on(number);
  NPU_CUDA(cudaSetDevice(number), "opening the GPU");
  NPU_CUDA(cudaFree(nullptr), "opening the GPU");
  NPU_CUDA(
      cudaGetDeviceProperties(&device.properties, number), "reading the GPU");
  NPU_CUDA(
      cudaDeviceGetStreamPriorityRange(
          &device.least_priority, &device.greatest_priority),
      "reading the GPU");
  if (npu_status status = load_kernels()) {
    return status;
  }
  device.open = true;
  return NPU_OK;
}

npu_status open(npu_device device) {
  return entry(true, [&]() -> npu_status {
    const npu_status status = check_device(device);
    return status ? status : open_device(device);
  });
}

npu_status close(npu_device device) {
  return entry([&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    drop_event_pool(device);
    return NPU_OK;  // the context may be shared with other libraries
  });
}

npu_status properties(npu_device device, npu_device_properties* out) {
  return entry([&]() -> npu_status {
    if (!out) {
      return null_argument();
    }
    if (npu_status status = check_device(device)) {
      return status;
    }
    const Gpu& gpu = machine().gpus[static_cast<std::size_t>(device)];
    npu_device_properties p{};
    p.size = std::min<std::uint32_t>(sizeof(p), out->size);
    p.host_access = NPU_HOST_ACCESS_NONE;
    p.allocation_alignment = 256;
    p.allocation_granularity = 512;
    p.unified_address = 1;
    p.capability_major = gpu.major;
    p.capability_minor = gpu.minor;
    p.total_memory = gpu.memory;
    p.compute_units = static_cast<std::uint32_t>(
        gpu.cores / cores_each(gpu.major, gpu.minor));
    uuid_bytes(gpu.uuid, p.uuid);
    std::snprintf(p.name, sizeof(p.name), "%s", gpu.name.c_str());
    const Device& known = device_at(device);
    if (known.open) {
      // CUDA's own numbering counts where it differs from the bus numbers.
      const cudaDeviceProp& cuda = known.properties;
      std::snprintf(p.name, sizeof(p.name), "%.63s", cuda.name);
      std::memcpy(p.uuid, cuda.uuid.bytes, sizeof(p.uuid));
      p.total_memory = cuda.totalGlobalMem;
      p.compute_units = static_cast<std::uint32_t>(cuda.multiProcessorCount);
      p.integrated = cuda.integrated ? 1 : 0;
      p.capability_major = cuda.major;
      p.capability_minor = cuda.minor;
      p.l2_bytes = static_cast<std::uint64_t>(cuda.l2CacheSize);
      p.shared_memory_per_block =
          static_cast<std::uint32_t>(cuda.sharedMemPerBlockOptin);
      int clock = 0;
      cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device);
      p.clock_khz = static_cast<std::uint32_t>(clock);
    }
    std::snprintf(
        p.architecture,
        sizeof(p.architecture),
        "sm_%d%d",
        p.capability_major,
        p.capability_minor);
    std::memcpy(out, &p, p.size);
    return NPU_OK;
  });
}

npu_status synchronize(npu_device device) {
  return entry(true, [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    const OnDevice on(device);
    NPU_CUDA(cudaDeviceSynchronize(), "waiting for the GPU");
    return take_errors(device);
  });
}

npu_status memory_info(
    npu_device device, std::uint64_t* free, std::uint64_t* total) {
  return entry(given(free, total), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    const OnDevice on(device);
    std::size_t left = 0;
    std::size_t all = 0;
    NPU_CUDA(cudaMemGetInfo(&left, &all), "asking for free memory");
    *free = left;
    *total = all;
    return NPU_OK;
  });
}

npu_status can_access_peer(
    npu_device device, npu_device peer, std::int32_t* yes) {
  return entry(given(yes), [&]() -> npu_status {
    npu_status status = check_device(device);
    status = status ? status : check_device(peer);
    if (status) {
      return status;
    }
    int can = 0;
    if (device != peer) {
      NPU_CUDA(
          cudaDeviceCanAccessPeer(&can, device, peer), "asking about a peer");
    }
    *yes = can;
    return NPU_OK;
  });
}

npu_status trim(npu_device device) {
  return entry(true, [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    drop_event_pool(device);
    return NPU_OK;
  });
}

npu_status enable_peer(npu_device device, npu_device peer) {
  return entry(true, [&]() -> npu_status {
    npu_status status = check_open(device);
    status = status ? status : check_open(peer);
    if (status) {
      return status;
    }
    const OnDevice on(device);
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
      return NPU_OK;
    }
    return cuda_status(error, "letting a GPU read another's memory");
  });
}

}  // namespace

const npu_device_table device_table = {
    .size = sizeof(npu_device_table),
    .reserved = 0,
    .count = count,
    .open = open,
    .close = close,
    .properties = properties,
    .synchronize = synchronize,
    .memory_info = memory_info,
    .can_access_peer = can_access_peer,
    .trim = trim,
    .enable_peer = enable_peer,
    .native_handle = nullptr,
};

int device_count() {
  return static_cast<int>(machine().gpus.size());
}

Device& device_at(npu_device device) noexcept {
  return machine().devices[static_cast<std::size_t>(device)];
}

npu_device any_device() noexcept {
  for (int i = 0; i < device_count(); ++i) {
    if (device_at(i).open) {
      return i;
    }
  }
  return 0;
}

npu_status check_device(npu_device device) noexcept {
  return device >= 0 && device < device_count()
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: cuda driver: there is no npu:%d: %d GPU(s) can be "
                   "used%s%s.",
                   device,
                   device_count(),
                   machine().why.empty() ? "" : ", ",
                   machine().why.c_str());
}

npu_status check_open(npu_device device) noexcept {
  if (npu_status status = check_device(device)) {
    return status;
  }
  return device_at(device).open
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: cuda driver: npu:%d is used before it was opened.",
                   device);
}

}  // namespace npu::cuda
