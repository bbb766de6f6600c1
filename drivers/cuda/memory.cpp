// SPDX-License-Identifier: Apache-2.0
// Blocks of device and of pinned memory, and what a pointer is.
#include <algorithm>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "cuda.h"

namespace npu::cuda {
namespace {

std::shared_mutex mutex;
std::map<const char*, Block>& blocks() {
  static auto* const all = new std::map<const char*, Block>;  // for exit code
  return *all;
}

void add(const Block& block) {
  const std::unique_lock lock(mutex);
  blocks()[block.base] = block;
}

// The driver's own block; false when there is none.
bool find_own(const void* ptr, Block& out) {
  const std::shared_lock lock(mutex);
  auto next = blocks().upper_bound(static_cast<const char*>(ptr));
  if (next == blocks().begin()) {
    return false;
  }
  const Block& block = std::prev(next)->second;
  if (static_cast<const char*>(ptr) >= block.base + block.bytes) {
    return false;
  }
  out = block;
  return true;
}

// Takes the block that begins at `ptr` out of the list; false when it is none
// of that kind.
template <class Is>
bool remove(const void* ptr, Is is) {
  const std::unique_lock lock(mutex);
  const auto found = blocks().find(static_cast<const char*>(ptr));
  if (found == blocks().end() || !is(found->second)) {
    return false;
  }
  blocks().erase(found);
  return true;
}

npu_status no_block(const char* what, const void* ptr) {
  return fail(
      NPU_E_INVALID,
      "npu: cuda driver: %s: %p is not the start of such a block.",
      what,
      ptr);
}

npu_status alloc(npu_device device, std::uint64_t bytes, void** out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    if (bytes > device_at(device).properties.totalGlobalMem) {
      return fail(
          NPU_E_OUT_OF_MEMORY,
          "npu: cuda driver: %llu bytes are more than npu:%d has.",
          static_cast<unsigned long long>(bytes),
          device);
    }
    const OnDevice on(device);
    void* ptr = nullptr;
    NPU_CUDA(
        cudaMalloc(&ptr, std::max<std::uint64_t>(bytes, 1)),
        "taking memory of the GPU");
    add({static_cast<char*>(ptr), std::max<std::uint64_t>(bytes, 1), device});
    *out = ptr;
    return NPU_OK;
  });
}

npu_status free_block(npu_device device, void* ptr) {
  return entry(given(ptr), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    if (!remove(ptr, [&](const Block& b) { return b.device == device; })) {
      return no_block("free", ptr);
    }
    const OnDevice on(device);
    NPU_CUDA(cudaFree(ptr), "giving memory back to the GPU");
    return NPU_OK;
  });
}

npu_status host_alloc(std::uint64_t bytes, void** out) {
  return entry(given(out), [&]() -> npu_status {
    const OnDevice on(any_device());
    void* ptr = nullptr;
    const cudaError_t error = cudaHostAlloc(
        &ptr,
        std::max<std::uint64_t>(bytes, 1),
        cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaErrorMemoryAllocation || error == cudaErrorInvalidValue) {
      static_cast<void>(cudaGetLastError());
      return fail(
          NPU_E_OUT_OF_MEMORY,
          "npu: cuda driver: the computer has no %llu bytes to pin.",
          static_cast<unsigned long long>(bytes));
    }
    NPU_CUDA(error, "taking pinned memory");
    add({static_cast<char*>(ptr), std::max<std::uint64_t>(bytes, 1), -1});
    *out = ptr;
    return NPU_OK;
  });
}

npu_status host_free(void* ptr) {
  return entry(given(ptr), [&]() -> npu_status {
    const auto ours = [](const Block& b) {
      return b.device < 0 && !b.registered;
    };
    if (!remove(ptr, ours)) {
      return no_block("host_free", ptr);
    }
    const OnDevice on(any_device());
    NPU_CUDA(cudaFreeHost(ptr), "giving pinned memory back");
    return NPU_OK;
  });
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  return entry([&]() -> npu_status {
    if (!out) {
      return null_argument();
    }
    npu_pointer_info info{};
    info.size = std::min<std::uint32_t>(sizeof(info), out->size);
    info.kind = NPU_MEMORY_UNKNOWN;
    info.device = -1;
    Block block;
    if (ptr && find_block(ptr, block)) {
      info.kind = block.device >= 0 ? NPU_MEMORY_DEVICE : NPU_MEMORY_HOST;
      info.device = block.device;
      info.base = block.base;
      info.bytes = block.bytes;
    }
    std::memcpy(out, &info, info.size);
    return NPU_OK;
  });
}

