// SPDX-License-Identifier: Apache-2.0
// Memory of the discrete driver: every device block is a file in memory, mapped
// without rights for callers and with them for worker threads.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "npu/profiler.h"
#include "optional.h"

namespace npu::discrete {
namespace {

constexpr npu_device kPinned = -1;

struct Block {
  uint64_t bytes = 0;
  npu_device device = kPinned;
  char* inside = nullptr;
  char* base = nullptr;  // as callers see it; null: no block
};
std::mutex mutex;
auto& blocks = *new std::map<const char*, Block>;  // threads outlive main
uint64_t used[1 + kDevices];  // pinned, then of each device
std::atomic<uint64_t> to_host_bytes{0}, to_device_bytes{0};

// The block that holds an address, also an interior one.
Block holder(const void* ptr) {
  const std::lock_guard lock(mutex);
  const auto next = blocks.upper_bound(static_cast<const char*>(ptr));
  const Block last = next == blocks.begin() ? Block{} : std::prev(next)->second;
  return last.base && ptr < last.base + last.bytes ? last : Block{};
}

void keep(const Block& block) {
  const std::lock_guard lock(mutex);
  blocks[block.base] = block;
  used[block.device + 1] += block.bytes;
}

npu_status alloc(npu_device device, uint64_t bytes, void** out) {
  NPU_TRY(check_device(device, out));
  const bool fits = bytes > 0 && bytes <= kCapacity - used_memory(device);
  const int file = fits ? memfd_create("npu_discrete", MFD_CLOEXEC) : -1;
  const bool sized = file >= 0 && ftruncate(file, off_t(bytes)) == 0;
  const auto map = [=](int rights) {
    return static_cast<char*>(
        sized ? mmap(nullptr, bytes, rights, MAP_SHARED, file, 0) : MAP_FAILED);
  };
  const Block block{bytes, device, map(PROT_READ | PROT_WRITE), map(PROT_NONE)};
  close(file);
  if (block.inside == MAP_FAILED || block.base == MAP_FAILED) {
    return fail(
        NPU_E_OUT_OF_MEMORY, "no " + std::to_string(bytes) + " bytes left.");
  }
  madvise(block.inside, bytes, MADV_DONTFORK);  // a child has no device
  std::memset(block.inside, 0xFF, bytes);       // NaN in every float
  keep(block);
  *out = block.base;
  return NPU_OK;
}

npu_status host_alloc(uint64_t bytes, void** out) {
  NPU_TRY(check(out));
  if (bytes == 0 || posix_memalign(out, 4096, bytes) != 0) {
    return fail(NPU_E_OUT_OF_MEMORY, "no pinned host memory of that size.");
  }
  keep({bytes, kPinned, nullptr, static_cast<char*>(*out)});
  return NPU_OK;
}

npu_status give_back(npu_device device, void* ptr) {
  NPU_TRY(check());
  const Block block = holder(ptr);
  if (block.base == nullptr || block.base != ptr || block.device != device) {
    return fail(NPU_E_INVALID, "freed what was not allocated there.");
  }
  const std::lock_guard lock(mutex);
  blocks.erase(block.base);
  used[device + 1] -= block.bytes;
  if (device == kPinned) {
    std::free(ptr);
  } else {
    munmap(block.base, block.bytes);
    munmap(block.inside, block.bytes);
  }
  return NPU_OK;
}

// ---- copies ----

bool is_pinned(const void* ptr) {
  const Block block = holder(ptr);
  return block.base != nullptr && block.device == kPinned;
}

npu_status queue_bytes(
    npu_stream stream, void* to, const void* from, uint64_t bytes) {
  return enqueue(
      stream, recorded(stream, {NPU_RECORD_COPY, 0, bytes}, [=](std::string&) {
        std::memcpy(to, from, bytes);
      }));
}

npu_status copy_to_device(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  NPU_TRY(check(stream, dst, src));
  NPU_TRY(check_range(device_of(stream), dst, bytes));
  to_device_bytes += bytes;
  if (is_pinned(src)) {
    return queue_bytes(stream, inside(dst), src, bytes);
  }
  if (bytes == 0) {
    return NPU_OK;  // memcpy takes no null, not even for nothing
  }
  // The caller may reuse ordinary memory at once.
  const auto* first = static_cast<const char*>(src);
  std::vector<char> staged(first, first + bytes);
  return enqueue(
      stream,
      recorded(
          stream,
          {NPU_RECORD_COPY, 0, bytes},
          [staged, to = inside(dst)](std::string&) {
            std::memcpy(to, staged.data(), staged.size());
          }));
}

npu_status copy_to_host(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  NPU_TRY(check(stream, dst, src));
  NPU_TRY(check_range(device_of(stream), src, bytes));
  to_host_bytes += bytes;
  queue_bytes(stream, dst, inside(src), bytes);
  return is_pinned(dst) ? npu_status{NPU_OK} : drain(stream);
}

npu_status copy_peer(
    npu_stream stream,
    npu_device dst_device,
    void* dst,
    npu_device src_device,
    const void* src,
    uint64_t bytes) {
  NPU_TRY(check(stream, dst, src));
  NPU_TRY(check_range(dst_device, dst, bytes));
  NPU_TRY(check_range(src_device, src, bytes));
  return queue_bytes(stream, inside(dst), inside(src), bytes);
}

npu_status set_bytes(
    npu_stream stream, void* dst, int32_t value, uint64_t bytes) {
  NPU_TRY(check(stream, dst));
  NPU_TRY(check_range(device_of(stream), dst, bytes));
  return enqueue(
      stream,
      recorded(
          stream,
          {NPU_RECORD_SET, 0, bytes},
          [=, to = inside(dst)](std::string&) {
            std::memset(to, value, bytes);
          }));
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  NPU_TRY(check(out));
  const Block block = holder(ptr);
  out->kind = block.base == nullptr     ? NPU_MEMORY_UNKNOWN
              : block.device == kPinned ? NPU_MEMORY_HOST
                                        : NPU_MEMORY_DEVICE;
  out->device = block.device;
  out->base = block.base;
  out->bytes = block.bytes;
  return NPU_OK;
}

}  // namespace

npu_status check_range(npu_device device, const void* ptr, uint64_t bytes) {
  NPU_TRY(check_device(device));
  const Block block = holder(ptr);
  const auto at = uint64_t(static_cast<const char*>(ptr) - block.base);
  const bool fits = block.base != nullptr && block.device == device &&
                    bytes <= block.bytes - at;
  return fits || bytes == 0
             ? NPU_OK
             : fail(NPU_E_INVALID, "a range is not in one device block.");
}

char* inside(const void* ptr) {
  const Block block = holder(ptr);
  return block.inside == nullptr
             ? nullptr
             : block.inside + (static_cast<const char*>(ptr) - block.base);
}

uint64_t used_memory(npu_device device) {
  const std::lock_guard lock(mutex);
  return used[device + 1];
}

// clang-format off
const npu_memory_table memory_table = {
    sizeof(memory_table), 0, alloc,
    [](npu_device device, void* ptr) {
      const npu_status status = check_device(device);
      return status ? status : give_back(device, ptr);
    },
    host_alloc, [](void* ptr) { return give_back(kPinned, ptr); },
    copy_to_device, copy_to_host,
    [](npu_stream stream, void* dst, const void* src, uint64_t bytes) {
      const npu_device device = stream ? device_of(stream) : 0;
      return copy_peer(stream, device, dst, device, src, bytes);
    },
    copy_peer,
    set_bytes, pointer_info, nullptr, nullptr};
// clang-format on

}  // namespace npu::discrete

// For tests: bytes that host and device exchanged so far.
extern "C" NPU_EXPORT void npu_discrete_traffic(
    uint64_t* to_host, uint64_t* to_device) {
  *to_host = npu::discrete::to_host_bytes;
  *to_device = npu::discrete::to_device_bytes;
}

// For tests: a write that the host side knows nothing of.
extern "C" NPU_EXPORT void npu_discrete_poke(float* ptr, float value) {
  *reinterpret_cast<float*>(npu::discrete::inside(ptr)) = value;
}
