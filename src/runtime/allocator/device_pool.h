// SPDX-License-Identifier: Apache-2.0
// The memory of one device: hands out blocks, takes them back, talks to the
// driver only when it must.
//
// Note [Two locks]
// `lock_` guards blocks, pools, statistics and history; it is held for a few
// dozen instructions and never across a driver call or user code. `driver_`
// is a mutex around everything that calls the driver: growing, releasing,
// events. Order: driver_, then lock_.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/allocator/backend.h"
#include "runtime/allocator/block.h"
#include "runtime/allocator/config.h"
#include "runtime/allocator/ledger.h"
#include "runtime/allocator/pool.h"
#include "runtime/allocator/segment_table.h"
#include "runtime/allocator/spin_lock.h"
#include "runtime/allocator/stats.h"
#include "runtime/allocator/sweeper.h"
#include "runtime/allocator/trace.h"

namespace npu::memory {

class DevicePool {
 public:
  // `source` null: segments are the driver's memory.
  // `sweeper`: started with the first large segment; may be null.
  DevicePool(
      int device,
      Backend& backend,
      SegmentTable& table,
      const Config& config,
      SegmentSource* source = nullptr,
      Sweeper* sweeper = nullptr);
  // Gives all memory back; only tests destroy a pool.
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Never null; throws OutOfMemory, or what the backend's failure was.
  void* allocate(StreamId stream, std::size_t bytes);
  // Bytes the block had, 0 when `ptr` is not a live block's start.
  std::size_t free(Segment* segment, void* ptr);
  // `ptr` may be interior; false when it lies in no live block.
  bool record_stream(Segment* segment, void* ptr, StreamKey stream);

  void empty_cache();

  // Private pools; private_pool.cpp. A pool is made when it is first held and
  // its options are those of that call.
  void hold_pool(PoolId id, const PoolOptions& options);
  // The last holder's release gives idle segments back; those with live blocks
  // are given back like the common pool's.
  void release_pool(PoolId id);
  std::size_t pool_holders(PoolId id);
  // From here on this thread's requests go to the pool, which is held
  // meanwhile; routes nest and end in reverse order.
  void begin_route(PoolId id);
  void end_route(PoolId id);
  // Idle segments of one private pool, also while it is held.
  void empty_pool(PoolId id);

  // Discards what was free since the call before. Note [Idle memory].
  void sweep_idle();
  // Caching stays as it began, a fraction set for this device as it is.
  void set_config(const Config& config);
  void set_memory_fraction(double fraction);
  double memory_fraction();

  DeviceStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();

  std::vector<SegmentInfo> snapshot();
  // Keeps the last `limit` events; 0 stops and forgets them.
  void record_history(std::size_t limit, Record when, ContextFn context);
  bool recording() const {
    return (attention_.load(std::memory_order_relaxed) & kTracing) != 0;
  }
  std::vector<TraceEntry> history(bool clear);

 private:
  struct Request {
    StreamId stream;
    std::size_t bytes;  // as asked
    std::size_t rounded;
    Context context;
    PrivatePool* apart = nullptr;
  };
  struct Waiting {
    npu_event event;
    Block* block;
  };
  struct StreamKeyHash {
    std::size_t operator()(const StreamKey& key) const {
      return static_cast<std::size_t>(key.id) * 64 +
             static_cast<std::size_t>(key.device);
    }
  };
  // Reasons to leave the fast path.
  static constexpr unsigned kTracing = 1;
  static constexpr unsigned kWaiting = 2;
  static constexpr unsigned kUncached = 4;
  static constexpr unsigned kFailed = 8;
  // Not a reason to leave it, but to ask where this thread's requests go.
  static constexpr unsigned kRouted = 16;

  // Blocks, under lock_.
  StreamPools& pools_of(StreamId stream) {
    const bool direct = stream >= 0 && stream < kDirect;
    StreamPools* found = direct ? direct_[stream] : nullptr;
    return found != nullptr ? *found
           : direct         ? make_pools(stream)
                            : other_pools(stream);
  }
  StreamPools& pools_for(const Request& request) {
    return request.apart == nullptr ? pools_of(request.stream)
                                    : request.apart->of(request.stream);
  }
  StreamPools& make_pools(StreamId stream);
  StreamPools& other_pools(StreamId stream);
  Block* take(const Request& request, bool flush);
  Block* take_indexed(StreamPools& pools, const Request& request, bool flush);
  Block* carve(Pool& pool, Block* block, std::size_t rounded);
  void hand_out(Block* block, const Request& request);
  void put_back(Block* block);
  void merge(Block* block);
  Block* absorb(Block* left, Block* right);
  void flush_bins(StreamPools& pools);
  void enter_free(const Block& block);
  void leave_free(const Block& block);
  void count_allocated(const Block& block);
  void count_freed(const Block& block, bool pending);
  // The live block that begins at `ptr`, or holds it; else null.
  Block* block_at(Segment* segment, void* ptr);
  Block* block_around(Segment* segment, void* ptr);
  bool may_split(const Pool& pool, const Block& block, std::size_t rounded);

