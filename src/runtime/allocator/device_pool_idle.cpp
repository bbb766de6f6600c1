// SPDX-License-Identifier: Apache-2.0
// Large blocks that stay free: the system may have their pages.
//
// Note [Idle memory]
// Where device memory is RAM, a cache that only grows takes it from everybody.
// A driver with memory.discard lets the system have the pages of a free block
// without freeing it: the block stays in its bin, and using it again costs
// nothing unless the system was short of memory. Small blocks stay as they are.
// Two rules choose blocks, and neither concerns a program that repeats its
// steps: what was free through a whole period of the sweeper, and, when more
// memory is needed, the longest idle of what exceeds kKeptIdle.
#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/allocator/device_pool.h"

namespace npu::memory {
namespace {

using Guard = std::lock_guard<SpinLock>;

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
