// SPDX-License-Identifier: Apache-2.0
// Memory of the discrete driver: every device block is a file in memory, mapped
// without rights for callers and with them for worker threads.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "discrete.h"

namespace npu::discrete {
namespace {

constexpr uint64_t kPoisoned = 16 << 20;  // larger blocks stay untouched
constexpr npu_device kPinned = -1;

struct Block {
  uint64_t bytes;
  npu_device device;
  char* inside;
};
std::mutex mutex;
// By address, as callers see it. Never destroyed: threads outlive main.
auto& blocks = *new std::map<const char*, Block>;
uint64_t used[kDevices];

// The block that holds an address, also an interior one. With the mutex held.
auto holder(const void* ptr) {
  auto next = blocks.upper_bound(static_cast<const char*>(ptr));
  return next != blocks.begin() &&
                 ptr < std::prev(next)->first + std::prev(next)->second.bytes
             ? std::prev(next)
             : blocks.end();
}

npu_status alloc(npu_device device, uint64_t bytes, void** out) {
  return then(check_device(device, out), [=]() -> npu_status {
    const std::lock_guard lock(mutex);
    const bool fits = bytes > 0 && bytes <= kCapacity - used[device];
    const int file = fits ? memfd_create("npu_discrete", MFD_CLOEXEC) : -1;
    const bool sized = file >= 0 && ftruncate(file, off_t(bytes)) == 0;
    const auto map = [=](int rights) {
      return sized ? mmap(nullptr, bytes, rights, MAP_SHARED, file, 0)
                   : MAP_FAILED;
    };
    void* const seen = map(PROT_NONE);
    void* const inner = map(PROT_READ | PROT_WRITE);
    close(file);
    if (seen == MAP_FAILED || inner == MAP_FAILED) {
      return fail(
          NPU_E_OUT_OF_MEMORY,
          "no " + std::to_string(bytes) +
              " bytes on npu:" + std::to_string(device) + ", used " +
              std::to_string(used[device]) + ".");
    }
    madvise(inner, bytes, MADV_DONTFORK);  // a child has no device
    blocks[static_cast<char*>(seen)] = {
        bytes, device, static_cast<char*>(inner)};
    used[device] += bytes;
    if (bytes <= kPoisoned) {  // NaN in every float: nobody may depend on it
      std::memset(inner, 0xFF, bytes);
    }
    *out = seen;
    return NPU_OK;
  });
}

npu_status host_alloc(uint64_t bytes, void** out) {
  return then(check(out), [=]() -> npu_status {
    void* ptr = nullptr;
    if (bytes == 0 || posix_memalign(&ptr, 4096, bytes) != 0) {
      return fail(NPU_E_OUT_OF_MEMORY, "no pinned host memory of that size.");
    }
    const std::lock_guard lock(mutex);
    blocks[static_cast<char*>(*out = ptr)] = {bytes, kPinned, nullptr};
    return NPU_OK;
  });
}

npu_status give_back(npu_device device, void* ptr) {
  return then(check(), [=]() -> npu_status {
    const std::lock_guard lock(mutex);
    const auto found = blocks.find(static_cast<char*>(ptr));
    if (found == blocks.end() || found->second.device != device) {
      return fail(NPU_E_INVALID, "freed what was not allocated there.");
    }
    const Block block = found->second;
    blocks.erase(found);
    if (device == kPinned) {
      std::free(ptr);
    } else {
      munmap(ptr, block.bytes);
      munmap(block.inside, block.bytes);
      used[device] -= block.bytes;
    }
    return NPU_OK;
  });
}

// ---- copies ----

bool is_pinned(const void* ptr) {
  const std::lock_guard lock(mutex);
  const auto block = holder(ptr);
  return block != blocks.end() && block->second.device == kPinned;
}

npu_status queue_bytes(
    npu_stream stream, void* to, const void* from, uint64_t bytes) {
  return enqueue(stream, [=](std::string&) { std::memcpy(to, from, bytes); });
}

// The stream and both pointers are there, the first is the device's.
npu_status check_copy(
    npu_stream stream, const void* near, const void* far, uint64_t bytes) {
  return then(check(stream, near, far), [=] {
    return check_range(device_of(stream), near, bytes);
  });
}

npu_status copy_to_device(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  return then(check_copy(stream, dst, src, bytes), [=] {
    if (is_pinned(src)) {
      return queue_bytes(stream, inside(dst), src, bytes);
    }
    // The caller may reuse ordinary memory at once.
    const auto* first = static_cast<const char*>(src);
    std::vector<char> staged(first, first + bytes);
    return enqueue(
        stream, [staged = std::move(staged), to = inside(dst)](std::string&) {
          std::memcpy(to, staged.data(), staged.size());
        });
  });
}

npu_status copy_to_host(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  return then(check_copy(stream, src, dst, bytes), [=] {
    queue_bytes(stream, dst, inside(src), bytes);
    return is_pinned(dst) ? npu_status{NPU_OK} : drain(stream);
  });
}

npu_status copy_peer(
    npu_stream stream,
    npu_device dst_device,
    void* dst,
    npu_device src_device,
    const void* src,
    uint64_t bytes) {
  npu_status status = check(stream, dst, src);
  status = status ? status : check_range(dst_device, dst, bytes);
  status = status ? status : check_range(src_device, src, bytes);
  return then(status, [=] {
    return queue_bytes(stream, inside(dst), inside(src), bytes);
  });
}

npu_status copy_on_device(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  return then(check(stream), [=] {
    const npu_device device = device_of(stream);
    return copy_peer(stream, device, dst, device, src, bytes);
  });
}

npu_status set_bytes(
    npu_stream stream, void* dst, int32_t value, uint64_t bytes) {
  return then(check_copy(stream, dst, dst, bytes), [=] {
    return enqueue(stream, [=, to = inside(dst)](std::string&) {
      std::memset(to, value, bytes);
    });
  });
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  return then(check(out), [=] {
    const std::lock_guard lock(mutex);
    const auto block = holder(ptr);
    const bool known = block != blocks.end();
    out->device = known ? block->second.device : -1;
    out->kind = !known             ? NPU_MEMORY_UNKNOWN
                : out->device >= 0 ? NPU_MEMORY_DEVICE
                                   : NPU_MEMORY_HOST;
    out->base = known ? const_cast<char*>(block->first) : nullptr;
    out->bytes = known ? block->second.bytes : 0;
  });
}

}  // namespace

npu_status check_range(npu_device device, const void* ptr, uint64_t bytes) {
  return then(check_device(device), [=] {
    const std::lock_guard lock(mutex);
    const auto block = holder(ptr);
    const bool fits =
        block != blocks.end() && block->second.device == device &&
        bytes <= block->second.bytes -
                     uint64_t(static_cast<const char*>(ptr) - block->first);
    return fits || bytes == 0
               ? NPU_OK
               : fail(NPU_E_INVALID, "a range is not in one device block.");
  });
}

char* inside(const void* ptr) {
  const std::lock_guard lock(mutex);
  const auto block = holder(ptr);
  return block == blocks.end() || block->second.device == kPinned
             ? nullptr
             : block->second.inside +
                   (static_cast<const char*>(ptr) - block->first);
}

uint64_t used_memory(npu_device device) {
  const std::lock_guard lock(mutex);
  return used[device];
}

// clang-format off
const npu_memory_table memory_table = {
    sizeof(memory_table), 0, alloc,
    [](npu_device device, void* ptr) {
      return then(check_device(device), [=] { return give_back(device, ptr); });
    },
    host_alloc, [](void* ptr) { return give_back(kPinned, ptr); },
    copy_to_device, copy_to_host, copy_on_device, copy_peer,
    set_bytes, pointer_info, nullptr, nullptr};
// clang-format on

}  // namespace npu::discrete
