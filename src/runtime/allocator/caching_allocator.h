// SPDX-License-Identifier: Apache-2.0
// All devices' memory behind one door; knows no torch.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/allocator/device_pool.h"

namespace npu::memory {

class CachingAllocator {
 public:
  static constexpr int kDevices = 64;

  CachingAllocator(
      Backend& backend,
      const Config& config,
      std::chrono::milliseconds sweep_period = std::chrono::seconds(1))
      : backend_(backend),
        config_(config),
        sweeper_(sweep_period, [this] { sweep_idle(); }) {}

  void* allocate(StreamKey stream, std::size_t bytes) {
    return pool(stream.device).allocate(stream.id, bytes);
  }
  // Bytes freed; 0 when `ptr` is not the start of a live block.
  std::size_t free(void* ptr, int* device = nullptr) {
    const SegmentTable::Place place = table_.find(ptr);
    if (device != nullptr) {
      *device = place.device;
    }
    if (place.device < 0) {
      return 0;
    }
    return existing(place.device)->free(place.segment, ptr);
  }
  int device_of(const void* ptr) const noexcept {
    return table_.find(ptr).device;
  }
  bool record_stream(void* ptr, StreamKey stream);

  // The device's pool; made at its first use.
  DevicePool& pool(int device) {
    DevicePool* found = existing(device);
    return found != nullptr ? *found : make_pool(device);
  }
  // Null when nothing was ever allocated on the device.
  DevicePool* existing(int device) {
    return pools_[static_cast<std::size_t>(device)].load(
        std::memory_order_acquire);
  }

  // Anything was ever allocated. Takes no lock.
  bool used() const noexcept {
    return std::any_of(pools_.begin(), pools_.end(), [](const auto& pool) {
      return pool.load(std::memory_order_relaxed) != nullptr;
    });
  }

  void empty_cache();
  // Memory for all devices from `source`, uncached: it is asked for every
  // block. False once anything was allocated.
  bool set_source(SegmentSource* source);
  // What the sweeper does once a period. Note [Idle memory].
  void sweep_idle() noexcept;
  // Changes options at run time; caching itself stays as it began.
  void set_config(const Config& config);
  Config config();
  void record_history(std::size_t limit, Record when, const ContextFn& context);

  SegmentTable& table() {
    return table_;
  }

 private:
  struct History {
    std::size_t limit = 0;
    Record when = Record::kNever;
    ContextFn context;
  };
  DevicePool& make_pool(int device);
  std::vector<DevicePool*> all();

  Backend& backend_;
  SegmentTable table_;
  std::mutex mutex_;
  Config config_;
  SegmentSource* source_ = nullptr;
  History history_;
  std::array<std::atomic<DevicePool*>, kDevices> pools_{};
  std::vector<std::unique_ptr<DevicePool>> owned_;
  Sweeper sweeper_;  // last: its thread ends before the pools do
};

}  // namespace npu::memory
