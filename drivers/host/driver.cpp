// SPDX-License-Identifier: Apache-2.0
// The host driver: this computer as npu devices. Entry and device table.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>

#include "host.h"

namespace npu::host {

npu_status fail(npu_status status, const char* format, ...) noexcept {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  services->set_error(text);
  return status;
}

npu_status shutdown_status() noexcept {
  return fail(
      NPU_E_SHUTDOWN,
      "npu: host driver: used after shutdown or in a forked child. Start "
      "worker processes with the 'spawn' method.");
}

npu_status null_argument() noexcept {
  return fail(
      NPU_E_INVALID, "npu: host driver: an argument is null that must not be.");
}

npu_status exception_status() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(
        NPU_E_OUT_OF_MEMORY,
        "npu: host driver: the process has no memory left.");
  } catch (const std::exception& error) {
    return fail(NPU_E_INTERNAL, "npu: host driver: %s.", error.what());
  } catch (...) {
    return fail(NPU_E_INTERNAL, "npu: host driver: unexpected exception.");
  }
}

npu_status check_device(npu_device device) noexcept {
  return device >= 0 && device < settings.devices
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: host driver: there is no npu:%d "
                   "(NPU_HOST_DEVICES=%d).",
                   device,
                   settings.devices);
}

npu_status parallel_ranges(
    std::int64_t n, std::int64_t grain, npu_range_fn fn, void* context) {
  return on_stream_worker() ? fn(context, 0, n)
                            : services->parallel_for(n, grain, fn, context);
}

namespace {

const char* isa_name() {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<int>(settings.isa)];
}

npu_status count(std::int32_t* out) {
  return entry(given(out), [&] {
    *out = settings.devices;
    return NPU_OK;
  });
}

npu_status open(npu_device device) {
  return entry([&] {
    // Only now: a child of a process that merely counted devices may use them.
    static const int watching =
        pthread_atfork(nullptr, nullptr, [] { alive = false; });
    static_cast<void>(watching);
    // Again at each open: a program may have put its own handler in between.
    if (settings.protect) {
      install_fault_handler();
    }
    return check_device(device);
  });
}

npu_status close(npu_device device) {
  return entry([&] { return check_device(device); });
}

npu_status properties(npu_device device, npu_device_properties* out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    npu_device_properties p{};
    p.size = std::min<std::uint32_t>(sizeof(p), out->size);
    p.host_access = settings.host_access;
    std::snprintf(p.name, sizeof(p.name), "Host CPU");
    std::snprintf(
        p.architecture,
        sizeof(p.architecture),
#if defined(__aarch64__)
        "aarch64 %s",
#else
        "x86_64 %s",
#endif
        isa_name());
    std::memcpy(p.uuid, "opennpu host", 12);
    p.uuid[15] = static_cast<std::uint8_t>(device);
    p.total_memory = settings.capacity;
    p.allocation_alignment = kAlignment;
    p.allocation_granularity = kAlignment;
    p.compute_units = static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN));
    p.integrated = 1;
    p.capability_major = 1;
    p.unified_address = 1;
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    p.l2_bytes = l2 > 0 ? static_cast<std::uint64_t>(l2) : 0;
    std::memcpy(out, &p, p.size);
    return NPU_OK;
  });
}

npu_status synchronize(npu_device device) {
  return entry([&] {
    const npu_status status = check_device(device);
    return status ? status : synchronize_device(device);
  });
}

npu_status memory_info(
    npu_device device, std::uint64_t* free, std::uint64_t* total) {
  return entry(given(free, total), [&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    *total = settings.capacity;
    *free = settings.capacity - used_memory(device);
    return NPU_OK;
  });
}

npu_status can_access_peer(
    npu_device device, npu_device peer, std::int32_t* yes) {
  return entry(given(yes), [&] {
    npu_status status = check_device(device);
    status = status ? status : check_device(peer);
    *yes = status == NPU_OK && device != peer;
    return status;
  });
}

const npu_device_table device_table = {
    sizeof(device_table),
    0,
    count,
    open,
    close,
    properties,
    synchronize,
    memory_info,
    can_access_peer,
    nullptr,
    nullptr,
    nullptr,
};

npu_status shutdown() {
  return entry([] {
    stop_streams();
    alive = false;
    return NPU_OK;
  });
}

// `flags` depend on the settings, so entry completes them.
npu_driver driver = {
    sizeof(driver),
    NPU_ABI,
    "host",
    "OpenNPU",
    "0.1",
    NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE | NPU_TENSOR_HOST_SCALAR |
        NPU_TENSOR_CONJ | NPU_TENSOR_NEG | NPU_TENSOR_ALIAS,
    NPU_CALL_INDEX32 | NPU_CALL_COUNT,
    &device_table,
    &memory_table,
    &stream_table,
    &event_table,
    &op_table,
    nullptr,
    shutdown,
    NPU_DRIVER_DEVICE_IS_CPU,
    0,
    "ascend910b",  // what a program written for Ascend expects to hear
    NPU_PLATFORM_CPU,
};

}  // namespace
}  // namespace npu::host

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    std::uint32_t, const npu_host_services* services, const npu_driver** out) {
  using namespace npu::host;
  npu::host::services = services;
  try {
    if (npu_status status = read_settings()) {
      return status;
    }
  } catch (...) {
    return exception_status();
  }
  if (settings.all_kernels) {
    driver.flags |= NPU_DRIVER_EVERY_KERNEL;
  }
  if (!settings.async) {
    driver.flags |= NPU_DRIVER_INLINE;
  }
  alive = true;
  *out = &driver;
  return NPU_OK;
}
