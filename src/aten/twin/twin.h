// SPDX-License-Identifier: Apache-2.0
// PyTorch's own kernels on a device's bytes.
//
// Note [Twin]: a tensor of the npu device and a tensor of the platform that
// PyTorch has kernels for (CPU, CUDA) can share their memory. Such a second
// tensor is a wrapper. A call on the twin wraps the arguments, calls the
// platform's kernel below autograd and makes npu tensors of its results;
// nothing is copied. TwinCall (call.h) does that for every platform; a Twin
// says what differs between platforms:
// - the device type and the dispatch keys of wrappers, their allocator,
// - what surrounds a kernel: memory for its results, the current stream,
//   waiting for queued work,
// - which memory of a result can be adopted by changing its device,
// - which operators must not take this way.
// Random operators never do, on any platform: PyTorch's generators would draw
// other numbers than the contract's.
//
// A Twin is chosen per device, once (reach_of). Its data is read without a
// virtual call; enter() and leave() are called by boxed calls only.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "aten/twin/shim.h"

namespace npu::twin {

struct Entry;

class Twin {
 public:
  struct Facts {
    const char* name;  // "CPU"
    c10::DeviceType type;
    c10::BackendComponent backend;
    // Device i of the platform is npu:i; else wrappers have no index.
    bool numbered;
    // Kernels know no streams: queued work must be done before one reads.
    bool waits;
    // Operators of ops/wide.yaml are computed in a wider dtype.
    bool widens;
  };

  explicit Twin(const Facts& facts) : facts_(facts) {}
  virtual ~Twin() = default;
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  const char* name() const noexcept {
    return facts_.name;
  }
  bool waits() const noexcept {
    return facts_.waits;
  }
  bool widens() const noexcept {
    return facts_.widens;
  }
  c10::DeviceType type() const noexcept {
    return facts_.type;
  }
  // Of the wrappers of tensors on `npu`.
  c10::Device device_of(c10::Device npu) const noexcept {
    return {facts_.type, facts_.numbered ? npu.index() : c10::DeviceIndex{-1}};
  }
  // The key with the kernels for a key of the npu device: SparsePrivateUse1 ->
  // SparseCPU.
  c10::DispatchKey key_of(c10::DispatchKey npu) const noexcept {
    return c10::toRuntimePerBackendFunctionalityKey(
        c10::toFunctionalityKey(npu), facts_.backend);
  }

  // Of the wrappers' storages: what a kernel that resizes an argument uses.
  virtual c10::Allocator* allocator() const = 0;
  // The memory of a result is the device's: adopt() makes it so.
  virtual bool owns(const c10::DataPtr& data) const noexcept = 0;
  virtual void adopt(c10::DataPtr& data, c10::Device npu) const = 0;

  // Why a kernel of this platform must not be called for the operator; nullptr
  // when it may.
  virtual const char* refusal(const Entry& entry) const = 0;

  // What was there before enter(), for leave().
  struct Outer {
    ShimState shim;
    std::optional<c10::Stream> stream;
    std::optional<c10::Device> device;
  };
  // Around a kernel, on this thread: it allocates for `shim`, and queues on the
  // current stream of `npu`.
  virtual Outer enter(c10::Device npu, const ShimState& shim) const = 0;
  virtual void leave(const Outer& outer) const noexcept = 0;

 private:
  const Facts facts_;
};

// Waits for the current stream of a device; a forked child gets the driver's
// error. Before host code reads or writes the device's memory.
void drain(c10::Device npu);

// cpu.cpp and cuda.cpp.
const Twin& cpu_twin();
// nullptr when this torch has no CUDA kernels.
const Twin* cuda_twin();
// The one of the active driver's platform; nullptr where that is the CPU's.
const Twin* other_twin();

// How kernels of a twin get to the bytes of a device.
struct Reach {
  const Twin* twin;
  bool copies;  // rung 5: host code cannot read the memory
  bool opens;   // the memory has to be opened to host code first
};

struct Reaches {
  Reach own;   // what the device's own platform has; else as `host`
  Reach host;  // PyTorch's CPU kernels
};

// Fixed at the first use of the device.
const Reaches& reaches_of(c10::Device npu);

// The devices' own kernels are those of PyTorch's CPU functions, which a call
// may name: false where another twin has them. Of the driver in use.
inline bool uses_cpu_functions();

namespace detail {
enum class CpuFunctions : std::uint8_t { kUnknown, kUsed, kNotUsed };
extern std::atomic<CpuFunctions> cpu_functions;
CpuFunctions find_cpu_functions();
}  // namespace detail

// Asked at every call: one load.
inline bool uses_cpu_functions() {
  using detail::CpuFunctions;
  CpuFunctions state = detail::cpu_functions.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(state == CpuFunctions::kUnknown)) {
    state = detail::find_cpu_functions();
  }
  return C10_LIKELY(state == CpuFunctions::kUsed);
}

}  // namespace npu::twin
