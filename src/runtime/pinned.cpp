// SPDX-License-Identifier: Apache-2.0
// Pinned host memory, cached; freed blocks wait for the copies that use them.
#include "runtime/pinned.h"

#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {
namespace {

// Which addresses are pinned: PyTorch's cache has no such query.
class Registry {
 public:
  void add(const void* base, std::size_t bytes) {
    const std::unique_lock lock(mutex_);
    blocks_[base] = bytes;
    count_.store(blocks_.size());
  }
  bool remove(const void* base) {
    const std::unique_lock lock(mutex_);
    const bool known = blocks_.erase(base) != 0;
    count_.store(blocks_.size());
    return known;
  }
  // False when a block overlaps [base, base + bytes).
  bool add_new(const void* base, std::size_t bytes) {
    const char* const end = static_cast<const char*>(base) + bytes;
    const std::unique_lock lock(mutex_);
    const auto next = blocks_.lower_bound(end);
    if (next != blocks_.begin()) {
      const auto& [before, length] = *std::prev(next);
      if (static_cast<const char*>(before) + length > base) {
        return false;
      }
    }
    blocks_[base] = bytes;
    count_.store(blocks_.size());
    return true;
  }
  // The start of the block `ptr` lies in, or nullptr.
  const void* find(const void* ptr) const {
    if (count_.load(std::memory_order_relaxed) == 0) {
      return nullptr;
    }
    const std::shared_lock lock(mutex_);
    auto next = blocks_.upper_bound(ptr);
    if (next == blocks_.begin()) {
      return nullptr;
    }
    const auto& [base, bytes] = *--next;
    const char* const end = static_cast<const char*>(base) + bytes;
    return static_cast<const char*>(ptr) < end ? base : nullptr;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<const void*, std::size_t, std::less<>> blocks_;
  std::atomic<std::size_t> count_{0};
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// Memory of the program's own that it declared pinned.
Registry& registered_memory() {
  static auto* const instance = new Registry;
  return *instance;
}

// The cache is PyTorch's; what touches the driver is here.
class PinnedCache final
    : public at::CachingHostAllocatorImpl<c10::Stream, Event> {
 public:
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  using Block = at::HostBlock<c10::Stream>;

  void allocate_host_memory(std::size_t bytes, void** ptr) override {
    init();
    const auto alloc = active_driver().memory().host_alloc;
    npu_status status = alloc(bytes, ptr);
    if (status == NPU_E_OUT_OF_MEMORY) {
      empty_cache();
      status = alloc(bytes, ptr);
    }
    if (status != NPU_OK) {
      const std::string what =
          "allocate " + std::to_string(bytes) + " bytes of pinned host memory";
      check_driver(status, what.c_str());
    }
    registry().add(*ptr, bytes);
  }

  void free_block(Block* block) override {
    registry().remove(block->ptr_);
    if (active_driver().memory().host_free(block->ptr_) != NPU_OK) {
      log(NPU_LOG_WARNING, "npu: pinned: the driver could not free a block");
    }
  }

  // Runs inside a deleter, so it must not throw. Without its event the block
  // is never handed out again: lost, but not overwritten under a copy.
  void record_stream(
      std::optional<std::vector<Event>>& events, c10::Stream stream) override {
    try {
      Event event;
      event.record(stream);
      events->push_back(std::move(event));
    } catch (const std::exception& e) {
      log(NPU_LOG_WARNING,
          std::string("npu: pinned: a block is given up: ") + e.what());
    }
  }

  // The cache waits, not the program.
  bool query_event(Event& event) override {
    const sanitizer::Quiet quiet;
    return event.query();
  }

  c10::Stream get_current_stream() const override {
    return current_stream();
  }

  bool stream_is_capturing(c10::Stream /*stream*/) const override {
    return false;
  }
};

void free_pinned(void* context);

class PinnedAllocator final
    : public at::CachingHostAllocatorInterface<PinnedCache, free_pinned> {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    at::DataPtr memory = CachingHostAllocatorInterface::allocate(bytes);
    sanitizer::on_idle_memory(sanitizer::kHostMemory, memory.get(), bytes);
    return memory;
  }
};

// Leaked: tensors that outlive static destructors are still freed through it.
PinnedAllocator& instance() {
  static auto* const allocator = new PinnedAllocator;
  return *allocator;
}

void free_pinned(void* context) {
  if (!in_bad_fork()) {
    instance().free(context);
  }
}

const at::HostAllocatorRegistry<kDeviceType> host_allocator_registered(
    &instance());

}  // namespace

at::HostAllocator* pinned_allocator() noexcept {
  return &instance();
}

bool is_pinned(const void* ptr) noexcept {
  return registry().find(ptr) != nullptr ||
         registered_memory().find(ptr) != nullptr;
}

bool register_host_memory(void* ptr, std::size_t bytes) {
  return ptr != nullptr && bytes != 0 && !is_pinned(ptr) &&
         registered_memory().add_new(ptr, bytes);
}

bool unregister_host_memory(void* ptr) {
  return registered_memory().remove(ptr);
}

void record_pinned(const void* ptr, void* context, c10::Stream stream) {
  // The cache knows blocks by their start only.
  if (const void* const base = registry().find(ptr)) {
    instance().record_event(const_cast<void*>(base), context, stream);
  }
}

}  // namespace npu
