// SPDX-License-Identifier: Apache-2.0
// The ring of trace entries.
#include "runtime/allocator/trace.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace npu::memory {

const char* action_name(Action action) noexcept {
  switch (action) {
    case Action::kAlloc:
      return "alloc";
    case Action::kFreeRequested:
      return "free_requested";
    case Action::kFreeCompleted:
      return "free_completed";
    case Action::kSegmentAlloc:
      return "segment_alloc";
    case Action::kSegmentFree:
      return "segment_free";
    case Action::kSnapshot:
      return "snapshot";
    case Action::kOutOfMemory:
      return "oom";
  }
  return "unknown";
}

void TraceRing::set_limit(std::size_t limit) {
  std::vector<TraceEntry> kept = read();
  limit_ = std::max<std::size_t>(limit, 1);
  if (kept.size() > limit_) {
    kept.erase(kept.begin(), kept.end() - static_cast<std::ptrdiff_t>(limit_));
  }
  entries_ = std::move(kept);
  oldest_ = 0;
}

void TraceRing::add(TraceEntry entry) {
  if (entries_.size() < limit_) {
    entries_.push_back(std::move(entry));
    return;
  }
  entries_[oldest_] = std::move(entry);
  oldest_ = (oldest_ + 1) % limit_;
}

std::vector<TraceEntry> TraceRing::read() const {
  std::vector<TraceEntry> out;
  out.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    out.push_back(entries_[(oldest_ + i) % entries_.size()]);
  }
  return out;
}

void TraceRing::clear() {
  entries_.clear();
  oldest_ = 0;
}

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace npu::memory
