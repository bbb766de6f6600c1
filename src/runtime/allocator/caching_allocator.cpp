// SPDX-License-Identifier: Apache-2.0
// What concerns every device's pool.
#include "runtime/allocator/caching_allocator.h"

namespace npu::memory {

DevicePool& CachingAllocator::make_pool(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = pools_[static_cast<std::size_t>(device)];
  if (DevicePool* found = slot.load(std::memory_order_relaxed)) {
    return *found;
  }
  owned_.push_back(std::make_unique<DevicePool>(
      device,
      backend_,
      table_,
      config_,
      source_,
      backend_.discards() ? &sweeper_ : nullptr));
  DevicePool& made = *owned_.back();
  if (history_.limit != 0) {
    made.record_history(history_.limit, history_.when, history_.context);
  }
  slot.store(&made, std::memory_order_release);
  return made;
}

std::vector<DevicePool*> CachingAllocator::all() {
  std::vector<DevicePool*> out;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& pool : owned_) {
    out.push_back(pool.get());
  }
  return out;
}

bool CachingAllocator::record_stream(void* ptr, StreamKey stream) {
  const SegmentTable::Place place = table_.find(ptr);
  return place.device >= 0 &&
         existing(place.device)->record_stream(place.segment, ptr, stream);
}

void CachingAllocator::empty_cache() {
  for (DevicePool* pool : all()) {
    pool->empty_cache();
  }
}

bool CachingAllocator::set_source(SegmentSource* source) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!owned_.empty()) {
    return false;
  }
  source_ = source;
  config_.caching = false;
  return true;
}

void CachingAllocator::sweep_idle() noexcept {
  for (std::size_t device = 0; device < pools_.size(); ++device) {
    DevicePool* pool = pools_[device].load(std::memory_order_acquire);
    try {
      if (pool != nullptr) {
        pool->sweep_idle();
      }
    } catch (...) {
      // Short of memory for a list, or no driver any more: another time.
    }
  }
}

void CachingAllocator::set_config(const Config& config) {
  bool new_fraction = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool caching = config_.caching;
    new_fraction = config_.memory_fraction != config.memory_fraction;
    config_ = config;
    config_.caching = caching;
  }
  for (DevicePool* pool : all()) {
    pool->set_config(config);
    if (new_fraction) {
      pool->set_memory_fraction(config.memory_fraction);
    }
  }
}

Config CachingAllocator::config() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return config_;
}

void CachingAllocator::record_history(
    std::size_t limit, Record when, const ContextFn& context) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    history_ = {limit, when, context};
  }
  for (DevicePool* pool : all()) {
    pool->record_history(limit, when, context);
  }
}

}  // namespace npu::memory
