// SPDX-License-Identifier: Apache-2.0
// A device for tests and benchmarks: memory with a capacity, streams whose
// events are done when the test says so, and failures on demand.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "driver/status.h"
#include "runtime/allocator/backend.h"

namespace npu::memory {

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(std::size_t capacity) : capacity_(capacity) {}
  ~FakeBackend() override {
    for (const auto& [ptr, bytes] : live_) {
      std::free(ptr);
    }
  }

  npu_status alloc(int, std::size_t bytes, void** out) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++allocs;
    if (fail_alloc != NPU_OK) {
      return fail_alloc;
    }
    if (bytes > capacity_ - used_) {
      return NPU_E_OUT_OF_MEMORY;
    }
    *out = std::malloc(bytes);
    used_ += bytes;
    live_[*out] = bytes;
    return NPU_OK;
  }
  npu_status free(int, void* ptr) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++frees;
    const auto found = live_.find(ptr);
    if (found == live_.end()) {
      ++bad_frees;
      return NPU_E_INVALID;
    }
    used_ -= found->second;
    live_.erase(found);
    std::free(ptr);
    return NPU_OK;
  }
  npu_status synchronize(int) override {
    ++device_syncs;
    return std::exchange(fail_sync, NPU_OK);
  }
  npu_status memory_info(
      int, std::uint64_t* free, std::uint64_t* total) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    *free = capacity_ - used_;
    *total = capacity_;
    return NPU_OK;
  }
  void trim(int) noexcept override {
    ++trims;
  }
  bool discards() const noexcept override {
    return can_discard;
  }
  npu_status discard(StreamKey stream, void* ptr, std::size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (busy_streams.count(stream.id) != 0) {
      return NPU_NOT_READY;
    }
    if (during_discard) {
      during_discard();
    }
    if (scribble) {
      std::memset(ptr, 0xDD, bytes);
    }
    discards_.push_back({ptr, bytes});
    return NPU_OK;
  }
  npu_status record(StreamKey, npu_event* out) override {
    if (fail_record != NPU_OK) {
      return fail_record;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    *out = reinterpret_cast<npu_event>(++last_event_);
    pending_.insert(*out);
    return NPU_OK;
  }
  npu_status query(npu_event event) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pending_.count(event) != 0 && !all_done ? NPU_NOT_READY : NPU_OK;
  }
  npu_status synchronize(npu_event event) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.erase(event);
    return NPU_OK;
  }
  void release(StreamKey, npu_event event) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.erase(event);
    ++released_events;
  }
  [[noreturn]] void fail(npu_status status, const char* what) override {
    throw Error(status, what);
  }

  void finish_streams() {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.clear();
  }
  std::size_t used() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }

  struct Range {
    void* ptr;
    std::size_t bytes;
    bool operator==(const Range&) const = default;
  };
  // Ranges discarded since the last question.
  std::vector<Range> take_discards() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(discards_, {});
  }

  bool can_discard = false;
  bool scribble = false;  // discarded bytes really change
  std::set<StreamId> busy_streams;
  std::function<void()> during_discard;
  std::atomic<int> allocs{0};
  std::atomic<int> frees{0};
  std::atomic<int> bad_frees{0};
  std::atomic<int> device_syncs{0};
  std::atomic<int> trims{0};
  std::atomic<int> released_events{0};
  std::atomic<bool> all_done{false};
  npu_status fail_alloc = NPU_OK;
  npu_status fail_record = NPU_OK;
  npu_status fail_sync = NPU_OK;

 private:
  std::mutex mutex_;
  const std::size_t capacity_;
  std::size_t used_ = 0;
  std::uintptr_t last_event_ = 0;
  std::map<void*, std::size_t> live_;
  std::set<npu_event> pending_;
  std::vector<Range> discards_;
};

}  // namespace npu::memory
