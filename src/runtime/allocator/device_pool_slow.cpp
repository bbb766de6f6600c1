// SPDX-License-Identifier: Apache-2.0
// What needs the driver: segments, events, out of memory. Note [Two locks].
#include <algorithm>
#include <utility>

#include "runtime/allocator/device_pool.h"
#include "runtime/allocator/oom.h"

namespace npu::memory {

using Guard = std::lock_guard<SpinLock>;

// Cheapest first: what streams let go, what fits when merged, new memory,
// memory after waiting for streams, memory after giving the cache back.
void* DevicePool::allocate_slow(Request request) {
  std::unique_lock<std::mutex> driver(driver_);
  raise_deferred();
  poll_events(false);
  const bool whole =
      request.apart != nullptr && request.apart->options.no_split;
  const std::size_t segment = !config_.caching ? request.bytes
                              : whole          ? request.rounded
                                      : config_.segment_bytes(request.rounded);
  Block* block = nullptr;
  if (config_.caching) {
    const Guard guard(lock_);
    block = take(request, true);
  }
  if (block == nullptr) {
    collect_garbage(segment);
    discard_before_growth();
    block = grow(request, segment);
  }
  if (block == nullptr) {
    block = grow_after_release(request, segment);
  }
  if (block == nullptr) {
    driver.unlock();
    out_of_memory(request);
  }
  return finish(block, request);
}

void* DevicePool::finish(Block* block, const Request& request) {
  const Guard guard(lock_);
  hand_out(block, request);
  block->context = request.context;
  trace(
      Action::kAlloc,
      reinterpret_cast<std::uintptr_t>(block->ptr),
      block->size,
      request.stream,
      record_ >= Record::kAlloc ? request.context : nullptr);
  return block->ptr;
}

Block* DevicePool::grow_after_release(
    const Request& request, std::size_t bytes) {
  poll_events(true);
  {
    const Guard guard(lock_);
    ++stats_.num_sync_all_streams;
    if (Block* block = config_.caching ? take(request, true) : nullptr) {
      return block;
    }
    if (Block* block = take_from_lenders(request)) {
      return block;
    }
    ++stats_.num_alloc_retries;
  }
  release_idle(kUnlimited);
  backend_.trim(device_);
  if (Block* block = grow(request, bytes)) {
    return block;
  }
  // A shared segment may be too much to ask where the block alone is not.
  for (const std::size_t less :
       {round_up(request.rounded, kSegmentRound), request.rounded}) {
    if (less < bytes) {
      if (Block* block = grow(request, less)) {
        return block;
      }
    }
  }
  return nullptr;
}

// A block of `request`'s size in a new segment; null when memory is short.
Block* DevicePool::grow(const Request& request, std::size_t bytes) {
  const std::size_t allowed = limit();
  {
    const Guard guard(lock_);
    const auto reserved =
        static_cast<std::size_t>(stats_.reserved_bytes[0].current);
    if (bytes > allowed || reserved > allowed - bytes) {
      return nullptr;
    }
  }
  void* base = nullptr;
  SegmentSource* const source = source_of(request);
  const npu_status status =
      source == nullptr
          ? backend_.alloc(device_, bytes, &base)
          : source->alloc({device_, request.stream}, bytes, &base);
  if (status == NPU_E_OUT_OF_MEMORY) {
    return nullptr;
  }
  if (status != NPU_OK) {
    backend_.fail(status, "allocator: taking memory from the driver");
  }
  return add_segment(request, base, bytes);
}

SegmentSource* DevicePool::source_of(const Request& request) const {
  const bool own =
      request.apart != nullptr && request.apart->options.source != nullptr;
  return own ? request.apart->options.source : source_;
}

npu_status DevicePool::give_back(
    SegmentSource* source, StreamId stream, void* base, std::size_t bytes) {
  return source == nullptr ? backend_.free(device_, base)
                           : source->free({device_, stream}, base, bytes);
}

Block* DevicePool::add_segment(
    const Request& request, void* base, std::size_t bytes) {
  std::unique_ptr<Segment> segment;
  Block* block = nullptr;
  Pool* pool = nullptr;
  try {
    {
      const Guard guard(lock_);
      pool = &pools_for(request).of(request.rounded);
      block = store_.take();
      segments_.reserve(segments_.size() + 1);
    }
    segment = std::make_unique<Segment>(
        device_, pool, static_cast<std::byte*>(base), bytes);
    segment->stream = request.stream;
    segment->source = source_of(request);
    table_.insert(base, bytes, device_, segment.get());
  } catch (...) {
    give_back(source_of(request), request.stream, base, bytes);
    throw;
  }
  if (!pool->small && sweeper_ != nullptr) {
    sweeper_->start();
  }
  const Guard guard(lock_);
  if (request.apart != nullptr) {
    ++request.apart->segments;
  }
  segment->context = request.context;
  segment->position = segments_.size();
  block->segment = segment.get();
  block->ptr = segment->base;
  block->size = bytes;
  block->discarded = true;  // nothing was written to it yet
  segment->first = block;
  segment->start(*block) = block;
  ++stats_.num_device_alloc;
  increase(stats_.segment, pool->small, 1);
  increase(
      stats_.reserved_bytes, pool->small, static_cast<std::int64_t>(bytes));
  if (bytes >= config_.max_split_size) {
    segment->oversize = true;
    stats_.oversize_segments.increase(1);
  }
  trace(
      Action::kSegmentAlloc,
      reinterpret_cast<std::uintptr_t>(base),
      bytes,
      request.stream,
      record_ >= Record::kAlloc ? request.context : nullptr);
  segments_.push_back(std::move(segment));
  return config_.caching ? carve(*pool, block, request.rounded) : block;
}

void DevicePool::collect_garbage(std::size_t needed) {
  const double threshold = config_.garbage_collection_threshold;
  if (threshold <= 0) {
    return;
  }
  const auto target =
      static_cast<std::size_t>(threshold * static_cast<double>(limit()));
  std::size_t reserved = 0;
  {
    const Guard guard(lock_);
    reserved = static_cast<std::size_t>(stats_.reserved_bytes[0].current);
  }
  if (reserved + needed > target) {
    release_idle(reserved + needed - target);
  }
}

// Gives idle segments back, longest idle first, until `enough` bytes are: those
// of the common pool and of private pools nobody holds, or those of `only`.
void DevicePool::release_idle(std::size_t enough, const PrivatePool* only) {
  std::vector<std::unique_ptr<Segment>> victims;
  {
    const Guard guard(lock_);
    for (const auto& pools : pools_) {
      flush_bins(*pools);
    }
    flush_private_bins();
    std::vector<Segment*> idle;
    for (const auto& segment : segments_) {
      const PrivatePool* const apart = segment->pool->owner->apart;
      const bool wanted = only != nullptr
                              ? apart == only
                              : apart == nullptr || apart->holders == 0;
      if (segment->live == 0 && wanted) {
        idle.push_back(segment.get());
      }
    }
    std::sort(idle.begin(), idle.end(), [](Segment* a, Segment* b) {
      return a->idle_since < b->idle_since;
    });
    std::size_t bytes = 0;
    for (Segment* segment : idle) {
      if (bytes >= enough) {
        break;
      }
      bytes += segment->size;
      segment->pool->index.remove(segment->first);
      victims.push_back(detach(segment));
    }
    forget_empty_pools();
  }
  release(std::move(victims));
}

// Takes a segment with one block, in no list, out of the books. Under lock_.
std::unique_ptr<Segment> DevicePool::detach(Segment* segment) {
  const Pool& pool = *segment->pool;
  store_.put(segment->first);
  if (pool.owner->apart != nullptr) {
    --pool.owner->apart->segments;
  }
  ++stats_.num_device_free;
  decrease(stats_.segment, pool.small, 1);
  decrease(
      stats_.reserved_bytes,
      pool.small,
      static_cast<std::int64_t>(segment->size));
  if (segment->oversize) {
    stats_.oversize_segments.decrease(1);
  }
  trace(
      Action::kSegmentFree,
      reinterpret_cast<std::uintptr_t>(segment->base),
      segment->size,
      pool.stream,
      nullptr);
  const std::size_t position = segment->position;
  std::unique_ptr<Segment> out = std::move(segments_[position]);
  if (position + 1 != segments_.size()) {
    segments_[position] = std::move(segments_.back());
    segments_[position]->position = position;
  }
  segments_.pop_back();
  return out;
}

// Freed blocks may still be used by work queued on their own stream, so the
// device is drained first.
void DevicePool::release(std::vector<std::unique_ptr<Segment>> segments) {
  if (segments.empty()) {
    return;
  }
  const npu_status drained = backend_.synchronize(device_);
  if (drained != NPU_OK && drained != NPU_E_SHUTDOWN) {
    defer_failure(drained, "allocator: synchronizing to release memory");
  }
  for (const auto& segment : segments) {
    table_.erase(segment->base);
    const npu_status status = give_back(
        segment->source, segment->stream, segment->base, segment->size);
    if (status != NPU_OK && status != NPU_E_SHUTDOWN) {
      defer_failure(status, "allocator: giving memory back to the driver");
    }
  }
}

void DevicePool::empty_cache() {
  const std::lock_guard<std::mutex> driver(driver_);
  poll_events(true);
  release_idle(kUnlimited);
  backend_.trim(device_);
  raise_deferred();
}

// ---- freed while other streams still use it --------------------------------

// `block` is pending; no other thread can reach it.
void DevicePool::free_slow(Block* block) {
  const std::lock_guard<std::mutex> driver(driver_);
  if (block->uses != nullptr) {
    for (const StreamKey& stream : *block->uses) {
      npu_event event = nullptr;
      const npu_status status = backend_.record(stream, &event);
      if (status == NPU_OK) {
        waiting_[stream].push_back({event, block});
        ++block->events;
      } else if (status != NPU_E_SHUTDOWN) {
        defer_failure(status, "allocator: recording an event for a free");
        backend_.synchronize(device_);
      }
    }
    block->uses.reset();
  }
  if (block->events == 0) {
    complete(block);
  } else {
    attend(kWaiting, true);
  }
}

void DevicePool::complete(Block* block) {
  std::vector<std::unique_ptr<Segment>> victims;
  {
    const Guard guard(lock_);
    ledger_.completed(
        block->segment->pool->small, static_cast<std::int64_t>(block->size));
    trace(
        Action::kFreeCompleted,
        reinterpret_cast<std::uintptr_t>(block->ptr),
        block->size,
        block->segment->pool->stream,
        nullptr);
    if (config_.caching) {
      put_back(block);
      return;
    }
    victims.push_back(detach(block->segment));
  }
  release(std::move(victims));
}

void DevicePool::poll_events(bool wait) {
  if (waiting_.empty()) {
    return;
  }
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto& [stream, queue] = *it;
    while (!queue.empty()) {
      const Waiting waiting = queue.front();
      const npu_status status = wait ? backend_.synchronize(waiting.event)
                                     : backend_.query(waiting.event);
      if (status == NPU_NOT_READY) {
        break;
      }
      if (status != NPU_OK && status != NPU_E_SHUTDOWN) {
        defer_failure(status, "allocator: waiting for a stream");
      }
      queue.pop_front();
      backend_.release(stream, waiting.event);
      if (--waiting.block->events == 0) {
        complete(waiting.block);
      }
    }
    it = queue.empty() ? waiting_.erase(it) : std::next(it);
  }
  attend(kWaiting, !waiting_.empty());
}

