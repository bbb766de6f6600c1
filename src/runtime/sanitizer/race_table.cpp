// SPDX-License-Identifier: Apache-2.0
// Which work is ordered before which, and which accesses to memory are not.
#include "runtime/sanitizer/race_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace npu::sanitizer {
namespace {

int class_of(const Region& region) {
  return static_cast<int>(std::bit_width(region.end() - region.begin()));
}

}  // namespace

void RaceTable::join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) {
    into.resize(other.size());
  }
  for (std::size_t i = 0; i < other.size(); ++i) {
    into[i] = std::max(into[i], other[i]);
  }
}

std::uint64_t RaceTable::at(const Clock& clock, std::uint32_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

std::uint32_t RaceTable::number_of(StreamName stream) {
  const auto [found, fresh] =
      numbers_.try_emplace(stream, static_cast<std::uint32_t>(names_.size()));
  if (fresh) {
    names_.push_back(stream);
    clocks_.emplace_back();
    clocks_.back().resize(names_.size());
  }
  return found->second;
}

RaceTable::Point RaceTable::launch(StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint32_t number = number_of(stream);
  Clock& clock = clocks_[number];
  join(clock, host_);
  return {number, ++clock[number]};
}

template <class Visit>
void RaceTable::each_meeting(
    Memory& memory, const Region& region, Visit visit) {
  for (auto& [width, entries] : memory.classes) {
    const std::uintptr_t reach = std::uintptr_t{1} << width;
    const std::uintptr_t low =
        region.begin() < reach ? 0 : region.begin() - reach;
    auto entry = entries.upper_bound(low);
    if (low == 0) {
      entry = entries.begin();
    }
    while (entry != entries.end() && entry->first < region.end()) {
      if (entry->second.access.region.end() > region.begin() &&
          visit(entry->second)) {
        entry = entries.erase(entry);
        --memory.size;
      } else {
        ++entry;
      }
    }
  }
}

void RaceTable::add(Memory& memory, Entry entry) {
  const Region& region = entry.access.region;
  const std::uintptr_t begin = region.begin();
  memory.classes[class_of(region)].emplace(begin, std::move(entry));
  if (++memory.size > kMostAccesses) {
    shrink(memory);
  }
}

// What the host has waited for cannot race with anything any more. Where that
// is not enough, the oldest launches go: a race with them is not found.
void RaceTable::shrink(Memory& memory) {
  const auto remove = [&](auto wanted) {
    for (auto& [width, entries] : memory.classes) {
      memory.size -= std::erase_if(
          entries, [&](const auto& entry) { return wanted(entry.second); });
    }
  };
  remove([&](const Entry& entry) { return happened(host_, entry.point); });
  if (memory.size > kMostAccesses / 2) {
    std::vector<std::uint64_t> counts;
    for (const Clock& clock : clocks_) {
      counts.push_back(at(clock, static_cast<std::uint32_t>(counts.size())));
    }
    remove([&](const Entry& entry) {
      return entry.point.number <= counts[entry.point.stream] / 2 ||
             counts[entry.point.stream] - entry.point.number >
                 kMostAccesses / 8;
    });
  }
}

RaceTable::Block* RaceTable::block_at(Memory& memory, std::uintptr_t address) {
  auto after = memory.blocks.upper_bound(address);
  if (after == memory.blocks.begin()) {
    return nullptr;
  }
  auto& [base, block] = *--after;
  return address < base + std::max<std::size_t>(block.bytes, 1) ? &block
                                                                : nullptr;
}

void RaceTable::access(
    int where, Point point, Access access, std::vector<Race>& found) {
  if (access.region.empty()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  access.stream = names_[point.stream];
  const Clock& clock = clocks_[point.stream];
  Memory& memory = memories_[where];
  bool known = false;
  each_meeting(memory, access.region, [&](Entry& entry) {
    const bool ordered = happened(clock, entry.point);
    if (!ordered && (entry.access.write || access.write) &&
        entry.access.region.meets(access.region)) {
      const Block* const block = block_at(memory, access.region.begin());
      found.push_back(
          {entry.access, access, block != nullptr ? block->launch : nullptr});
      return true;  // once is enough
    }
    if (entry.point.stream == point.stream &&
        entry.point.number == point.number && entry.access.write &&
        entry.access.region.covers(access.region)) {
      known = true;  // the launch writes these bytes: no need for its read
    }
    // Whatever races with the older one and comes later races with this one,
    // or comes after it.
    return ordered && (access.write || !entry.access.write) &&
           access.region.covers(entry.access.region);
  });
  if (!known) {
    add(memory, {std::move(access), point});
  }
}

void RaceTable::access_of_host(Access access, std::vector<Race>& found) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto memory = memories_.find(kHostMemory);
  if (memory == memories_.end() || access.region.empty()) {
    return;
  }
  access.stream = {kHostMemory, 0};
  each_meeting(memory->second, access.region, [&](Entry& entry) {
    if (happened(host_, entry.point)) {
      return true;
    }
    if ((entry.access.write || access.write) &&
        entry.access.region.meets(access.region)) {
      found.push_back({entry.access, access});
      return true;
    }
    return false;
  });
}

// ---- order ----

void RaceTable::record(EventKey event, StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint32_t number = number_of(stream);
  join(clocks_[number], host_);
  events_[event] = clocks_[number];
}

void RaceTable::add_to_event(EventKey event, EventKey other) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = events_.find(other); found != events_.end()) {
    const Clock clock = found->second;
    join(events_[event], clock);
  }
}