  // Driver work, under driver_.
  void* allocate_slow(Request request);
  void* finish(Block* block, const Request& request);
  Block* grow(const Request& request, std::size_t bytes);
  Block* grow_after_release(const Request& request, std::size_t bytes);
  Block* add_segment(const Request& request, void* base, std::size_t bytes);
  void collect_garbage(std::size_t needed);
  void release_idle(std::size_t enough, const PrivatePool* only = nullptr);
  std::unique_ptr<Segment> detach(Segment* segment);
  void release(std::vector<std::unique_ptr<Segment>> segments);
  SegmentSource* source_of(const Request& request) const;
  npu_status give_back(
      SegmentSource* source, StreamId stream, void* base, std::size_t bytes);
  void free_slow(Block* block);
  void complete(Block* block);
  void poll_events(bool wait);
  void defer_failure(npu_status status, const char* what) noexcept;
  void raise_deferred();
  [[noreturn]] void out_of_memory(const Request& request);
  std::size_t limit();
  std::size_t total_memory();

  // private_pool.cpp, under lock_ but for routed_pool.
  PrivatePool* routed_pool() const;
  PrivatePool* find_pool(PoolId id);
  PrivatePool& hold(PoolId id, const PoolOptions& options);
  bool let_go(PoolId id);
  void flush_private_bins();
  void forget_empty_pools();
  Block* take_from_lenders(Request request);
  // Idle memory, under driver_.
  void discard_before_growth();
  void discard_idle(std::uint64_t tick, std::size_t keep);
  std::vector<Block*> choose_idle(std::uint64_t tick, std::size_t keep);

  // device_trace.cpp
  Context context_if(Record least);
  void trace(
      Action action,
      std::uintptr_t address,
      std::size_t size,
      StreamId stream,
      Context context);
  void attend(unsigned bit, bool on);

  const int device_;
  Backend& backend_;
  SegmentTable& table_;
  SegmentSource* const source_;
  Sweeper* const sweeper_;

  alignas(64) SpinLock lock_;
  std::atomic<unsigned> attention_{0};
  std::uint64_t tick_ = 0;
  std::uint64_t sweep_tick_ = 0;  // tick_ at the last sweep
  Config config_;
  BlockStore store_;
  static constexpr StreamId kDirect = 256;  // ids in practice are below
  std::vector<std::unique_ptr<StreamPools>> pools_;
  StreamPools* direct_[kDirect] = {};
  std::unordered_map<StreamId, StreamPools*> others_;
  std::map<PoolId, std::unique_ptr<PrivatePool>> private_;
  std::size_t routes_ = 0;
  std::vector<std::unique_ptr<Segment>> segments_;
  Ledger ledger_;
  DeviceStats stats_;  // what the ledger does not count
  TraceRing ring_;
  Record record_ = Record::kNever;

  std::mutex driver_;
  std::unordered_map<StreamKey, std::deque<Waiting>, StreamKeyHash> waiting_;
  std::exception_ptr failure_;
  std::size_t total_memory_ = 0;

  std::mutex context_mutex_;  // context_fn_ is user code: copied, then called
  ContextFn context_fn_;
};

// ---- inline: on the way of every allocation and free ------------------------

inline void DevicePool::enter_free(const Block& block) {
  if (block.is_split()) {
    ledger_.split_enters(
        block.segment->pool->small, static_cast<std::int64_t>(block.size));
  }
}

inline void DevicePool::leave_free(const Block& block) {
  if (block.is_split()) {
    ledger_.split_leaves(
        block.segment->pool->small, static_cast<std::int64_t>(block.size));
  }
}

inline void DevicePool::count_allocated(const Block& block) {
  ledger_.allocated(
      block.segment->pool->small,
      static_cast<std::int64_t>(block.size),
      static_cast<std::int64_t>(block.requested));
  if (block.oversize) [[unlikely]] {
    stats_.oversize_allocations.increase(1);
  }
}

inline void DevicePool::count_freed(const Block& block, bool pending) {
  ledger_.freed(
      block.segment->pool->small,
      static_cast<std::int64_t>(block.size),
      static_cast<std::int64_t>(block.requested),
      pending);
  if (block.oversize) [[unlikely]] {
    stats_.oversize_allocations.decrease(1);
  }
}

inline Block* DevicePool::take(const Request& request, bool flush) {
  StreamPools& pools = pools_for(request);
  ++tick_;
  if (Block* block = pools.bins.pop(request.rounded)) {
    leave_free(*block);
    return block;
  }
  return take_indexed(pools, request, flush);
}

inline void DevicePool::hand_out(Block* block, const Request& request) {
  block->state = Block::State::kAllocated;
  block->requested = request.bytes;
  block->rounded = request.rounded;
  block->next = nullptr;
  block->discarded = false;
  block->oversize = block->size >= config_.max_split_size;
  ++block->segment->live;
  count_allocated(*block);
}

// The block is free from here on: into its bin, or merged.
inline void DevicePool::put_back(Block* block) {
  Segment* segment = block->segment;
  block->idle_since = tick_;
  if (--segment->live == 0) {
    segment->idle_since = tick_;
  }
  Bins& bins = segment->pool->owner->bins;
  if (block->size < config_.max_split_size && bins.push(block)) {
    block->state = Block::State::kBinned;
    enter_free(*block);
    return;
  }
  merge(block);
}

inline Block* DevicePool::block_at(Segment* segment, void* ptr) {
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(ptr) - segment->base);
  Block* block = segment->blocks[offset];
  const bool live = block != nullptr &&
                    block->state == Block::State::kAllocated &&
                    block->ptr == ptr;
  return live ? block : nullptr;
}

}  // namespace npu::memory