npu_status host_register(void* ptr, std::uint64_t bytes) {
  return entry(given(ptr), [&]() -> npu_status {
    char* const base = static_cast<char*>(ptr);
    {
      const std::shared_lock lock(mutex);
      auto next = blocks().lower_bound(base + bytes);
      if (bytes == 0 ||
          (next != blocks().begin() &&
           std::prev(next)->second.base + std::prev(next)->second.bytes >
               base)) {
        return fail(
            NPU_E_INVALID,
            "npu: cuda driver: host_register: the range is empty, or part of "
            "it is pinned already.");
      }
    }
    const OnDevice on(any_device());
    const cudaError_t error = cudaHostRegister(
        ptr, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error == cudaErrorNotSupported) {
      static_cast<void>(cudaGetLastError());
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: cuda driver: this system does not let CUDA pin memory.");
    }
    if (error == cudaErrorHostMemoryAlreadyRegistered) {
      static_cast<void>(cudaGetLastError());
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: host_register: part of it is pinned already.");
    }
    NPU_CUDA(error, "pinning memory");
    add({base, bytes, -1, true});
    return NPU_OK;
  });
}

npu_status host_unregister(void* ptr) {
  return entry(given(ptr), [&]() -> npu_status {
    if (!remove(ptr, [](const Block& b) { return b.registered; })) {
      return no_block("host_unregister", ptr);
    }
    const OnDevice on(any_device());
    NPU_CUDA(cudaHostUnregister(ptr), "unpinning memory");
    return NPU_OK;
  });
}

// cuMemGetAddressRange: the runtime has no function for it.
using AddressRange =
    int (*)(unsigned long long*, std::size_t*, unsigned long long);

AddressRange address_range() {
  static const AddressRange function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuMemGetAddressRange", &found, 12000, cudaEnableDefault, &result);
    static_cast<void>(cudaGetLastError());
    return error == cudaSuccess ? reinterpret_cast<AddressRange>(found)
                                : nullptr;
  }();
  return function;
}

// Memory that another library took from CUDA.
bool find_foreign(const void* ptr, Block& out) {
  if (!device_at(any_device()).open) {
    return false;
  }
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, ptr) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  const bool pinned = attributes.type == cudaMemoryTypeHost;
  if (attributes.type != cudaMemoryTypeDevice &&
      attributes.type != cudaMemoryTypeManaged && !pinned) {
    return false;
  }
  out = {
      static_cast<char*>(const_cast<void*>(ptr)),
      1,
      pinned ? -1 : attributes.device,
      false};
  unsigned long long base = 0;
  std::size_t bytes = 0;
  const AddressRange range = address_range();
  if (range &&
      range(&base, &bytes, reinterpret_cast<std::uintptr_t>(ptr)) == 0) {
    out.base = reinterpret_cast<char*>(base);
    out.bytes = bytes;
  } else {
    // Its end is not known: CUDA itself has to refuse what goes too far.
    out.bytes = UINT64_MAX - reinterpret_cast<std::uintptr_t>(ptr);
  }
  return true;
}

}  // namespace

bool find_block(const void* ptr, Block& out) noexcept {
  return find_own(ptr, out) || (device_count() > 0 && find_foreign(ptr, out));
}

bool is_pinned(const void* ptr) noexcept {
  Block block;
  return find_block(ptr, block) && block.device < 0;
}

const npu_memory_table memory_table = {
    .size = sizeof(npu_memory_table),
    .reserved = 0,
    .alloc = alloc,
    .free = free_block,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .copy_on_device = copy_on_device,
    .copy_peer = copy_peer,
    .set_bytes = set_bytes,
    .pointer_info = pointer_info,
    .host_open = nullptr,
    .host_close = nullptr,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .discard = nullptr,
};

}  // namespace npu::cuda
