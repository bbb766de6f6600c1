// SPDX-License-Identifier: Apache-2.0
// Host copies of device memory that rung 5 keeps from call to call.
//
// Note [Shadows]: a shadow is a range of device addresses and host memory with
// the same bytes. It holds until work that writes any byte of the range is
// given to the driver; src/driver/write_watch.h reports every such work. The
// watch reports after the driver has taken the work, so a copy that begins
// before the report is dropped by it and one that begins later is ordered by
// the user's own synchronisation, with one exception: work of another stream
// that was reported but has not run yet. Therefore a copy is kept only when no
// other stream had unfinished writes when it began.
//
// A claim is a shadow in the making: its bytes are being copied, or a CPU
// kernel is writing them. Nobody else finds it, but a write to its range takes
// it away all the same, and publish() then does nothing. Ranges of shadows and
// claims never overlap: a new one takes the place of those it meets.
//
// Memory whose address the program has gets none (bar()). What cannot be
// watched at all ends them all: a stream's native handle in the
// user's hands, a driver interface that writes memory (distrust_write_watch()).
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "driver/write_watch.h"

namespace npu {

// Host memory of a shadow, shared with the CPU tensors that use it.
struct HostCopy final : c10::intrusive_ptr_target {
  HostCopy(c10::DataPtr memory, std::size_t size)
      : data(std::move(memory)), bytes(size) {}
  c10::DataPtr data;
  const std::size_t bytes;
  // The stream of a queued copy that may still read this memory.
  npu_stream upload = nullptr;

  // After a copy from it was queued there.
  void read_by(c10::Stream stream);
};
using HostCopyPtr = c10::intrusive_ptr<HostCopy>;

// Device addresses [begin, end).
struct DeviceRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  DeviceRange() = default;
  DeviceRange(const void* ptr, std::size_t bytes)
      : begin(reinterpret_cast<std::uintptr_t>(ptr)), end(begin + bytes) {}
  std::size_t bytes() const {
    return end - begin;
  }
  bool covers(const DeviceRange& other) const {
    return begin <= other.begin && other.end <= end;
  }
};

class Shadows final : public WriteListener {
 public:
  struct Claim {
    std::uint64_t id = 0;      // 0: none
    std::uintptr_t begin = 0;  // of its range
    explicit operator bool() const {
      return id != 0;
    }
  };

  // nullptr where none are kept: the device's memory can be read, writes
  // cannot be watched, NPU_SHADOW_MEMORY=0, a forked child.
  static Shadows* active();
  // The one that gave out claims, active or not.
  static Shadows& made() noexcept;

  struct Found {
    HostCopyPtr copy;
    char* at = nullptr;  // host memory of the range's first byte
  };
  Found find(DeviceRange range);

  // The shadow that covers `range`, for a kernel that will write it: a claim
  // now. Not `in_place` when somebody else uses its memory or it does not reach
  // over all of `held`: then it has to be copied.
  struct Taken {
    HostCopyPtr copy;
    char* at = nullptr;  // host memory of the asked range's first byte
    DeviceRange range;   // of the claim, inside `held` unless in_place
    Claim claim;         // none: there is no shadow
    bool in_place = false;
  };
  Taken take(DeviceRange range, DeviceRange held);

  // None when it would be too large, or the range is barred.
  Claim claim(DeviceRange range);
  // `at` is host memory of the claim's first byte, in `copy`.
  void publish(const Claim& claim, HostCopyPtr copy, char* at);
  void drop(const Claim& claim);
  // The shadow with this memory, if it still is one, is none any more.
  void forget(const HostCopy& copy);

  // No shadows there until the block is freed: somebody else has its address.
  void bar(DeviceRange range);

  // False while a stream other than `mine` has unfinished writes. Throws what
  // the driver reports of earlier work.
  bool others_idle(npu_stream mine);

  struct Stats {
    std::uint64_t hits, misses, shadows, bytes, limit;
  };
  Stats stats();
  void count_miss() {
    misses_.fetch_add(1, std::memory_order_relaxed);
  }

  void on_write(
      npu_stream stream,
      const void* ptr,
      std::uint64_t bytes) noexcept override;
  void on_stream_end(npu_stream stream) noexcept override;
  void on_distrust(const char* why) noexcept override;

 private:
  // A published shadow is in the list of ages, last used first.
  struct Shadow {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint64_t claim = 0;  // 0: published
    HostCopyPtr copy;
    char* at = nullptr;
    std::size_t cost = 0;  // bytes of the bound
    Shadow* newer = nullptr;
    Shadow* older = nullptr;
  };
  using Map = std::map<std::uintptr_t, Shadow>;  // by begin
  using Dropped = c10::SmallVector<HostCopyPtr, 4>;

  explicit Shadows(std::size_t limit);
  static Shadows* make();
  static void on_block_freed(const void* ptr, std::size_t bytes);
  Map::iterator covering(DeviceRange range);
  static bool is_free(const Map::value_type& item, DeviceRange held);
  Map::iterator find_claim(const Claim& claim);
  void insert_newest(Shadow& shadow);
  void remove_age(Shadow& shadow);
  Map::iterator erase(Map::iterator at, Dropped& dropped);
  void erase_overlap(DeviceRange range, Dropped& dropped, bool spare_mirrored);
  void shrink(Dropped& dropped);
  bool is_barred(DeviceRange range) const;

  const std::size_t limit_;
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
  std::mutex mutex_;  // guards what follows
  Map map_;
  Shadow* newest_ = nullptr;
  Shadow* oldest_ = nullptr;
  std::size_t published_ = 0;
  std::map<std::uintptr_t, std::uintptr_t> barred_;  // begin to end
  std::size_t bytes_ = 0;
  std::uint64_t last_claim_ = 0;
  c10::SmallVector<npu_stream, 4> writers_;  // streams with unfinished writes
};

// While it lives, writes of this thread do not take these claims away: their
// host memory has what is being written.
class Mirrored {
 public:
  explicit Mirrored(c10::ArrayRef<Shadows::Claim> claims) noexcept;
  ~Mirrored();
  Mirrored(const Mirrored&) = delete;
  Mirrored& operator=(const Mirrored&) = delete;

 private:
  const c10::ArrayRef<Shadows::Claim> before_;
};

}  // namespace npu
