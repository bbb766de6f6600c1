// SPDX-License-Identifier: Apache-2.0
// Device memory with a capacity, pinned memory, and the map of both.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "host.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace npu::host {
namespace {

constexpr std::uint64_t kHugePage = UINT64_C(2) << 20;
constexpr std::uint64_t kRedzone = 512;
constexpr unsigned char kRedzoneByte = 0xA5;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHeapOnly = true;  // the sanitizer watches the heap only
#else
constexpr bool kHeapOnly = false;
#endif

struct Map {
  std::shared_mutex mutex;
  std::map<const char*, Block> blocks;  // by base
  std::atomic<std::uint64_t> removals{0};
};
// Never destroyed: worker threads may outlive static destructors.
Map& map() {
  static Map& instance = *new Map;
  return instance;
}
std::atomic<std::uint64_t> used[64];

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  return bytes;
}

// Pages aligned to `alignment`: maps more and gives the ends back.
char* map_pages(std::uint64_t bytes, std::uint64_t alignment, int access) {
  const std::uint64_t extra = alignment > page_bytes() ? alignment : 0;
  void* start =
      mmap(nullptr, bytes + extra, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return nullptr;
  }
  char* begin = static_cast<char*>(start);
  if (extra == 0) {
    return begin;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uint64_t head = round_up(address, alignment) - address;
  if (head != 0) {
    munmap(begin, head);
  }
  if (extra != head) {
    munmap(begin + head + bytes, extra - head);
  }
  return begin + head;
}

bool allocate_block(Block& block, bool protect) {
  const std::uint64_t whole = block.bytes + (settings.redzone ? kRedzone : 0);
  if (protect) {
    block.mapped = round_up(whole, page_bytes());
    block.base = map_pages(block.mapped, page_bytes(), PROT_NONE);
  } else if (!kHeapOnly && whole >= kHugePage) {
    block.mapped = round_up(whole, page_bytes());
    block.base = map_pages(block.mapped, kHugePage, PROT_READ | PROT_WRITE);
    if (block.base) {
      // Fewer page faults; not having huge pages is no error.
      madvise(block.base, block.mapped, MADV_HUGEPAGE);
    }
  } else {
    void* ptr = nullptr;
    block.mapped = 0;
    if (posix_memalign(&ptr, kAlignment, whole) == 0) {
      block.base = static_cast<char*>(ptr);
    }
  }
  return block.base != nullptr;
}

void free_block(const Block& block) {
  if (block.mapped != 0) {
    munmap(block.base, block.mapped);
  } else {
    std::free(block.base);
  }
}

npu_status write_redzone(const Block& block) {
  char* end = block.base + block.bytes;
  PageGuard guard;
  if (npu_status status =
          guard.open(block.base, block.bytes + kRedzone, NPU_ACCESS_WRITE)) {
    return status;
  }
  std::memset(end, kRedzoneByte, kRedzone);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(end, kRedzone);
#endif
  return NPU_OK;
}

npu_status check_redzone(const Block& block) {
  const char* end = block.base + block.bytes;
  PageGuard guard;
  if (npu_status status =
          guard.open(block.base, block.bytes + kRedzone, NPU_ACCESS_READ)) {
    return status;
  }
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(end, kRedzone);
#endif
  for (std::uint64_t i = 0; i < kRedzone; ++i) {
    if (static_cast<unsigned char>(end[i]) != kRedzoneByte) {
      return fail(
          NPU_E_INTERNAL,
          "npu: host driver: the block of %llu bytes at %p was written %llu "
          "bytes past its end.",
          static_cast<unsigned long long>(block.bytes),
          static_cast<void*>(block.base),
          static_cast<unsigned long long>(i) + 1);
    }
  }
  return NPU_OK;
}

npu_status out_of_memory(npu_device device, std::uint64_t bytes) {
  return fail(
      NPU_E_OUT_OF_MEMORY,
      "npu: host driver: cannot allocate %llu bytes on npu:%d (used %llu, "
      "capacity %llu). Free memory, or raise NPU_HOST_MEMORY.",
      static_cast<unsigned long long>(bytes),
      device,
      static_cast<unsigned long long>(used_memory(device)),
      static_cast<unsigned long long>(settings.capacity));
}

// Takes `bytes` from the capacity of a device, if they fit.
bool charge(npu_device device, std::uint64_t bytes) {
  std::atomic<std::uint64_t>& counter = used[device];
  std::uint64_t now = counter.load(std::memory_order_relaxed);
  do {
    if (bytes > settings.capacity - now) {
      return false;
    }
  } while (!counter.compare_exchange_weak(now, now + bytes));
  return true;
}

std::uint64_t charged(const Block& block) {
  return block.device < 0 ? 0 : round_up(block.bytes, kAlignment);
}

void insert_block(const Block& block) {
  const std::unique_lock lock(map().mutex);
  map().blocks.emplace(block.base, block);
}

// Puts a new block into the map; on failure the block is freed again.
npu_status register_block(const Block& block, void** out) {
  try {
    insert_block(block);
  } catch (...) {
    free_block(block);
    if (block.device >= 0) {
      used[block.device] -= charged(block);
    }
    throw;
  }
  const npu_status status = settings.redzone ? write_redzone(block) : NPU_OK;
  *out = status == NPU_OK ? block.base : nullptr;
  return status;
}

npu_status alloc(npu_device device, std::uint64_t bytes, void** out) {
  return entry(given(out), [&]() -> npu_status {
    if (npu_status status = check_device(device)) {
      return status;
    }
    if (bytes == 0) {
      return fail(NPU_E_INVALID, "npu: host driver: alloc of 0 bytes.");
    }
    // Before rounding: a request near 2^64 would wrap around.
    if (bytes > settings.capacity ||
        !charge(device, round_up(bytes, kAlignment))) {
      return out_of_memory(device, bytes);
    }
    Block block{nullptr, bytes, 0, device};
    if (!allocate_block(block, settings.protect)) {
      used[device] -= charged(block);
      return out_of_memory(device, bytes);
    }
    return register_block(block, out);
  });
}

npu_status host_alloc(std::uint64_t bytes, void** out) {
  return entry(given(out), [&]() -> npu_status {
    if (bytes == 0) {
      return fail(NPU_E_INVALID, "npu: host driver: host_alloc of 0 bytes.");
    }
    Block block{nullptr, bytes, 0, -1};
    if (bytes > (UINT64_C(1) << 47) || !allocate_block(block, false)) {
      return fail(
          NPU_E_OUT_OF_MEMORY,
          "npu: host driver: cannot allocate %llu bytes of pinned memory.",
          static_cast<unsigned long long>(bytes));
    }
    return register_block(block, out);
  });
}

// Under the lock.
void erase_block(const char* base) {
  map().blocks.erase(base);
  map().removals.fetch_add(1, std::memory_order_release);
}

npu_status release(npu_device device, void* ptr) {
  Block block;
  {
    const std::unique_lock lock(map().mutex);
    const auto found = map().blocks.find(static_cast<const char*>(ptr));
    if (found == map().blocks.end() || found->second.device != device) {
      return fail(
          NPU_E_INVALID,
          device < 0 ? "npu: host driver: host_free of %p, which host_alloc "
                       "did not return."
                     : "npu: host driver: free of %p, which alloc did not "
                       "return for that device.",
          ptr);
    }
    block = found->second;
    if (!settings.redzone) {
      erase_block(block.base);
    }
  }
  npu_status status = NPU_OK;
  if (settings.redzone) {
    status = check_redzone(block);
    const std::unique_lock lock(map().mutex);
    erase_block(block.base);
  }
  if (settings.protect && device >= 0) {
    forget_pages(block.base, block.mapped);
  }
  free_block(block);
  if (device >= 0) {
    used[device] -= charged(block);
  }
  return status;
}

npu_status free_device(npu_device device, void* ptr) {
  return entry([&] {
    const npu_status status = check_device(device);
    return status ? status : release(device, ptr);
  });
}

npu_status host_free(void* ptr) {
  return entry([&] { return release(-1, ptr); });
}

bool look_up(const void* ptr, Block& out) {
  const auto& blocks = map().blocks;
  auto next = blocks.upper_bound(static_cast<const char*>(ptr));
  if (next == blocks.begin()) {
    return false;
  }
  const Block& block = std::prev(next)->second;
  if (static_cast<const char*>(ptr) >= block.base + block.bytes) {
    return false;
  }
  out = block;
  return true;
}

// The block this thread looked up last; most lookups hit it again.
struct LastBlock {
  std::uint64_t removals = 0;
  Block block;
};
thread_local LastBlock last_block;

bool holds(const Block& block, const void* ptr, std::uint64_t bytes) {
  const auto offset =
      static_cast<std::uint64_t>(static_cast<const char*>(ptr) - block.base);
  return offset <= block.bytes && bytes <= block.bytes - offset;
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  return entry(given(out), [&] {
    Block block;
    const bool known = find_block(ptr, block);
    out->kind = !known             ? NPU_MEMORY_UNKNOWN
                : block.device < 0 ? NPU_MEMORY_HOST
                                   : NPU_MEMORY_DEVICE;
    out->device = block.device < 0 ? -1 : block.device;
    out->base = block.base;
    out->bytes = block.bytes;
    return NPU_OK;
  });
}

// Pages wholly inside the range: others may hold a neighbour's bytes. MADV_FREE
// takes nothing while the system has memory, so using the range again is free.
void discard_pages(const Block& block, char* ptr, std::uint64_t bytes) {
#if defined(MADV_FREE)
  if (block.mapped == 0) {
    return;  // the heap may keep its own records there
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(ptr);
  const std::uint64_t head = round_up(begin, page_bytes()) - begin;
  const std::uint64_t end = (begin + bytes) / page_bytes() * page_bytes();
  if (begin + head < end) {
    madvise(ptr + head, end - begin - head, MADV_FREE);
  }
#else
  static_cast<void>(block), static_cast<void>(ptr), static_cast<void>(bytes);
#endif
}

npu_status discard(npu_stream stream, void* ptr, std::uint64_t bytes) {
  return entry(given(stream, ptr), [&]() -> npu_status {
    if (npu_status status =
            check_range("discard", stream_device(stream), ptr, bytes)) {
      return status;
    }
    if (!is_idle(stream)) {
      return NPU_NOT_READY;
    }
    Block block;
    if (find_block(ptr, block)) {
      discard_pages(block, static_cast<char*>(ptr), bytes);
    }
    return NPU_OK;
  });
}

npu_status host_register(void* ptr, std::uint64_t bytes) {
  return entry(given(ptr), [&]() -> npu_status {
    if (settings.protect) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: host driver: host_register: only memory that the driver "
          "allocated can be "
          "protected. Unset NPU_HOST_PROTECT.");
    }
    char* const begin = static_cast<char*>(ptr);
    const std::unique_lock lock(map().mutex);
    auto& blocks = map().blocks;
    const auto next = blocks.lower_bound(begin + bytes);
    if (bytes == 0 ||
        (next != blocks.begin() &&
         std::prev(next)->second.base + std::prev(next)->second.bytes >
             begin)) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: host_register: %llu bytes at %p are none, or "
          "known already.",
          static_cast<unsigned long long>(bytes),
          ptr);
    }
    blocks[begin] = {begin, bytes, 0, kRegistered};
    return NPU_OK;
  });
}

