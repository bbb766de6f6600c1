// SPDX-License-Identifier: Apache-2.0
// Memory history and snapshots, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/allocator/block.h"

namespace npu::memory {

enum class Action : std::uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSnapshot,
  kOutOfMemory,  // address holds the bytes the device had free
};
// "alloc", "free_requested", ... as torch.cuda's snapshots name them.
const char* action_name(Action action) noexcept;

struct TraceEntry {
  Action action = Action::kAlloc;
  std::uintptr_t address = 0;
  std::size_t size = 0;
  StreamId stream = 0;
  std::int64_t time_us = 0;
  Context context;
};

struct BlockInfo {
  std::uintptr_t address = 0;
  std::size_t size = 0;
  std::size_t requested_size = 0;
  // "active_allocated", "active_pending_free" or "inactive".
  const char* state = "inactive";
  Context context;
};

struct SegmentInfo {
  int device = 0;
  std::uintptr_t address = 0;
  std::size_t total_size = 0;
  std::size_t allocated_size = 0;
  std::size_t active_size = 0;
  std::size_t requested_size = 0;
  StreamId stream = 0;
  std::pair<std::uint64_t, std::uint64_t> pool{0, 0};  // {0, 0}: the common one
  bool is_large = false;
  Context context;
  std::vector<BlockInfo> blocks;
};

// When a context (stack trace) is taken.
enum class Record : std::uint8_t {
  kNever,
  kState,  // for live blocks only
  kAlloc,  // also in the history of allocations
  kAll,    // also of frees
};

using ContextFn = std::function<Context()>;

// The last `limit` entries, oldest first when read. The owner locks.
class TraceRing {
 public:
  void set_limit(std::size_t limit);
  void add(TraceEntry entry);
  std::vector<TraceEntry> read() const;
  void clear();

 private:
  std::size_t limit_ = 1;
  std::size_t oldest_ = 0;
  std::vector<TraceEntry> entries_;
};

std::int64_t now_us();

}  // namespace npu::memory
