// SPDX-License-Identifier: Apache-2.0
// Statistics, snapshots, history and settings of one device.
#include <algorithm>
#include <utility>

#include "runtime/allocator/device_pool.h"

namespace npu::memory {

using Guard = std::lock_guard<SpinLock>;

namespace {

const char* state_name(Block::State state) {
  switch (state) {
    case Block::State::kAllocated:
      return "active_allocated";
    case Block::State::kPending:
      return "active_pending_free";
    default:
      return "inactive";
  }
}

SegmentInfo describe(const Segment& segment) {
  SegmentInfo out;
  out.device = segment.device;
  out.address = reinterpret_cast<std::uintptr_t>(segment.base);
  out.total_size = segment.size;
  out.stream = segment.pool->stream;
  out.is_large = !segment.pool->small;
  if (const PrivatePool* const apart = segment.pool->owner->apart) {
    out.pool = apart->id;
  }
  out.context = segment.context;
  for (const Block* block = segment.first; block != nullptr;
       block = block->after) {
    BlockInfo info;
    info.address = reinterpret_cast<std::uintptr_t>(block->ptr);
    info.size = block->size;
    info.state = state_name(block->state);
    info.context = block->context;
    if (!block->is_free()) {
      info.requested_size = block->requested;
      out.active_size += block->size;
      if (block->state == Block::State::kAllocated) {
        out.allocated_size += block->size;
        out.requested_size += block->requested;
      }
    }
    out.blocks.push_back(std::move(info));
  }
  return out;
}

}  // namespace

DeviceStats DevicePool::stats() {
  const Guard guard(lock_);
  DeviceStats out = stats_;
  ledger_.fill(out);
  out.max_split_size = config_.max_split_size == kUnlimited
                           ? -1
                           : static_cast<std::int64_t>(config_.max_split_size);
  return out;
}

void DevicePool::reset_accumulated_stats() {
  const Guard guard(lock_);
  stats_.reset_accumulated();
  ledger_.reset_accumulated();
}

void DevicePool::reset_peak_stats() {
  const Guard guard(lock_);
  stats_.reset_peak();
  ledger_.reset_peak();
}

std::vector<SegmentInfo> DevicePool::snapshot() {
  std::vector<SegmentInfo> out;
  const std::lock_guard<std::mutex> driver(driver_);
  const Guard guard(lock_);
  trace(Action::kSnapshot, 0, 0, 0, nullptr);
  for (const auto& segment : segments_) {
    out.push_back(describe(*segment));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.address < b.address;
  });
  return out;
}

void DevicePool::record_history(
    std::size_t limit, Record when, ContextFn context) {
  {
    const std::lock_guard<std::mutex> lock(context_mutex_);
    context_fn_ = std::move(context);
  }
  TraceRing old;  // contexts die outside the lock
  const Guard guard(lock_);
  record_ = limit == 0 ? Record::kNever : when;
  std::swap(old, ring_);
  ring_.set_limit(limit);
  attend(kTracing, limit != 0);
}

std::vector<TraceEntry> DevicePool::history(bool clear) {
  const Guard guard(lock_);
  std::vector<TraceEntry> out = ring_.read();  // keeps the contexts alive
  if (clear) {
    ring_.clear();
  }
  return out;
}

Context DevicePool::context_if(Record least) {
  if (!recording()) {
    return nullptr;
  }
  ContextFn fn;
  {
    const Guard guard(lock_);
    if (record_ < least) {
      return nullptr;
    }
  }
  {
    const std::lock_guard<std::mutex> lock(context_mutex_);
    fn = context_fn_;
  }
  return fn ? fn() : nullptr;
}

// Under lock_.
void DevicePool::trace(
    Action action,
    std::uintptr_t address,
    std::size_t size,
    StreamId stream,
    Context context) {
  if (recording()) {
    ring_.add({action, address, size, stream, now_us(), std::move(context)});
  }
}

void DevicePool::attend(unsigned bit, bool on) {
  if (on) {
    attention_.fetch_or(bit, std::memory_order_relaxed);
  } else {
    attention_.fetch_and(~bit, std::memory_order_relaxed);
  }
}

void DevicePool::set_config(const Config& config) {
  const std::lock_guard<std::mutex> driver(driver_);
  const Guard guard(lock_);
  const bool caching = config_.caching;
  const double fraction = config_.memory_fraction;
  config_ = config;
  config_.caching = caching;
  config_.memory_fraction = fraction;
}

void DevicePool::set_memory_fraction(double fraction) {
  const std::lock_guard<std::mutex> driver(driver_);
  const Guard guard(lock_);
  config_.memory_fraction = fraction;
}

double DevicePool::memory_fraction() {
  const Guard guard(lock_);
  return config_.memory_fraction;
}

}  // namespace npu::memory