void RaceTable::record_launch(EventKey event, Point point) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_[event] = clocks_[point.stream];
}

void RaceTable::wait(StreamName stream, EventKey event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::uint32_t number = number_of(stream);
  if (const auto found = events_.find(event); found != events_.end()) {
    join(clocks_[number], found->second);
  }
}

void RaceTable::forget_event(EventKey event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.erase(event);
}

void RaceTable::synchronize_event(EventKey event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = events_.find(event); found != events_.end()) {
    join(host_, found->second);
  }
}

void RaceTable::synchronize_stream(StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  join(host_, clocks_[number_of(stream)]);
}

void RaceTable::synchronize_device(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].device == device && names_[i].id < kFirstGroupStream) {
      join(host_, clocks_[i]);
    }
  }
}

// ---- memory ----

void RaceTable::allocated(
    int where,
    const void* data,
    std::size_t bytes,
    StreamName owner,
    LaunchPtr launch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  number_of(owner);
  memories_[where].blocks[reinterpret_cast<std::uintptr_t>(data)] = {
      bytes, owner, std::move(launch), {}};
}

void RaceTable::use_recorded(int where, const void* data, StreamName stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* const block =
      block_at(memories_[where], reinterpret_cast<std::uintptr_t>(data));
  if (block != nullptr) {
    block->recorded.insert(stream);
  }
}

void RaceTable::find_missing(
    Memory& memory,
    std::uintptr_t base,
    Block& block,
    bool freed,
    std::vector<MissingRecord>& found) {
  Clock owner = clocks_[number_of(block.owner)];
  join(owner, host_);
  std::set<StreamName> named;
  each_meeting(
      memory,
      Region(reinterpret_cast<const void*>(base), block.bytes),
      [&](Entry& entry) {
        const StreamName stream = names_[entry.point.stream];
        // The allocator waits for the streams it was told of, and a process
        // group holds what it uses.
        if (stream.id >= kFirstGroupStream || block.recorded.contains(stream)) {
          return freed;
        }
        if (stream != block.owner && !happened(owner, entry.point) &&
            named.insert(stream).second) {
          found.push_back({entry.access, block.owner, block.launch, freed});
        }
        entry.access.released = entry.access.released || freed;
        return false;
      });
}

void RaceTable::freed(
    int where, const void* data, std::vector<MissingRecord>& found) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Memory& memory = memories_[where];
  const auto block = memory.blocks.find(reinterpret_cast<std::uintptr_t>(data));
  if (block != memory.blocks.end()) {
    find_missing(memory, block->first, block->second, true, found);
    memory.blocks.erase(block);
  }
}

void RaceTable::forget(int where, const void* data, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto memory = memories_.find(where);
  if (memory != memories_.end()) {
    each_meeting(
        memory->second, Region(data, bytes), [](Entry&) { return true; });
  }
}

std::vector<MissingRecord> RaceTable::missing_records() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MissingRecord> found;
  for (auto& [where, memory] : memories_) {
    for (auto& [base, block] : memory.blocks) {
      find_missing(memory, base, block, false, found);
    }
  }
  return found;
}

std::size_t RaceTable::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t size = 0;
  for (const auto& [where, memory] : memories_) {
    size += memory.size;
  }
  return size;
}

}  // namespace npu::sanitizer
