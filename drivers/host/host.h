// SPDX-License-Identifier: Apache-2.0
// What the files of the host driver share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "kernels/kernel.h"
#include "npu/op.h"

namespace npu::host {

// ---- settings ----

// The NPU_HOST_* variables, read once when the driver is loaded.
struct Settings {
  std::int32_t devices = 1;
  std::uint64_t capacity = 0;  // bytes, of each device
  bool async = false;
  std::int64_t delay_us = 0;
  std::int64_t queue_limit = 1024;  // calls that wait in a stream; 0 = any
  bool protect = false;
  bool redzone = false;
  bool all_kernels = false;
  std::uint32_t host_access = NPU_HOST_ACCESS_COHERENT;
  Isa isa = Isa::kBaseline;
};

inline Settings settings;
inline const npu_host_services* services = nullptr;
// False before entry, after shutdown and in a child forked after `open`.
inline std::atomic<bool> alive{false};

// Fills `settings`; an error names the variable, its value and what is allowed.
npu_status read_settings();

// ---- entry points ----

npu_status shutdown_status() noexcept;
npu_status
exception_status() noexcept;  // inside catch (...): the exception as a status

// Every entry point runs through here: nothing after shutdown or fork, and no
// exception leaves the driver.
template <class Body>
npu_status entry(Body&& body) noexcept {
  if (!alive.load(std::memory_order_relaxed)) {
    return shutdown_status();
  }
  try {
    return body();
  } catch (...) {
    return exception_status();
  }
}

// The same for an entry point with pointers that must not be null.
template <class... Pointers>
bool given(Pointers... pointers) noexcept {
  return ((pointers != nullptr) && ...);
}
npu_status null_argument() noexcept;
template <class Body>
npu_status entry(bool arguments_given, Body&& body) noexcept {
  return entry([&]() -> npu_status {
    return arguments_given ? body() : null_argument();
  });
}

npu_status check_device(npu_device device) noexcept;

// ---- memory ----

inline constexpr std::size_t kAlignment = 512;

// The device of memory of the program's own (host_register). It is RAM like any
// device's here, and copies take it for that of every device.
inline constexpr npu_device kRegistered = -2;

struct Block {
  char* base = nullptr;
  std::uint64_t bytes = 0;   // asked for
  std::uint64_t mapped = 0;  // taken with mmap; 0 = from the heap
  npu_device device = -1;    // -1 = host_alloc, or kRegistered
};

// The block that holds an address, also an interior one.
bool find_block(const void* ptr, Block& out) noexcept;
// The same from a signal handler: false also when the map is being changed.
bool try_find_block(const void* ptr, Block& out) noexcept;
// NPU_OK when [ptr, ptr + bytes) lies in one block of `device` (-1: of any).
npu_status check_range(
    const char* where, npu_device device, const void* ptr, std::uint64_t bytes);
std::uint64_t used_memory(npu_device device) noexcept;

// ---- protection (NPU_HOST_PROTECT) ----

// Counts how often each page is open; a page is accessible while it is.
npu_status open_pages(
    const void* ptr, std::uint64_t bytes, std::uint32_t access);
npu_status close_pages(
    const void* ptr, std::uint64_t bytes, std::uint32_t access);
void forget_pages(const void* base, std::uint64_t bytes);
void install_fault_handler();

// Opens ranges for as long as it lives; does nothing without protection.
class PageGuard {
 public:
  PageGuard() = default;
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;
  ~PageGuard();
  npu_status open(const void* ptr, std::uint64_t bytes, std::uint32_t access);
  npu_status open_operands(const npu_call& call);

 private:
  npu_status open_tensor(const npu_tensor& tensor, std::uint32_t access);
  npu_status open_list(const npu_list& list, std::uint32_t access);
  struct Range {
    const void* ptr;
    std::uint64_t bytes;
    std::uint32_t access;
    std::unique_ptr<Range> next;
  };
  std::unique_ptr<Range> ranges_;  // a list; empty without protection
};

// ---- streams ----

// Work that waits in a queue.
class Work {
 public:
  virtual ~Work() = default;
  virtual npu_status run() = 0;
};

template <class Body>
class WorkOf final : public Work {
 public:
  explicit WorkOf(Body&& body) : body_(std::move(body)) {}
  npu_status run() override {
    return body_();
  }

 private:
  Body body_;
};

// Run now (inline streams), or when the stream gets there. `wait`: return only
// after it ran. A late error of earlier work is reported instead, once.
// `submit` takes work however much is waiting: `await_room` comes first.
npu_status submit(npu_stream stream, std::unique_ptr<Work> work, bool wait);
npu_status run_inline(
    npu_stream stream, npu_status (*fn)(void*), void* context);
// Waits while NPU_HOST_QUEUE calls wait in the stream, so that a program that
// queues faster than the stream works does not fill the memory. Not for a
// caller with a lock that a host function may want.
void await_room(npu_stream stream);

template <class Body>
npu_status enqueue_at_once(npu_stream stream, Body&& body, bool wait = false) {
  if (!settings.async) {
    return run_inline(
        stream,
        [](void* context) { return (*static_cast<Body*>(context))(); },
        &body);
  }
  return submit(stream, std::make_unique<WorkOf<Body>>(std::move(body)), wait);
}
template <class Body>
npu_status enqueue(npu_stream stream, Body&& body, bool wait = false) {
  if (settings.async) {
    await_room(stream);
  }
  return enqueue_at_once(stream, std::forward<Body>(body), wait);
}

npu_device stream_device(npu_stream stream) noexcept;
// Nothing is queued. An inline stream is always idle: its calls are over when
// they return. Leaves late errors alone.
bool is_idle(npu_stream stream);
bool on_stream_worker() noexcept;
npu_status synchronize_device(npu_device device);
// Waits for all work and ends the workers.
void stop_streams() noexcept;

// ---- frames and tables ----

// A copy that owns everything the frame points to on the host side.
class Frame {
 public:
  explicit Frame(const npu_call& call);
  const npu_call& call() const noexcept {
    return *call_;
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  npu_call* call_;
};

extern const npu_memory_table memory_table;
extern const npu_stream_table stream_table;
extern const npu_event_table event_table;
extern const npu_op_table op_table;

// Entries of memory_table that queue work (transfer.cpp).
npu_status copy_to_device(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes);
npu_status copy_to_host(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes);
npu_status copy_on_device(
    npu_stream stream, void* dst, const void* src, std::uint64_t bytes);
npu_status copy_peer(
    npu_stream stream,
    npu_device dst_device,
    void* dst,
    npu_device src_device,
    const void* src,
    std::uint64_t bytes);
npu_status set_bytes(
    npu_stream stream, void* dst, std::int32_t value, std::uint64_t bytes);

}  // namespace npu::host
