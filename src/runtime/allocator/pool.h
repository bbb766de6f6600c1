// SPDX-License-Identifier: Apache-2.0
// Free blocks of one stream: bins for exact reuse, an index for best fit.
//
// A freed block first goes into the bin of its size, whole, and the next
// request of that size takes it from there: a training step that repeats
// itself neither splits nor merges. Only when nothing fits are the bins
// flushed into the index, where free neighbours merge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "runtime/allocator/block.h"
#include "runtime/allocator/config.h"

namespace npu::memory {

// Merged free blocks in lists by size class; bitmaps find the next one.
class FreeIndex {
 public:
  void insert(Block* block);
  void remove(Block* block);
  // The best of the blocks that can hold `rounded` bytes under the rules of
  // max_split_size, or null. The block stays in the index.
  Block* find(std::size_t rounded, const Config& config) const;

 private:
  Block* best_in(SizeClass at, std::size_t rounded, const Config& config) const;

  std::uint64_t levels_ = 0;
  std::array<std::uint32_t, kLevels> subs_{};
  std::array<std::array<Block*, kSubCount>, kLevels> heads_{};
};

// Blocks kept whole, by rounded size: one list per small size, and a table
// where each entry holds one larger size at a time.
class Bins {
 public:
  Block* pop(std::size_t rounded) {
    const std::size_t at = slot(rounded);
    Block* block = heads_[at];
    if (block == nullptr || block->rounded != rounded ||
        block->being_discarded) {
      return nullptr;
    }
    heads_[at] = block->next;
    if (block->next == nullptr) {
      full_[at / 64] &= ~(std::uint64_t{1} << (at % 64));
    }
    return block;
  }
  // False when the entry holds another size: merge the block instead.
  bool push(Block* block) {
    const std::size_t at = slot(block->rounded);
    Block* head = heads_[at];
    if (head == nullptr) {
      full_[at / 64] |= std::uint64_t{1} << (at % 64);
    } else if (head->rounded != block->rounded) {
      return false;
    }
    block->next = head;
    heads_[at] = block;
    return true;
  }
  // Empties the bins; true when there was anything in them.
  template <typename Fn>
  bool flush(Fn each) {
    bool any = false;
    for (std::size_t word = 0; word < full_.size(); ++word) {
      while (full_[word] != 0) {
        const std::size_t at =
            word * 64 + static_cast<std::size_t>(std::countr_zero(full_[word]));
        full_[word] &= full_[word] - 1;
        Block* block = heads_[at];
        heads_[at] = nullptr;
        while (block != nullptr) {
          Block* next = block->next;
          block->next = nullptr;
          each(block);
          block = next;
          any = true;
        }
      }
    }
    return any;
  }

 private:
  static constexpr std::size_t kExact = (kSmallLimit >> kUnitShift) + 1;
  static constexpr std::size_t kHashed = 512;
  static std::size_t slot(std::size_t rounded) {
    const std::size_t units = rounded >> kUnitShift;
    if (units < kExact) {
      return units;
    }
    return kExact + (units * 0x9E3779B97F4A7C15ull >> (64 - 9));
  }
  static_assert(kHashed == std::size_t{1} << 9);

  std::array<Block*, kExact + kHashed> heads_{};
  std::array<std::uint64_t, (kExact + kHashed + 63) / 64> full_{};
};

struct StreamPools;
struct PrivatePool;

// Segments never change pool: small and large blocks do not mix.
struct Pool {
  StreamPools* owner = nullptr;
  StreamId stream = 0;
  bool small = false;
  FreeIndex index;
};

struct StreamPools {
  explicit StreamPools(StreamId stream) {
    small.owner = large.owner = this;
    small.stream = large.stream = stream;
    small.small = true;
  }
  StreamPools(const StreamPools&) = delete;
  StreamPools& operator=(const StreamPools&) = delete;

  PrivatePool* apart = nullptr;  // the private pool they belong to, if any
  Bins bins;
  Pool small;
  Pool large;

  Pool& of(std::size_t rounded) {
    return is_small(rounded) ? small : large;
  }
};

// Names a private pool; {0, 0} is the common one.
using PoolId = std::pair<std::uint64_t, std::uint64_t>;

struct PoolOptions {
  SegmentSource* source = nullptr;  // null: the driver's memory
  bool use_on_oom = false;  // others may have its idle blocks before they fail
  bool no_split = false;    // a segment per block
};

// Memory kept apart: its blocks go only to requests routed to it, and its idle
// segments stay until the pool has no owner.
struct PrivatePool {
  PrivatePool(PoolId id_, const PoolOptions& options_)
      : id(id_), options(options_) {}

  StreamPools& of(StreamId stream) {
    std::unique_ptr<StreamPools>& found = streams[stream];
    if (found == nullptr) {
      found = std::make_unique<StreamPools>(stream);
      found->apart = this;
    }
    return *found;
  }

  const PoolId id;
  const PoolOptions options;
  std::size_t holders = 0;   // MemPool objects and routes
  std::size_t segments = 0;  // taken and not given back
  std::map<StreamId, std::unique_ptr<StreamPools>> streams;
};

}  // namespace npu::memory
