// SPDX-License-Identifier: Apache-2.0
// Which work is ordered before which, and which accesses to memory are not.
//
// Note [Order of streams]: every stream counts its launches. A clock says, per
// stream, up to which launch everything has happened before. A stream has one;
// an event takes a copy of it when it is recorded; a stream that waits for the
// event, and the host when it synchronizes, take the larger numbers. The host
// has one clock for all its threads: how threads tell each other is not seen,
// so what one of them waited for counts for all. A launch happens after what
// the host has waited for. Two accesses race when their bytes meet, one of them
// writes, and the clock of the later one's stream does not reach the earlier
// launch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/sanitizer/region.h"

namespace npu::sanitizer {

// By the number of its device and its id.
struct StreamName {
  int device = 0;
  std::int64_t id = 0;
  bool operator==(const StreamName&) const = default;
  auto operator<=>(const StreamName&) const = default;
};
// Ids from here on are no streams: work that a process group does.
inline constexpr std::int64_t kFirstGroupStream = 1000;
// The "device" of pinned memory.
inline constexpr int kHostMemory = -1;

// A launch as a person wants to see it. Shared by its accesses.
struct LaunchFacts {
  std::string name;                       // "aten::add_.Tensor"
  std::shared_ptr<void> stack{};          // Python's; who reports reads it
  std::shared_ptr<void> forward_stack{};  // of a backward's forward call
};
using LaunchPtr = std::shared_ptr<const LaunchFacts>;

struct Access {
  Region region{};
  bool write = false;
  StreamName stream{};  // where it ran; of host code: device kHostMemory
  LaunchPtr launch{};
  std::string argument{};  // "self", "the result"
  std::string tensor{};    // "float32[4, 4]"
  bool released = false;   // the memory has been freed since
};

struct Race {
  Access earlier;
  Access later;
  LaunchPtr allocated{};  // where the memory came from, if that was seen
};

// Memory was freed while another stream than its own may still use it.
struct MissingRecord {
  Access use;
  StreamName owner;
  LaunchPtr allocated;
  bool freed = false;
};

class RaceTable {
 public:
  // A launch of a stream: what its accesses are entered with.
  struct Point {
    std::uint32_t stream = 0;
    std::uint64_t number = 0;
  };

  Point launch(StreamName stream);
  // `memory`: the device whose addresses these are, or kHostMemory.
  void access(int memory, Point point, Access access, std::vector<Race>& found);
  // By code of the host, which is done when this returns.
  void access_of_host(Access access, std::vector<Race>& found);

  // ---- order ----
  using EventKey = const void*;
  void record(EventKey event, StreamName stream);
  // The event also stands for what `other` stands for.
  void add_to_event(EventKey event, EventKey other);
  // The clock right after a launch, under a key of its own.
  void record_launch(EventKey event, Point point);
  void wait(StreamName stream, EventKey event);
  void forget_event(EventKey event);
  void synchronize_event(EventKey event);
  void synchronize_stream(StreamName stream);
  void synchronize_device(int device);

  // ---- memory ----
  void allocated(
      int memory,
      const void* data,
      std::size_t bytes,
      StreamName owner,
      LaunchPtr launch);
  void use_recorded(int memory, const void* data, StreamName stream);
  // Before the allocator has it back. Uses by streams that neither the owner
  // waited for nor record_stream() named are missing.
  void freed(int memory, const void* data, std::vector<MissingRecord>& found);
  // Nothing that was queued uses these bytes any more.
  void forget(int memory, const void* data, std::size_t bytes);
  // The same question as freed(), about memory that is in use.
  std::vector<MissingRecord> missing_records();

  // ---- for tests ----
  std::size_t size() const;
  static constexpr std::size_t kMostAccesses = 1 << 16;

 private:
  using Clock = std::vector<std::uint64_t>;  // by stream
  struct Entry {
    Access access;
    Point point;
  };
  struct Block {
    std::size_t bytes = 0;
    StreamName owner;
    LaunchPtr launch;
    std::set<StreamName> recorded;
  };
  // Entries by the power of two above their span, then by where they begin: an
  // entry of class k that meets [a, b) begins in (a - 2^k, b).
  struct Memory {
    std::map<int, std::multimap<std::uintptr_t, Entry>> classes;
    std::map<std::uintptr_t, Block> blocks;
    std::size_t size = 0;
  };

  // The block these bytes begin in; nullptr where none is known.
  static Block* block_at(Memory& memory, std::uintptr_t address);
  static void join(Clock& into, const Clock& other);
  static std::uint64_t at(const Clock& clock, std::uint32_t stream);
  std::uint32_t number_of(StreamName stream);
  bool happened(const Clock& before, const Point& point) const {
    return at(before, point.stream) >= point.number;
  }
  // visit(entry) -> true to remove it.
  template <class Visit>
  void each_meeting(Memory& memory, const Region& region, Visit visit);
  void add(Memory& memory, Entry entry);
  void shrink(Memory& memory);
  void find_missing(
      Memory& memory,
      std::uintptr_t base,
      Block& block,
      bool freed,
      std::vector<MissingRecord>& found);

  mutable std::mutex mutex_;
  std::map<StreamName, std::uint32_t> numbers_;
  std::vector<StreamName> names_;
  std::vector<Clock> clocks_;  // by stream; its own entry counts launches
  Clock host_;
  std::unordered_map<EventKey, Clock> events_;
  std::map<int, Memory> memories_;
};

}  // namespace npu::sanitizer
