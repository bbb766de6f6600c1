// SPDX-License-Identifier: Apache-2.0
// The counters every allocation and free touches, kept as few as will do.
//
// All of DeviceStats' block statistics can be had from less: "all" is small
// plus large, "freed" is allocated less what is there, "active" is allocated
// plus pending, and its peak is that of allocated unless something pends.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "runtime/allocator/stats.h"

namespace npu::memory {

class Ledger {
 public:
  void allocated(bool small, std::int64_t size, std::int64_t requested) {
    Account& account = accounts_[small ? 0 : 1];
    account.blocks.add(1, size);
    account.requested.current += requested;
    account.requested.sum += requested;
    raise_allocated(small ? 0 : 1);
  }
  // No longer the user's; `pending` when another stream still uses it.
  void freed(
      bool small, std::int64_t size, std::int64_t requested, bool pending) {
    Account& account = accounts_[small ? 0 : 1];
    account.blocks.count.current -= 1;
    account.blocks.bytes.current -= size;
    account.requested.current -= requested;
    if (pending) [[unlikely]] {
      account.pending_count += 1;
      account.pending_bytes += size;
      anything_pends_ = true;
    }
  }
  void completed(bool small, std::int64_t size) {
    Account& account = accounts_[small ? 0 : 1];
    account.pending_count -= 1;
    account.pending_bytes -= size;
    anything_pends_ =
        accounts_[0].pending_count != 0 || accounts_[1].pending_count != 0;
  }

  // A block became, or stopped being, a free part of a segment.
  void split_enters(bool small, std::int64_t size) {
    const std::size_t which = small ? 0 : 1;
    accounts_[which].split.add(1, size);
    raise_split(which);
  }
  void split_leaves(bool small, std::int64_t size) {
    Pair& split = accounts_[small ? 0 : 1].split;
    split.count.current -= 1;
    split.bytes.current -= size;
  }

  void fill(DeviceStats& out) {
    for (std::size_t i = 0; i < 2; ++i) {
      const Account& from = accounts_[i];
      set(out.allocation, i, from.blocks.count, 0, 0);
      set(out.allocated_bytes, i, from.blocks.bytes, 0, 0);
      set(out.requested_bytes, i, from.requested, 0, 0);
      set(out.active,
          i,
          from.blocks.count,
          from.pending_count,
          from.pending_count_at_reset);
      set(out.active_bytes,
          i,
          from.blocks.bytes,
          from.pending_bytes,
          from.pending_bytes_at_reset);
      set(out.inactive_split, i, from.split.count, 0, 0);
      set(out.inactive_split_bytes, i, from.split.bytes, 0, 0);
    }
    std::size_t kind = 0;
    for (StatArray* array : arrays(out)) {
      Stat& all = (*array)[0];
      const Stat& small = (*array)[1];
      const Stat& large = (*array)[2];
      all.current = small.current + large.current;
      all.allocated = small.allocated + large.allocated;
      all.freed = small.freed + large.freed;
      for (std::size_t i = 0; i < kStatPools; ++i) {
        (*array)[i].peak = peaks_[i][kind];
      }
      ++kind;
    }
    for (std::size_t i = 0; i < kStatPools; ++i) {
      out.active[i].peak = std::max(out.active[i].peak, out.allocation[i].peak);
      out.active_bytes[i].peak =
          std::max(out.active_bytes[i].peak, out.allocated_bytes[i].peak);
    }
  }
  void reset_accumulated() {
    for (Account& account : accounts_) {
      for (Count* count :
           {&account.blocks.count,
            &account.blocks.bytes,
            &account.requested,
            &account.split.count,
            &account.split.bytes}) {
        count->sum = 0;
        count->at_reset = count->current;
      }
      account.pending_count_at_reset = account.pending_count;
      account.pending_bytes_at_reset = account.pending_bytes;
    }
  }
  void reset_peak() {
    for (auto& peaks : peaks_) {
      std::fill(std::begin(peaks), std::end(peaks), 0);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      raise_allocated(i);
      raise_split(i);
    }
    raise_active();
  }

