// SPDX-License-Identifier: Apache-2.0
// Which segment an address lies in: read without a lock, a few nanoseconds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace npu::memory {

struct Segment;

// A sorted table behind a sequence number. Writers (segments come and go
// seldom) make the number odd, change the table and give it a fresh even one;
// readers repeat when it changed under them. Each thread remembers the last
// intervals it asked for, gaps between segments included, so that most
// questions are two comparisons.
class SegmentTable {
 public:
  SegmentTable();

  // `segment` is meaningful only while the address belongs to a live block.
  struct Place {
    int device = -1;
    Segment* segment = nullptr;
  };
  Place find(const void* ptr) const noexcept;

  void insert(
      const void* base, std::size_t bytes, int device, Segment* segment);
  void erase(const void* base);

  // Around fork(), so that a child never inherits a half-written table.
  std::mutex& writer_mutex() {
    return mutex_;
  }

 private:
  struct Row {
    std::atomic<std::uintptr_t> base{0};
    std::atomic<std::uintptr_t> end{0};
    std::atomic<Segment*> segment{nullptr};
    std::atomic<int> device{-1};
  };
  struct Table {
    explicit Table(std::size_t capacity_)
        : capacity(capacity_), rows(new Row[capacity_]) {}
    std::size_t capacity;
    std::unique_ptr<Row[]> rows;
  };
  struct Interval;

  void search(std::uintptr_t address, Interval& out) const noexcept;
  void begin_write();
  void end_write();
  static void copy_row(Row& to, const Row& from);

  std::atomic<std::uint64_t> version_;
  std::atomic<Table*> table_{nullptr};
  std::atomic<std::size_t> size_{0};
  std::mutex mutex_;
  // Outgrown tables stay: a reader may still be in one.
  std::vector<std::unique_ptr<Table>> tables_;
};

}  // namespace npu::memory
