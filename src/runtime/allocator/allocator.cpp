// SPDX-License-Identifier: Apache-2.0
// The allocator as PyTorch sees it: a c10::DeviceAllocator.
#include "runtime/allocator/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <vector>

#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/allocator/allocator_api.h"
#include "runtime/allocator/global.h"
#include "runtime/allocator/memory_pools.h"
#include "runtime/allocator/oom.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {
namespace {

using memory::Stat;
using memory::StatArray;

c10::Device npu_device_at(int index) {
  return {kDeviceType, static_cast<c10::DeviceIndex>(index)};
}

void report_to_profiler(void* ptr, std::int64_t bytes, int device) {
  const memory::DeviceStats stats =
      memory::global_allocator().pool(device).stats();
  c10::reportMemoryUsageToProfiler(
      ptr,
      bytes,
      static_cast<std::size_t>(stats.allocated_bytes[0].current),
      static_cast<std::size_t>(stats.reserved_bytes[0].current),
      npu_device_at(device));
}

// Any thread, any time, also for DataPtrs tagged CPU.
void delete_block(void* ptr) {
  if (ptr == nullptr || memory::abandoned()) {
    return;
  }
  memory::CachingAllocator& allocator = memory::global_allocator();
  if (sanitizer::finds_races()) {
    sanitizer::on_freed(device_of_pointer(ptr), ptr);
  }
  try {
    int device = -1;
    const std::size_t bytes = allocator.free(ptr, &device);
    if (bytes == 0) [[unlikely]] {
      log(NPU_LOG_ERROR,
          "npu: allocator: a pointer that is no live block was freed.");
      return;
    }
    if (c10::memoryProfilingEnabled()) [[unlikely]] {
      report_to_profiler(ptr, -static_cast<std::int64_t>(bytes), device);
    }
  } catch (const std::exception& error) {
    log(NPU_LOG_ERROR, std::string("npu: allocator: free: ") + error.what());
  }
}

c10::CachingAllocator::Stat to_c10(const Stat& stat) {
  c10::CachingAllocator::Stat out;
  out.current = stat.current;
  out.peak = stat.peak;
  out.allocated = stat.allocated;
  out.freed = stat.freed;
  return out;
}

c10::CachingAllocator::StatArray to_c10(const StatArray& array) {
  return {to_c10(array[0]), to_c10(array[1]), to_c10(array[2])};
}

// Both blocks on one device. PyTorch copies nothing, from nowhere to nowhere,
// for a lazy clone without elements, and does not survive an error there.
void copy_block(void* dest, const void* src, std::size_t count) {
  if (count == 0) {
    return;
  }
  const c10::DeviceIndex device = device_of_pointer(dest);
  TORCH_CHECK(
      device >= 0, "npu: allocator: copy_data to memory that is not npu's.");
  check_driver(
      active_driver().memory().copy_on_device(
          current_stream_handle(device), dest, src, count),
      "copying an allocation");
  // The source may belong to another stream, and be freed before the copy.
  memory::global_allocator().record_stream(
      const_cast<void*>(src), {device, current_stream_id(device)});
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    return npu::allocate(bytes, current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &delete_block;
  }
  void copy_data(
      void* dest, const void* src, std::size_t count) const override {
    copy_block(dest, src, count);
  }
  bool initialized() override {
    return is_initialized();
  }
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override {
    if (pool == c10::MempoolId_t{0, 0}) {
      memory::empty_cache();
    } else {
      memory::empty_pool(pool);
    }
  }
  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    record_stream(ptr, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    memory::reset_accumulated_stats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    memory::reset_peak_stats(device);
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(
      c10::DeviceIndex device) override {
    return memory::memory_info(device);
  }
};

c10::CachingDeviceAllocator::DeviceStats DeviceAllocator::getDeviceStats(
    c10::DeviceIndex device) {
  const memory::DeviceStats stats = memory::device_stats(device);
  c10::CachingDeviceAllocator::DeviceStats out;
  out.allocation = to_c10(stats.allocation);
  out.segment = to_c10(stats.segment);
  out.active = to_c10(stats.active);
  out.inactive_split = to_c10(stats.inactive_split);
  out.allocated_bytes = to_c10(stats.allocated_bytes);
  out.reserved_bytes = to_c10(stats.reserved_bytes);
  out.active_bytes = to_c10(stats.active_bytes);
  out.inactive_split_bytes = to_c10(stats.inactive_split_bytes);
  out.requested_bytes = to_c10(stats.requested_bytes);
  out.oversize_allocations = to_c10(stats.oversize_allocations);
  out.oversize_segments = to_c10(stats.oversize_segments);
  out.num_alloc_retries = stats.num_alloc_retries;
  out.num_ooms = stats.num_ooms;
  out.num_sync_all_streams = stats.num_sync_all_streams;
  out.num_device_alloc = stats.num_device_alloc;
  out.num_device_free = stats.num_device_free;
  out.max_split_size = stats.max_split_size;
  return out;
}

class OneDeviceAllocator final : public c10::Allocator {
 public:
  explicit OneDeviceAllocator(c10::DeviceIndex device) : device_(device) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    return npu::allocate(bytes, device_);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &delete_block;
  }
  void copy_data(
      void* dest, const void* src, std::size_t count) const override {
    copy_block(dest, src, count);
  }

 private:
  const c10::DeviceIndex device_;
};

DeviceAllocator& the_allocator() {
  static auto& allocator = *new DeviceAllocator;
  return allocator;
}

const bool g_registered = [] {
  c10::SetAllocator(kDeviceType, &the_allocator());
  return true;
}();

}  // namespace