// ---- failures ----

// Where nothing may be thrown, the failure waits for the next allocation.
void DevicePool::defer_failure(npu_status status, const char* what) noexcept {
  if (failure_ != nullptr) {
    return;
  }
  try {
    backend_.fail(status, what);
  } catch (...) {
    failure_ = std::current_exception();
  }
  attend(kFailed, true);
}

void DevicePool::raise_deferred() {
  if (failure_ != nullptr) {
    attend(kFailed, false);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void DevicePool::out_of_memory(const Request& request) {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  backend_.memory_info(device_, &free, &total);
  OutOfMemory::Numbers numbers;
  {
    const Guard guard(lock_);
    ++stats_.num_ooms;
    trace(
        Action::kOutOfMemory,
        free,
        request.rounded,
        request.stream,
        request.context);
    numbers.allocated = static_cast<std::uint64_t>(ledger_.allocated_bytes());
    numbers.active = static_cast<std::uint64_t>(ledger_.active_bytes());
    numbers.reserved =
        static_cast<std::uint64_t>(stats_.reserved_bytes[0].current);
  }
  numbers.device = device_;
  numbers.asked = request.rounded;
  numbers.capacity = total;
  numbers.free = free;
  throw OutOfMemory(numbers);
}

std::size_t DevicePool::total_memory() {
  if (total_memory_ == 0) {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
    const npu_status status = backend_.memory_info(device_, &free, &total);
    if (status != NPU_OK) {
      backend_.fail(status, "allocator: asking for the device's capacity");
    }
    total_memory_ = total;
  }
  return total_memory_;
}

std::size_t DevicePool::limit() {
  const double fraction = config_.memory_fraction;
  const std::size_t total = total_memory();
  return fraction >= 1
             ? total
             : static_cast<std::size_t>(fraction * static_cast<double>(total));
}

}  // namespace npu::memory
