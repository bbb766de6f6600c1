// SPDX-License-Identifier: Apache-2.0
// What the files of the cuda driver share: errors, devices, streams.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "npu/mailbox.h"
#include "npu/op.h"

namespace npu::cuda {

inline const npu_host_services* services = nullptr;
// False before entry, after shutdown and in a child forked after `open`.
inline std::atomic<bool> alive{false};

// ---- errors (error.cpp) ----

// Store the error text (printf) and hand back `status`, to be returned.
__attribute__((format(printf, 2, 3))) npu_status fail(
    npu_status status, const char* format, ...) noexcept;
void warn(const std::string& text) noexcept;  // one line of the log
npu_status shutdown_status() noexcept;
npu_status null_argument() noexcept;
npu_status exception_status() noexcept;  // inside catch (...)

// A CUDA error as a status; `what` says what was tried. An error that destroys
// the context is remembered: every later call then answers
// NPU_E_DEVICE_LOST.
npu_status cuda_status(cudaError_t error, const char* what) noexcept;
// NPU_OK, or NPU_E_DEVICE_LOST with the text of the error that lost it.
npu_status lost_status() noexcept;
inline std::atomic<bool> device_lost{false};
// For tests of the sentence.
bool loses_the_context(cudaError_t error) noexcept;

#define NPU_CUDA(call, what)                        \
  do {                                              \
    if (const cudaError_t npu_cuda_error_ = (call); \
        npu_cuda_error_ != cudaSuccess) {           \
      return cuda_status(npu_cuda_error_, what);    \
    }                                               \
  } while (0)

// ---- entry points ----

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

template <class... Pointers>
bool given(Pointers... pointers) noexcept {
  return ((pointers != nullptr) && ...);
}
// The same for an entry point with pointers that must not be null, on a device
// that is not lost.
template <class Body>
npu_status entry(bool arguments_given, Body&& body) noexcept {
  return entry([&]() -> npu_status {
    if (!arguments_given) {
      return null_argument();
    }
    if (device_lost.load(std::memory_order_relaxed)) {
      return lost_status();
    }
    return body();
  });
}

// ---- devices (device.cpp) ----

struct Device {
  std::atomic<bool> open{false};
  cudaDeviceProp properties{};
  int least_priority = 0;
  int greatest_priority = 0;
};

int device_count();
npu_status check_device(npu_device device) noexcept;  // exists
npu_status check_open(npu_device device) noexcept;    // and is open
Device& device_at(npu_device device) noexcept;
// A device that is open, for what belongs to none; 0 when none is.
npu_device any_device() noexcept;

// The device is the calling thread's while this lives; the one before comes
// back, for a program may use CUDA beside the driver.
class OnDevice {
 public:
  explicit OnDevice(npu_device device) noexcept {
    if (cudaGetDevice(&before_) != cudaSuccess) {
      before_ = -1;
    }
    if (before_ != device) {
      moved_ = cudaSetDevice(device) == cudaSuccess;
    }
  }
  ~OnDevice() {
    if (moved_ && before_ >= 0) {
      cudaSetDevice(before_);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;
  bool moved_ = false;
};

// ---- memory (memory.cpp) ----

struct Block {
  char* base = nullptr;
  std::uint64_t bytes = 0;
  npu_device device = -1;  // -1: pinned host memory
  bool registered = false;
};

// The block that holds an address, also an interior one: of this driver's, or
// of CUDA's where another library took it.
bool find_block(const void* ptr, Block& out) noexcept;
bool is_pinned(const void* ptr) noexcept;

// ---- streams (stream.cpp) ----

struct Stream {
  npu_device device = 0;
  cudaStream_t handle = nullptr;
  npu_mailbox* mailbox = nullptr;    // pinned and mapped: one address for both
  std::shared_ptr<npu_mailbox> box;  // owns it, with graphs recorded here
  // Of graphs that were launched here: their kernels leave errors there.
  std::mutex watching;
  std::vector<std::shared_ptr<npu_mailbox>> watched;
};

inline Stream* stream_of(npu_stream stream) noexcept {
  return reinterpret_cast<Stream*>(stream);
}

// From now on errors in these mailboxes are the stream's too.
void watch(
    Stream& stream, const std::vector<std::shared_ptr<npu_mailbox>>& boxes);

// The error that a kernel left in the mailbox, once; NPU_OK when there is none.
npu_status take_error(Stream& stream) noexcept;
// The same for all streams of a device.
npu_status take_errors(npu_device device) noexcept;

// Body on an open stream's device, unless an earlier error is to be told.
template <class Body>
npu_status queue(
    npu_stream stream, bool arguments_given, Body&& body) noexcept {
  return entry(stream != nullptr && arguments_given, [&]() -> npu_status {
    Stream& to = *stream_of(stream);
    if (npu_status status = take_error(to)) {
      return status;
    }
    const OnDevice on(to.device);
    return body(to);
  });
}

// ---- tables ----

extern const npu_device_table device_table;
extern const npu_memory_table memory_table;
extern const npu_stream_table stream_table;
extern const npu_event_table event_table;
extern const npu_op_table op_table;

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

// Is it named in NPU_CUDA_TRY? So begins what has not run on a GPU yet:
// program, rows, capture, comm, profiler (tries.cpp).
bool tries(const char* what) noexcept;

void drop_event_pool(npu_device device) noexcept;  // event.cpp
// Loads every kernel of the driver into the current device, so that no run
// does it (op.cpp).
npu_status load_kernels() noexcept;

}  // namespace npu::cuda
