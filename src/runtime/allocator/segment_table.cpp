// SPDX-License-Identifier: Apache-2.0
// The address table: sequence lock, binary search, per-thread memory.
#include "runtime/allocator/segment_table.h"

#include <thread>

namespace npu::memory {
namespace {

// Versions are never used twice, by any table, so that a thread's remembered
// interval can be trusted from its version alone.
std::uint64_t fresh_version() {
  static std::atomic<std::uint64_t> next{2};
  return next.fetch_add(2, std::memory_order_relaxed);
}

// Few: thread-local space is scarce in a loaded library.
constexpr std::size_t kRemembered = 8;

}  // namespace

struct SegmentTable::Interval {
  std::uint64_t version = 0;
  std::uintptr_t base = 0;
  std::uintptr_t end = 0;
  Segment* segment = nullptr;
  int device = -1;
};

SegmentTable::SegmentTable() : version_(fresh_version()) {
  tables_.push_back(std::make_unique<Table>(64));
  table_.store(tables_.back().get(), std::memory_order_release);
}

SegmentTable::Place SegmentTable::find(const void* ptr) const noexcept {
  static thread_local constinit Interval remembered[kRemembered] = {};
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  Interval& slot = remembered[(address >> 20) % kRemembered];
  if (slot.version != version_.load(std::memory_order_acquire) ||
      address < slot.base || address >= slot.end) [[unlikely]] {
    search(address, slot);
  }
  return {slot.device, slot.segment};
}

// Loads are acquire, stores release: a reader that saw any part of a change
// then also sees that the version moved.
void SegmentTable::search(
    std::uintptr_t address, Interval& out) const noexcept {
  for (;;) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if ((version & 1) != 0) {
      std::this_thread::yield();
      continue;
    }
    const Table& table = *table_.load(std::memory_order_acquire);
    const std::size_t size = size_.load(std::memory_order_acquire);
    if (size > table.capacity) {
      continue;  // of different moments
    }
    std::size_t low = 0;  // first row whose end lies above the address
    std::size_t high = size;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (table.rows[middle].end.load(std::memory_order_acquire) <= address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    Interval found;
    found.version = version;
    found.base =
        low > 0 ? table.rows[low - 1].end.load(std::memory_order_acquire) : 0;
    found.end = UINTPTR_MAX;
    if (low < size) {
      const Row& row = table.rows[low];
      const std::uintptr_t base = row.base.load(std::memory_order_acquire);
      if (base <= address) {
        found.base = base;
        found.end = row.end.load(std::memory_order_acquire);
        found.segment = row.segment.load(std::memory_order_acquire);
        found.device = row.device.load(std::memory_order_acquire);
      } else {
        found.end = base;
      }
    }
    if (version_.load(std::memory_order_relaxed) == version) {
      out = found;
      return;
    }
  }
}

void SegmentTable::begin_write() {
  version_.store(
      version_.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
}

void SegmentTable::end_write() {
  version_.store(fresh_version(), std::memory_order_release);
}

void SegmentTable::copy_row(Row& to, const Row& from) {
  constexpr auto kRead = std::memory_order_relaxed;
  constexpr auto kWrite = std::memory_order_release;
  to.base.store(from.base.load(kRead), kWrite);
  to.end.store(from.end.load(kRead), kWrite);
  to.segment.store(from.segment.load(kRead), kWrite);
  to.device.store(from.device.load(kRead), kWrite);
}

void SegmentTable::insert(
    const void* base, std::size_t bytes, int device, Segment* segment) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Table* table = table_.load(std::memory_order_relaxed);
  const std::size_t size = size_.load(std::memory_order_relaxed);
  std::unique_ptr<Table> larger;
  if (size == table->capacity) {
    larger = std::make_unique<Table>(2 * table->capacity);
    tables_.reserve(tables_.size() + 1);
    for (std::size_t i = 0; i < size; ++i) {
      copy_row(larger->rows[i], table->rows[i]);
    }
  }
  begin_write();
  if (larger != nullptr) {
    table = larger.get();
    table_.store(table, std::memory_order_release);
    tables_.push_back(std::move(larger));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  std::size_t at = size;
  while (at > 0 &&
         table->rows[at - 1].base.load(std::memory_order_relaxed) > address) {
    copy_row(table->rows[at], table->rows[at - 1]);
    --at;
  }
  Row& row = table->rows[at];
  row.base.store(address, std::memory_order_release);
  row.end.store(address + bytes, std::memory_order_release);
  row.segment.store(segment, std::memory_order_release);
  row.device.store(device, std::memory_order_release);
  size_.store(size + 1, std::memory_order_release);
  end_write();
}

void SegmentTable::erase(const void* base) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Table& table = *table_.load(std::memory_order_relaxed);
  const std::size_t size = size_.load(std::memory_order_relaxed);
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  std::size_t at = 0;
  while (at < size &&
         table.rows[at].base.load(std::memory_order_relaxed) != address) {
    ++at;
  }
  if (at == size) {
    return;
  }
  begin_write();
  for (; at + 1 < size; ++at) {
    copy_row(table.rows[at], table.rows[at + 1]);
  }
  size_.store(size - 1, std::memory_order_release);
  end_write();
}

}  // namespace npu::memory
