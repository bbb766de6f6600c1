// SPDX-License-Identifier: Apache-2.0
// Blocks: the fast path, splitting, merging, statistics; growing and giving
// back; idle memory. See Note [Two locks].
#include "runtime/allocator/device_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/allocator/oom.h"

namespace npu::memory {

using Guard = std::lock_guard<SpinLock>;

DevicePool::DevicePool(
    int device,
    Backend& backend,
    SegmentTable& table,
    const Config& config,
    SegmentSource* source,
    Sweeper* sweeper)
    : device_(device),
      backend_(backend),
      table_(table),
      source_(source),
      sweeper_(sweeper),
      config_(config) {
  attend(kUncached, !config.caching);
}

DevicePool::~DevicePool() {
  backend_.synchronize(device_);
  for (auto& [stream, queue] : waiting_) {
    for (Waiting& waiting : queue) {
      backend_.release(stream, waiting.event);
    }
  }
  for (const auto& segment : segments_) {
    table_.erase(segment->base);
    give_back(segment->source, segment->stream, segment->base, segment->size);
  }
}

void* DevicePool::allocate(StreamId stream, std::size_t bytes) {
  if (bytes >= kAbsurd) [[unlikely]] {
    out_of_memory({stream, bytes, bytes, nullptr});
  }
  const unsigned attention = attention_.load(std::memory_order_relaxed);
  PrivatePool* apart = nullptr;
  if ((attention & kRouted) != 0) [[unlikely]] {
    apart = routed_pool();
  }
  if ((attention & ~kRouted) == 0) [[likely]] {
    const Guard guard(lock_);
    Request request{stream, bytes, config_.rounded(bytes), nullptr, apart};
    if (Block* block = take(request, false)) {
      hand_out(block, request);
      return block->ptr;
    }
  }
  Context context = context_if(Record::kState);
  std::size_t rounded = 0;
  {
    const Guard guard(lock_);
    rounded = config_.rounded(bytes);
  }
  return allocate_slow({stream, bytes, rounded, std::move(context), apart});
}

std::size_t DevicePool::free(Segment* segment, void* ptr) {
  const unsigned attention =
      attention_.load(std::memory_order_relaxed) & ~kRouted;
  Context context;
  if ((attention & kTracing) != 0) [[unlikely]] {
    context = context_if(Record::kAll);
  }
  Context dropped;  // its destructor is user code: not under the lock
  Block* block = nullptr;
  std::size_t size = 0;
  {
    const Guard guard(lock_);
    block = block_at(segment, ptr);
    if (block == nullptr) [[unlikely]] {
      return 0;
    }
    size = block->size;
    dropped = std::move(block->context);
    const bool at_once = attention == 0 && block->uses == nullptr;
    count_freed(*block, !at_once);
    if (at_once) [[likely]] {
      put_back(block);
      return size;
    }
    block->state = Block::State::kPending;
    trace(
        Action::kFreeRequested,
        reinterpret_cast<std::uintptr_t>(ptr),
        size,
        segment->pool->stream,
        std::move(context));
  }
  free_slow(block);
  return size;
}

bool DevicePool::record_stream(Segment* segment, void* ptr, StreamKey stream) {
  const Guard guard(lock_);
  Block* block = block_around(segment, ptr);
  if (block == nullptr) {
    return false;
  }
  if (stream == StreamKey{device_, segment->pool->stream}) {
    return true;
  }
  if (block->uses == nullptr) {
    block->uses = std::make_unique<std::vector<StreamKey>>();
  }
  auto& uses = *block->uses;
  if (std::find(uses.begin(), uses.end(), stream) == uses.end()) {
    uses.push_back(stream);
  }
  return true;
}

Block* DevicePool::block_around(Segment* segment, void* ptr) {
  auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(ptr) - segment->base);
  while (offset >= kUnit && segment->blocks[offset] == nullptr) {
    offset -= kUnit;
  }
  Block* block = segment->blocks[offset];
  const bool live =
      block != nullptr && block->state == Block::State::kAllocated;
  return live ? block : nullptr;
}

StreamPools& DevicePool::make_pools(StreamId stream) {
  pools_.push_back(std::make_unique<StreamPools>(stream));
  StreamPools* made = pools_.back().get();
  if (stream >= 0 && stream < kDirect) {
    direct_[stream] = made;
  } else {
    others_[stream] = made;
  }
  return *made;
}

StreamPools& DevicePool::other_pools(StreamId stream) {
  const auto found = others_.find(stream);
  return found != others_.end() ? *found->second : make_pools(stream);
}

Block* DevicePool::take_indexed(
    StreamPools& pools, const Request& request, bool flush) {
  Pool& pool = pools.of(request.rounded);
  Block* block = pool.index.find(request.rounded, config_);
  if (block == nullptr && flush) {
    flush_bins(pools);
    block = pool.index.find(request.rounded, config_);
  }
  if (block == nullptr) {
    return nullptr;
  }
  leave_free(*block);
  pool.index.remove(block);
  return carve(pool, block, request.rounded);
}

bool DevicePool::may_split(
    const Pool& pool, const Block& block, std::size_t rounded) {
  const std::size_t rest = block.size - rounded;
  const PrivatePool* const apart = pool.owner->apart;
  if (apart != nullptr && apart->options.no_split) {
    return false;
  }
  if (pool.small) {
    return rest >= kUnit;
  }
  return rest > kSmallLimit && block.size < config_.max_split_size;
}

