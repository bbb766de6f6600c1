// SPDX-License-Identifier: Apache-2.0
// The CPU allocator shim.
#include "aten/twin/shim.h"

#include <c10/core/CPUAllocator.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/allocator/allocator.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu::twin {
namespace {

// Every CPU allocation of the process reads this: keep it one load.
thread_local ShimState state;

c10::Allocator* original = nullptr;

// Blocks handed out to host code and not yet taken back; only used where
// memory has to be opened, so a lock does not hurt.
class OpenBlocks {
 public:
  void add(void* ptr, std::uint64_t bytes) {
    open_range(ptr, bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_[ptr] = bytes;
  }
  void remove(void* ptr) noexcept {
    std::uint64_t bytes = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = bytes_.find(ptr);
      if (found == bytes_.end()) {
        return;
      }
      bytes = found->second;
      bytes_.erase(found);
    }
    close_range(ptr, bytes);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::uint64_t> bytes_;
};

OpenBlocks& open_blocks() {
  static auto* const blocks = new OpenBlocks;
  return *blocks;
}

void delete_open_block(void* ptr) {
  if (ptr != nullptr) {
    open_blocks().remove(ptr);
    block_deleter()(ptr);
  }
}

// Returns when all work queued on the device's current stream is done; frees
// `ptr` when that fails.
void wait_for(c10::DeviceIndex device, void* ptr) {
  const Driver& driver = active_driver();
  if (C10_LIKELY(!driver.queues_work())) {
    return;
  }
  const npu_status status =
      driver.stream().synchronize(current_stream_handle(device));
  if (C10_UNLIKELY(status != NPU_OK)) {
    block_deleter()(ptr);
    check_driver(status, "wait for the current stream");
  }
}

// oneDNN pairs raw_allocate with raw_deallocate across calls, so one deleter
// has to free both kinds; only the address tells them apart.
void delete_any(void* ptr) {
  if (ptr == nullptr) {
    return;
  }
  if (device_of_pointer(ptr) >= 0) {
    delete_open_block(ptr);
  } else {
    original->raw_deallocate(ptr);
  }
}

class Shim final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (C10_LIKELY(state.device < 0)) {
      return original->allocate(bytes);
    }
    if (bytes == 0) {
      return {nullptr, c10::Device(c10::DeviceType::CPU)};
    }
    void* const ptr = allocate_raw(bytes, state.device);
    const bool opens = state.opens;
    // Since the call began another thread may have queued work on this block
    // and freed it, which is in order for the stream but not for a CPU kernel.
    wait_for(state.device, ptr);
    c10::DataPtr block(
        ptr,
        ptr,
        opens ? &delete_open_block : block_deleter(),
        c10::Device(c10::DeviceType::CPU));
    if (opens) {
      open_blocks().add(ptr, bytes);
    }
    return block;
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &delete_any;
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void install_shim() {
  static const bool installed = [] {
    original = c10::GetCPUAllocator();
    // Above any allocator set before us, and never destroyed: kernels keep
    // static buffers until the process is gone.
    c10::SetCPUAllocator(new Shim, /*priority=*/UINT8_MAX);
    return true;
  }();
  (void)installed;
}

ShimState exchange_shim(ShimState next) noexcept {
  return std::exchange(state, next);
}

bool is_pool_block(const c10::DataPtr& ptr) noexcept {
  const c10::DeleterFnPtr deleter = ptr.get_deleter();
  return deleter == block_deleter() || deleter == &delete_open_block;
}

void hand_over(c10::DataPtr& ptr, c10::Device device) {
  if (ptr.compare_exchange_deleter(&delete_open_block, block_deleter())) {
    open_blocks().remove(ptr.get_context());
  }
  ptr.unsafe_set_device(device);
}

void open_range(void* ptr, std::uint64_t bytes) {
  check_driver(
      active_driver().memory().host_open(
          ptr, bytes, NPU_ACCESS_READ | NPU_ACCESS_WRITE),
      "open device memory to host code");
}

void close_range(void* ptr, std::uint64_t bytes) noexcept {
  const npu_status status = active_driver().memory().host_close(
      ptr, bytes, NPU_ACCESS_READ | NPU_ACCESS_WRITE);
  if (status != NPU_OK) {
    log(NPU_LOG_ERROR,
        "npu: ladder: device memory could not be closed to host code");
  }
}

}  // namespace npu::twin
