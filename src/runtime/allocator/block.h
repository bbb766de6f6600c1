// SPDX-License-Identifier: Apache-2.0
// Segments of driver memory and the blocks they are cut into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "runtime/allocator/backend.h"
#include "runtime/allocator/size_class.h"

namespace npu::memory {

struct Pool;
struct Segment;

// Where an allocation came from (a stack trace); opaque down here.
using Context = std::shared_ptr<void>;

struct Block {
  enum class State : std::uint8_t {
    kAllocated,
    kPending,  // freed by the user, still used by another stream
    kBinned,   // free, kept whole for the next request of its size
    kIndexed,  // free, merged with its free neighbours
  };

  std::byte* ptr = nullptr;
  std::size_t size = 0;
  std::size_t rounded = 0;    // what was asked, rounded; bins are keyed by it
  std::size_t requested = 0;  // what was asked
  Segment* segment = nullptr;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
  Block* next = nullptr;  // in a bin or a list of the free index
  Block* prev = nullptr;
  std::unique_ptr<std::vector<StreamKey>> uses;  // record_stream
  std::uint64_t idle_since = 0;                  // tick when it became free
  int events = 0;                                // not yet done, when pending
  State state = State::kIndexed;
  bool discarded = false;        // its contents were, since it became free
  bool being_discarded = false;  // it is not taken or merged meanwhile
  bool oversize = false;         // counted so when it was handed out
  Context context;

  bool is_split() const {
    return before != nullptr || after != nullptr;
  }
  bool is_free() const {
    return state == State::kBinned || state == State::kIndexed;
  }
  bool can_merge() const {
    return state == State::kIndexed && !being_discarded;
  }
};

// Block at each kUnit of a segment, null between starts. Pages of it that no
// block starts in are never touched.
class BlockMap {
 public:
  explicit BlockMap(std::size_t segment_bytes)
      : starts_(static_cast<Block**>(
            std::calloc(segment_bytes / kUnit + 1, sizeof(Block*)))) {
    if (starts_ == nullptr) {
      throw std::bad_alloc();
    }
  }
  ~BlockMap() {
    std::free(starts_);
  }
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  Block*& operator[](std::size_t offset) {
    return starts_[offset >> kUnitShift];
  }

 private:
  Block** starts_;
};

struct Segment {
  Segment(int device_, Pool* pool_, std::byte* base_, std::size_t size_)
      : device(device_), pool(pool_), base(base_), size(size_), blocks(size_) {}

  int device;
  Pool* pool;
  std::byte* base;
  std::size_t size;
  BlockMap blocks;
  Block* first = nullptr;
  std::size_t live = 0;          // blocks allocated or pending
  std::uint64_t idle_since = 0;  // tick when live became 0
  std::size_t position = 0;      // in the device's list
  bool oversize = false;
  StreamId stream = 0;
  SegmentSource* source = nullptr;  // null: the driver's memory
  Context context;

  Block*& start(const Block& block) {
    return blocks[static_cast<std::size_t>(block.ptr - base)];
  }
};

// Block records, recycled; given back to the system never.
class BlockStore {
 public:
  Block* take() {
    if (free_ == nullptr) {
      grow();
    }
    Block* block = free_;
    free_ = block->next;
    block->next = nullptr;
    return block;
  }
  void put(Block* block) {
    *block = Block{};
    block->next = free_;
    free_ = block;
  }

 private:
  void grow() {
    slabs_.push_back(std::make_unique<Block[]>(kSlab));
    for (std::size_t i = 0; i < kSlab; ++i) {
      put(&slabs_.back()[i]);
    }
  }

  static constexpr std::size_t kSlab = 256;
  Block* free_ = nullptr;
  std::vector<std::unique_ptr<Block[]>> slabs_;
};

}  // namespace npu::memory
