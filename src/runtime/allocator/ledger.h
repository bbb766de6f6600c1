// SPDX-License-Identifier: Apache-2.0
// The counters every allocation and free touches, kept as few as will do.
//
// All of DeviceStats' block statistics can be had from less: "all" is small
// plus large, "freed" is allocated less what is there, "active" is allocated
// plus pending. Peaks are taken when a count is about to fall, not each time
// it rises.
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
    rising_ |= small ? 1u : 2u;
  }
  // No longer the user's; `pending` when another stream still uses it.
  void freed(
      bool small, std::int64_t size, std::int64_t requested, bool pending) {
    settle();
    Account& account = accounts_[small ? 0 : 1];
    account.blocks.count.current -= 1;
    account.blocks.bytes.current -= size;
    account.requested.current -= requested;
    if (pending) {
      account.pending_count += 1;
      account.pending_bytes += size;
    }
  }
  void completed(bool small, std::int64_t size) {
    settle();
    Account& account = accounts_[small ? 0 : 1];
    account.pending_count -= 1;
    account.pending_bytes -= size;
  }

  // A block became, or stopped being, a free part of a segment.
  void split_enters(bool small, std::int64_t size) {
    accounts_[small ? 0 : 1].split.add(1, size);
    splits_rising_ = true;
  }
  void split_leaves(bool small, std::int64_t size) {
    settle_splits();
    Pair& split = accounts_[small ? 0 : 1].split;
    split.count.current -= 1;
    split.bytes.current -= size;
  }

  void fill(DeviceStats& out) {
    settle();
    settle_splits();
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
    rising_ = 3;
    splits_rising_ = true;
    settle();
    settle_splits();
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
  void settle() {
    if (rising_ == 0) {
      return;
    }
    std::int64_t all[kSplit] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      const Account& from = accounts_[i];
      const std::int64_t now[kSplit] = {
          from.blocks.count.current,
          from.blocks.bytes.current,
          from.requested.current,
          from.blocks.count.current + from.pending_count,
          from.blocks.bytes.current + from.pending_bytes};
      const bool rose = (rising_ >> i & 1) != 0;
      for (std::size_t kind = 0; kind < kSplit; ++kind) {
        all[kind] += now[kind];
        if (rose) {
          raise(i + 1, static_cast<Kind>(kind), now[kind]);
        }
      }
    }
    for (std::size_t kind = 0; kind < kSplit; ++kind) {
      raise(0, static_cast<Kind>(kind), all[kind]);
    }
    rising_ = 0;
  }
  void settle_splits() {
    if (!splits_rising_) {
      return;
    }
    const Pair& small = accounts_[0].split;
    const Pair& large = accounts_[1].split;
    raise(1, kSplit, small.count.current);
    raise(1, kSplitBytes, small.bytes.current);
    raise(2, kSplit, large.count.current);
    raise(2, kSplitBytes, large.bytes.current);
    raise(0, kSplit, small.count.current + large.count.current);
    raise(0, kSplitBytes, small.bytes.current + large.bytes.current);
    splits_rising_ = false;
  }

  Account accounts_[2];  // small, large
  unsigned rising_ = 0;  // bit per account
  bool splits_rising_ = false;
  std::int64_t peaks_[kStatPools][kKinds] = {};
};

}  // namespace npu::memory