  std::int64_t allocated_bytes() const {
    return accounts_[0].blocks.bytes.current +
           accounts_[1].blocks.bytes.current;
  }
  std::int64_t active_bytes() const {
    return allocated_bytes() + accounts_[0].pending_bytes +
           accounts_[1].pending_bytes;
  }

 private:
  enum Kind : std::size_t {
    kAllocation,
    kAllocatedBytes,
    kRequestedBytes,
    kActive,
    kActiveBytes,
    kSplit,
    kSplitBytes,
    kKinds
  };
  struct Count {
    std::int64_t current = 0;
    std::int64_t sum = 0;
    std::int64_t at_reset = 0;
  };
  struct Pair {
    Count count;
    Count bytes;
    void add(std::int64_t n, std::int64_t size) {
      count.current += n;
      count.sum += n;
      bytes.current += size;
      bytes.sum += size;
    }
  };
  struct Account {
    Pair blocks;
    Count requested;
    std::int64_t pending_count = 0;
    std::int64_t pending_bytes = 0;
    std::int64_t pending_count_at_reset = 0;
    std::int64_t pending_bytes_at_reset = 0;
    Pair split;
  };

  // In the order of Kind.
  static std::array<StatArray*, kKinds> arrays(DeviceStats& out) {
    return {
        &out.allocation,
        &out.allocated_bytes,
        &out.requested_bytes,
        &out.active,
        &out.active_bytes,
        &out.inactive_split,
        &out.inactive_split_bytes};
  }
  static void set(
      StatArray& array,
      std::size_t i,
      const Count& from,
      std::int64_t pending,
      std::int64_t pending_at_reset) {
    Stat& stat = array[i + 1];
    stat.current = from.current + pending;
    stat.allocated = from.sum;
    stat.freed = from.sum - (stat.current - (from.at_reset + pending_at_reset));
  }

  void raise(std::size_t pool, Kind kind, std::int64_t value) {
    if (value > peaks_[pool][kind]) {
      peaks_[pool][kind] = value;
    }
  }
  // Of one account and of both together.
  void raise(
      std::size_t which, Kind kind, std::int64_t value, std::int64_t other) {
    raise(which + 1, kind, value);
    raise(0, kind, value + other);
  }
  void raise_allocated(std::size_t which) {
    const Account& own = accounts_[which];
    const Account& other = accounts_[1 - which];
    raise(
        which,
        kAllocation,
        own.blocks.count.current,
        other.blocks.count.current);
    raise(
        which,
        kAllocatedBytes,
        own.blocks.bytes.current,
        other.blocks.bytes.current);
    raise(
        which, kRequestedBytes, own.requested.current, other.requested.current);
    if (anything_pends_) [[unlikely]] {
      raise_active();
    }
  }
  void raise_active() {
    for (std::size_t i = 0; i < 2; ++i) {
      const Account& own = accounts_[i];
      const Account& other = accounts_[1 - i];
      raise(
          i,
          kActive,
          own.blocks.count.current + own.pending_count,
          other.blocks.count.current + other.pending_count);
      raise(
          i,
          kActiveBytes,
          own.blocks.bytes.current + own.pending_bytes,
          other.blocks.bytes.current + other.pending_bytes);
    }
  }
  void raise_split(std::size_t which) {
    const Pair& own = accounts_[which].split;
    const Pair& other = accounts_[1 - which].split;
    raise(which, kSplit, own.count.current, other.count.current);
    raise(which, kSplitBytes, own.bytes.current, other.bytes.current);
  }

  Account accounts_[2];  // small, large
  bool anything_pends_ = false;
  std::int64_t peaks_[kStatPools][kKinds] = {};
};

}  // namespace npu::memory