npu_status host_unregister(void* ptr) {
  return entry([&]() -> npu_status {
    const std::unique_lock lock(map().mutex);
    const auto found = map().blocks.find(static_cast<const char*>(ptr));
    if (found == map().blocks.end() || found->second.device != kRegistered) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: host_unregister of %p, which is not registered.",
          ptr);
    }
    erase_block(found->second.base);
    return NPU_OK;
  });
}

// With coherent memory both are allowed and have nothing to do.
npu_status host_open(void* ptr, std::uint64_t bytes, std::uint32_t access) {
  return entry([&] {
    return settings.protect ? open_pages(ptr, bytes, access) : NPU_OK;
  });
}

npu_status host_close(void* ptr, std::uint64_t bytes, std::uint32_t access) {
  return entry([&] {
    return settings.protect ? close_pages(ptr, bytes, access) : NPU_OK;
  });
}

}  // namespace

bool find_block(const void* ptr, Block& out) noexcept {
  const std::shared_lock lock(map().mutex);
  return look_up(ptr, out);
}

bool try_find_block(const void* ptr, Block& out) noexcept {
  const std::shared_lock lock(map().mutex, std::try_to_lock);
  return lock.owns_lock() && look_up(ptr, out);
}

npu_status check_range(
    const char* where,
    npu_device device,
    const void* ptr,
    std::uint64_t bytes) {
  LastBlock& last = last_block;
  const std::uint64_t removals = map().removals.load(std::memory_order_acquire);
  if (last.removals != removals || !holds(last.block, ptr, bytes)) {
    last = {removals, {}};
    find_block(ptr, last.block);
  }
  const Block& block = last.block;
  const bool here = block.device >= 0 && (device < 0 || block.device == device);
  if ((here || block.device == kRegistered) && holds(block, ptr, bytes)) {
    return NPU_OK;
  }
  char owner[24] = "device memory";
  if (device >= 0) {
    std::snprintf(owner, sizeof(owner), "npu:%d", device);
  }
  return fail(
      NPU_E_INVALID,
      "npu: host driver: %s: %llu bytes at %p are not in one block of %s.",
      where,
      static_cast<unsigned long long>(bytes),
      ptr,
      owner);
}

std::uint64_t used_memory(npu_device device) noexcept {
  return used[device].load(std::memory_order_relaxed);
}

const npu_memory_table memory_table = {
    sizeof(memory_table),
    0,
    alloc,
    free_device,
    host_alloc,
    host_free,
    copy_to_device,
    copy_to_host,
    copy_on_device,
    copy_peer,
    set_bytes,
    pointer_info,
    host_open,
    host_close,
    host_register,
    host_unregister,
    discard,
};

}  // namespace npu::host