c10::DeviceAllocator* device_allocator() noexcept {
  return &the_allocator();
}

c10::Allocator* allocator_of(c10::DeviceIndex device) noexcept {
  // Never destroyed: storages keep the pointer.
  static const auto& all = *[] {
    auto* const made = new std::vector<OneDeviceAllocator>;
    for (int i = 0; i < kMaxDevices; ++i) {
      made->emplace_back(static_cast<c10::DeviceIndex>(i));
    }
    return made;
  }();
  return const_cast<OneDeviceAllocator*>(
      &all[static_cast<std::size_t>(device)]);
}

c10::DeleterFnPtr block_deleter() noexcept {
  return &delete_block;
}

void* allocate_raw(std::size_t bytes, c10::DeviceIndex device) {
  if (bytes == 0) {
    return nullptr;
  }
  sanitizer::raise_pending();
  memory::DevicePool& pool = memory::device_pool(device);
  const c10::StreamId stream = current_stream_id(device);
  void* ptr = nullptr;
  try {
    ptr = pool.allocate(stream, bytes);
  } catch (const memory::OutOfMemory& error) {
    memory::raise_out_of_memory(error);
  }
  sanitizer::on_allocated(device, ptr, bytes, stream);
  if (c10::memoryProfilingEnabled()) [[unlikely]] {
    report_to_profiler(ptr, static_cast<std::int64_t>(bytes), device);
  }
  return ptr;
}

c10::DataPtr allocate(std::size_t bytes, c10::DeviceIndex device) {
  void* ptr = allocate_raw(bytes, device);
  return {ptr, ptr, &delete_block, npu_device_at(device)};
}

c10::DeviceIndex device_of_pointer(const void* ptr) noexcept {
  const memory::CachingAllocator* allocator =
      memory::global_allocator_or_null();
  return allocator == nullptr
             ? static_cast<c10::DeviceIndex>(-1)
             : static_cast<c10::DeviceIndex>(allocator->device_of(ptr));
}

void record_stream(const c10::DataPtr& ptr, c10::Stream stream) {
  if (ptr.get() == nullptr || memory::abandoned()) {
    return;
  }
  TORCH_CHECK(
      stream.device_type() == kDeviceType,
      "npu: record_stream: expected an npu stream, got ",
      stream,
      ".");
  stream_handle(stream);  // refuses an id that is no stream
  // Memory that came from elsewhere (from_blob) has no block to hold back.
  memory::global_allocator().record_stream(
      ptr.get(), {stream.device_index(), stream.id()});
  sanitizer::on_use_recorded(ptr.get(), stream);
}

}  // namespace npu