// `block` is in no list. What is left of it becomes a free block.
Block* DevicePool::carve(Pool& pool, Block* block, std::size_t rounded) {
  if (!may_split(pool, *block, rounded)) {
    return block;
  }
  Block* rest = store_.take();
  Segment* segment = block->segment;
  rest->segment = segment;
  rest->ptr = block->ptr + rounded;
  rest->size = block->size - rounded;
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) {
    rest->after->before = rest;
  }
  block->after = rest;
  block->size = rounded;
  segment->start(*rest) = rest;
  rest->state = Block::State::kIndexed;
  rest->discarded = block->discarded;
  rest->idle_since = block->idle_since;
  enter_free(*rest);
  pool.index.insert(rest);
  return block;
}

// `block` is in no list and not counted as free.
void DevicePool::merge(Block* block) {
  FreeIndex& index = block->segment->pool->index;
  if (Block* left = block->before; left != nullptr && left->can_merge()) {
    leave_free(*left);
    index.remove(left);
    block = absorb(left, block);
  }
  if (Block* right = block->after; right != nullptr && right->can_merge()) {
    leave_free(*right);
    index.remove(right);
    block = absorb(block, right);
  }
  block->state = Block::State::kIndexed;
  enter_free(*block);
  index.insert(block);
}

Block* DevicePool::absorb(Block* left, Block* right) {
  left->size += right->size;
  left->discarded = left->discarded && right->discarded;
  left->idle_since = std::max(left->idle_since, right->idle_since);
  left->after = right->after;
  if (left->after != nullptr) {
    left->after->before = left;
  }
  right->segment->start(*right) = nullptr;
  store_.put(right);
  return left;
}

void DevicePool::flush_bins(StreamPools& pools) {
  pools.bins.flush([this](Block* block) {
    leave_free(*block);
    merge(block);
  });
}

// ---- driver work, under driver_ ----

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
// of the common pool and of private pools without a holder, or those of `only`.
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

// ---- idle memory ----

// Note [Idle memory]
// Where device memory is RAM, a cache that only grows takes it from everybody.
// A driver with memory.discard lets the system have the pages of a free block
// without freeing it: the block stays in its bin, and using it again costs
// nothing unless the system was short of memory. Small blocks stay as they are.
// Two rules choose blocks, and neither concerns a program that repeats its
// steps: what was free through a whole period of the sweeper, and, when more
// memory is needed, the longest idle of what exceeds kKeptIdle.
namespace {

// Free bytes whose pages are kept whatever happens to the rest.
constexpr std::size_t kKeptIdle = 256 * kMiB;

struct Range {
  std::byte* ptr;
  std::size_t bytes;
  StreamId stream;
  npu_status status;
};

// Neighbours become one range; `blocks` are in order of address.
std::vector<Range> ranges_of(const std::vector<Block*>& blocks) {
  std::vector<Range> out;
  const Segment* segment = nullptr;
  for (const Block* block : blocks) {
    if (block->segment == segment &&
        out.back().ptr + out.back().bytes == block->ptr) {
      out.back().bytes += block->size;
      continue;
    }
    segment = block->segment;
    out.push_back({block->ptr, block->size, segment->pool->stream, NPU_OK});
  }
  return out;
}

}  // namespace

void DevicePool::sweep_idle() {
  const std::lock_guard<std::mutex> driver(driver_);
  if (!backend_.discards()) {
    return;
  }
  std::uint64_t period_began = 0;
  {
    const Guard guard(lock_);
    period_began = std::exchange(sweep_tick_, ++tick_);
  }
  discard_idle(period_began, kUnlimited);
}

void DevicePool::discard_before_growth() {
  if (backend_.discards()) {
    discard_idle(0, kKeptIdle);
  }
}

// Blocks free since before `tick`, and the longest free of all others until at
// most `keep` bytes are left with their contents. Under driver_.
void DevicePool::discard_idle(std::uint64_t tick, std::size_t keep) {
  const std::vector<Block*> blocks = choose_idle(tick, keep);
  if (blocks.empty()) {
    return;
  }
  std::vector<Range> ranges = ranges_of(blocks);
  for (Range& range : ranges) {
    range.status =
        backend_.discard({device_, range.stream}, range.ptr, range.bytes);
  }
  const Guard guard(lock_);
  auto range = ranges.begin();
  for (Block* block : blocks) {
    while (block->ptr >= range->ptr + range->bytes || block->ptr < range->ptr) {
      ++range;
    }
    // A failure is no reason to try again: nothing is lost but pages.
    block->discarded = range->status != NPU_NOT_READY;
    block->being_discarded = false;
    if (block->state == Block::State::kIndexed) {
      // Neighbours that became free meanwhile could not merge with it.
      leave_free(*block);
      block->segment->pool->index.remove(block);
      merge(block);
    }
  }
}

// In order of address; they are not taken or merged until they are done.
std::vector<Block*> DevicePool::choose_idle(
    std::uint64_t tick, std::size_t keep) {
  std::vector<Block*> idle;
  const Guard guard(lock_);
  std::size_t kept = 0;
  for (const auto& segment : segments_) {
    // Memory of a user's functions is theirs.
    if (segment->pool->small || segment->source != nullptr) {
      continue;
    }
    for (Block* block = segment->first; block != nullptr;
         block = block->after) {
      if (block->is_free() && !block->discarded) {
        idle.push_back(block);
        kept += block->size;
      }
    }
  }
  std::sort(idle.begin(), idle.end(), [](const Block* a, const Block* b) {
    return a->idle_since < b->idle_since;
  });
  const auto end = std::find_if(idle.begin(), idle.end(), [&](Block* block) {
    const bool chosen = block->idle_since < tick || kept > keep;
    kept -= chosen ? block->size : 0;
    return !chosen;
  });
  idle.erase(end, idle.end());
  for (Block* block : idle) {
    block->being_discarded = true;
  }
  std::sort(idle.begin(), idle.end(), [](const Block* a, const Block* b) {
    return a->ptr < b->ptr;
  });
  return idle;
}

}  // namespace npu::memory
