// SPDX-License-Identifier: Apache-2.0
// The calls behind torch.npu.memory.
#include "runtime/allocator/allocator_api.h"

#include <c10/util/Exception.h>

#include <utility>

#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/allocator/global.h"
#include "runtime/allocator/oom.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu::memory {
namespace {

// The pool of a checked device, or null when it has none yet. Nothing of the
// parent's may be read in a forked child: init() says so.
DevicePool* checked_pool(c10::DeviceIndex& device) {
  if (abandoned()) {
    init();
  }
  device = device_or_current(device);
  check_device_index(device);
  return global_allocator().existing(device);
}

}  // namespace

DeviceStats device_stats(c10::DeviceIndex device) {
  if (DevicePool* pool = checked_pool(device)) {
    return pool->stats();
  }
  DeviceStats none;
  const std::size_t split = global_allocator().config().max_split_size;
  none.max_split_size =
      split == kUnlimited ? -1 : static_cast<std::int64_t>(split);
  return none;
}

void reset_accumulated_stats(c10::DeviceIndex device) {
  if (DevicePool* pool = checked_pool(device)) {
    pool->reset_accumulated_stats();
  }
}

void reset_peak_stats(c10::DeviceIndex device) {
  if (DevicePool* pool = checked_pool(device)) {
    pool->reset_peak_stats();
  }
}

std::pair<std::size_t, std::size_t> memory_info(c10::DeviceIndex device) {
  init();
  device = device_or_current(device);
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  check_driver(
      active_driver().device().memory_info(
          driver_device(device), &free, &total),
      "asking for free memory");
  return {free, total};
}

void empty_cache() {
  if (abandoned()) {
    init();
  }
  if (CachingAllocator* allocator = global_allocator_or_null()) {
    allocator->empty_cache();
  }
}

void set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(
      fraction >= 0 && fraction <= 1,
      "npu: set_per_process_memory_fraction: invalid fraction ",
      fraction,
      ". Allowed: 0 to 1.");
  device_pool(device_or_current(device)).set_memory_fraction(fraction);
}

double memory_fraction(c10::DeviceIndex device) {
  DevicePool* pool = checked_pool(device);
  return pool != nullptr ? pool->memory_fraction()
                         : global_allocator().config().memory_fraction;
}

void set_settings(const std::string& text) {
  if (abandoned()) {
    init();
  }
  CachingAllocator& allocator = global_allocator();
  Config config = allocator.config();
  use_driver([&] { parse_config(text, "allocator settings", config); });
  allocator.set_config(config);
}

void* caching_alloc(
    std::size_t bytes, c10::DeviceIndex device, StreamId stream) {
  if (bytes == 0) {
    return nullptr;
  }
  device = device_or_current(device);
  DevicePool& pool = device_pool(device);
  stream_from_id(stream, device);  // refuses an id that is no stream
  try {
    void* const made = pool.allocate(stream, bytes);
    sanitizer::on_allocated(device, made, bytes, stream);
    return made;
  } catch (const OutOfMemory& error) {
    raise_out_of_memory(error);
  }
}

void caching_delete(void* ptr) {
  if (ptr == nullptr || abandoned()) {
    return;
  }
  if (sanitizer::finds_races()) {
    sanitizer::on_freed(device_of_pointer(ptr), ptr);
  }
  TORCH_CHECK_VALUE(
      global_allocator().free(ptr) != 0,
      "npu: caching_allocator_delete: ",
      ptr,
      " is not the address of a live block. Pass what "
      "caching_allocator_alloc returned, once.");
}

std::vector<SegmentInfo> snapshot() {
  if (abandoned()) {
    init();
  }
  std::vector<SegmentInfo> out;
  for (int device = 0; device < CachingAllocator::kDevices; ++device) {
    if (DevicePool* pool = global_allocator().existing(device)) {
      for (SegmentInfo& segment : pool->snapshot()) {
        out.push_back(std::move(segment));
      }
    }
  }
  return out;
}

std::vector<std::vector<TraceEntry>> history(bool clear) {
  if (abandoned()) {
    init();
  }
  std::vector<std::vector<TraceEntry>> out;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    DevicePool* pool = global_allocator().existing(device);
    out.push_back(
        pool != nullptr ? pool->history(clear) : std::vector<TraceEntry>());
  }
  return out;
}

void record_history(std::size_t max_entries, Record when, ContextFn gather) {
  if (abandoned()) {
    init();
  }
  global_allocator().record_history(max_entries, when, gather);
}

void raise_out_of_memory(const OutOfMemory& error) {
  const OutOfMemory::Numbers& numbers = error.numbers();
  const auto device = static_cast<c10::DeviceIndex>(numbers.device);
  c10::reportOutOfMemoryToProfiler(
      static_cast<std::int64_t>(numbers.asked),
      numbers.allocated,
      numbers.reserved,
      c10::Device(kDeviceType, device));
  TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
}

}  // namespace npu::memory
