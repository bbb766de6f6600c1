// SPDX-License-Identifier: Apache-2.0
// The stream sanitizer, and the mode that reports synchronizing operators: what
// the rest of the plugin tells them.
//
// While neither is on, each hook is one load. Accesses come from the
// dispatcher (launches.cpp), order from streams and events, lifetimes from the
// allocators. They are judged by what the program said, not by when a driver
// did the work: a driver that runs everything inline shows the same races.
#pragma once

#include <c10/core/Stream.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <functional>
#include <vector>

#include "runtime/sanitizer/race_table.h"

namespace at {
class TensorBase;
}  // namespace at

namespace npu::sanitizer {

enum class SyncMode : unsigned { kDefault = 0, kWarn = 1, kError = 2 };

// What the sanitizer asks of the layer that knows Python. All of them may be
// called from any thread.
struct Frontend {
  // The stack of the calling thread; null where it runs no Python.
  std::shared_ptr<void> (*stack)() = nullptr;
  // Shows a race. True: the program is to get an exception.
  bool (*show_race)(const Race& race) = nullptr;
  void (*show_missing)(const MissingRecord& missing) = nullptr;
  // Warns of a synchronizing operator. True: the user's filters make an
  // exception of it.
  bool (*warn)(const std::string& text) = nullptr;
  // Throws the exception that the two above promised on this thread.
  void (*raise)() = nullptr;
  // "train.py:31 in step"; empty where the thread runs no Python.
  std::string (*line)() = nullptr;
};
void set_frontend(const Frontend& frontend);

// Forgets what was seen before. Not on: what it does not see has no order.
void find_races(bool on);
void set_sync_mode(SyncMode mode);
SyncMode sync_mode() noexcept;
std::vector<MissingRecord> missing_records();

namespace detail {
inline constexpr unsigned kRaces = 1;
inline constexpr unsigned kSyncs = 2;
extern std::atomic<unsigned> watching;
// This thread does what its caller must not be blamed for.
bool is_quiet() noexcept;
extern std::atomic<unsigned> pending;  // threads that an exception waits for
void raise_pending_slowly();

void record(const void* event, c10::Stream stream);
void wait(c10::Stream stream, const void* event);
void forget_event(const void* event) noexcept;
void synchronized_event(const void* event);
void synchronized(c10::Stream stream);
void synchronized_device(c10::DeviceIndex device);
void allocated(
    c10::DeviceIndex device,
    const void* data,
    std::size_t bytes,
    c10::StreamId stream);
void freed(c10::DeviceIndex device, const void* data) noexcept;
void use_recorded(const void* data, c10::Stream stream);
void forget_memory(int device, const void* data, std::size_t bytes) noexcept;
}  // namespace detail

inline bool finds_races() noexcept {
  return C10_UNLIKELY(
      (detail::watching.load(std::memory_order_relaxed) & detail::kRaces) != 0);
}

// Where operators may throw before they have queued anything: what a check of
// this thread's call found is raised there.
inline void raise_pending() {
  if (C10_UNLIKELY(detail::pending.load(std::memory_order_relaxed) != 0)) {
    detail::raise_pending_slowly();
  }
}

// ---- order ----

// `event` is the driver's handle, which stays when an Event moves.
inline void on_record(const void* event, c10::Stream stream) {
  if (finds_races()) {
    detail::record(event, stream);
  }
}
inline void on_wait(c10::Stream stream, const void* event) {
  if (finds_races()) {
    detail::wait(stream, event);
  }
}
inline void on_event_gone(const void* event) noexcept {
  if (finds_races()) {
    detail::forget_event(event);
  }
}
// The host has seen that everything before it is done.
inline void on_event_done(const void* event) {
  if (finds_races()) {
    detail::synchronized_event(event);
  }
}
inline void on_stream_done(c10::Stream stream) {
  if (finds_races()) {
    detail::synchronized(stream);
  }
}
inline void on_device_done(c10::DeviceIndex device) {
  if (finds_races()) {
    detail::synchronized_device(device);
  }
}

// ---- memory ----

inline void on_allocated(
    c10::DeviceIndex device,
    const void* data,
    std::size_t bytes,
    c10::StreamId stream) {
  if (finds_races()) {
    detail::allocated(device, data, bytes, stream);
  }
}
// Before the allocator has it.
inline void on_freed(c10::DeviceIndex device, const void* data) noexcept {
  if (finds_races()) {
    detail::freed(device, data);
  }
}
inline void on_use_recorded(const void* data, c10::Stream stream) {
  if (finds_races()) {
    detail::use_recorded(data, stream);
  }
}
// Nothing uses these bytes any more. `device`: or kHostMemory.
inline void on_idle_memory(
    int device, const void* data, std::size_t bytes) noexcept {
  if (finds_races()) {
    detail::forget_memory(device, data, bytes);
  }
}

// ---- work that no operator shows ----

// While it lives, what this thread launches and waits for is not the
// program's: a process group's own threads, for instance.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

struct Operand {
  const at::TensorBase* tensor;
  bool write;
  const char* name;
};
// Work of the current stream that came without the dispatcher: a replay.
void on_work(const std::string& name, const std::vector<Operand>& operands);

// Work of a process group: it begins after the current stream of `device`, and
// ends where on_wait(stream, key) or on_event_done(key) say so.
void on_group_work(
    const void* key,
    const std::string& name,
    c10::DeviceIndex device,
    const std::vector<Operand>& operands);
// While it lives, events that this thread records stand for that work too.
class AfterGroupWork {
 public:
  explicit AfterGroupWork(const void* key) noexcept;
  ~AfterGroupWork();
  AfterGroupWork(const AfterGroupWork&) = delete;
  AfterGroupWork& operator=(const AfterGroupWork&) = delete;

 private:
  const void* const before_;
};

// An operator makes the host wait for the device: warns, or has the operator
// raise, as set_sync_mode() says.
inline bool reports_syncs() noexcept {
  return C10_UNLIKELY(
      (detail::watching.load(std::memory_order_relaxed) & detail::kSyncs) != 0);
}
void on_host_wait(const std::string& what);

}  // namespace npu::sanitizer
