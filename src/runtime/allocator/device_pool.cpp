// SPDX-License-Identifier: Apache-2.0
// Blocks: the fast path, splitting, merging, statistics. See Note [Two locks].
#include "runtime/allocator/device_pool.h"

#include <algorithm>
#include <utility>

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

}  // namespace npu::memory
