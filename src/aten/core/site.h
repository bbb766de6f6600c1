// SPDX-License-Identifier: Apache-2.0
// The one runner: an operator's call of a kind on the driver, rungs 1 to 3.
//
// One Site per overload and code. NativeSite (aten/ladder/native.h) adds the
// CPU rungs and is what adapters use; its header shows how.
//
// - wants() says no for a kind the driver lacks, one that NPU_DISABLE_KIND
//   names, a size the driver leaves to others, tensors of several devices (the
//   CPU rung has the error for it), empty tensors, other layouts.
// - run() is how an operator's frame gets to a driver, lists and frames that
//   draw random numbers included. It plans the call; a driver that asks for
//   contiguous, cast or aligned operands gets copies of them, outputs through a
//   temporary, and is asked again (rung 2). A kind it lacks is composed of
//   others where a decomposition exists (rung 3). run() works on the frame: no
//   tensors needed. Every run is counted, by rung. Throws when the driver
//   fails.
// - run_fast() is run() for a frame that the caller knows to need no checks.
//
// queue_frame() (queue.h) gives a frame to the active driver and shows it to
// the Recorder. Only run(), run_fast() and replays of recorded frames call it.
// Two paths do not: a frame that run() sends to the embedded host driver
// (embedded.cpp), and recorded frames while capture/1 records them
// (graph/device_graph.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "aten/profile/dtypes.h"
#include "driver/call.h"
#include "driver/verdict.h"

namespace npu {

// Text that lives as long as the process: a literal, or a constant made of one.
// An array on the stack is no constant expression, so it does not compile.
class StaticName {
 public:
  consteval StaticName(const char* text) : text_(text) {}
  constexpr operator const char*() const noexcept {
    return text_;
  }

 private:
  const char* text_;
};

// A driver's state between the count call and the fill call of a pair.
struct Carry {
  c10::DataPtr memory;
  std::uint64_t bytes = 0;
};

struct RunOptions {
  // Operands (bit i is tensors[i]) that are cast to the compute dtype first.
  std::uint64_t casts = 0;
  // Of a count call and of its fill call: one object for both.
  Carry* carry = nullptr;
  // The frame draws random numbers: what the driver declines runs on the
  // embedded host driver, which draws the same ones. run() never declines then.
  bool embedded = false;
};

// The operands of a fast path's frame, outputs first.
struct FastOperands {
  const npu_tensor* tensors;
  std::uint32_t n_out;
  std::uint32_t n_in;
};

class Site {
 public:
  static constexpr int kRungs = 4;
  // Counted like a rung: calls that ran on the embedded host driver.
  static constexpr int kEmbedded = 4;

  // `overload` as the dispatcher names it: "aten::add.Tensor". All are kept
  // for ever, in one list.
  Site(StaticName overload, std::uint32_t slot, std::uint32_t code);
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  // NPU_REASON_NONE when a frame is worth building for these tensors;
  // undefined ones are skipped. Inputs first: a driver's preference goes by
  // the first one's dtype and the largest one's size.
  template <class... Tensors>
  npu_reason wants(const at::Tensor& first, const Tensors&... rest) const {
    return wants_all({&first, &rest...});
  }
  npu_reason wants_all(std::initializer_list<const at::Tensor*> tensors) const;

  Call call() const noexcept {
    return Call(slot_, code_, overload_);
  }
  // NPU_REASON_NONE when it was queued, on the current stream of `device`;
  // else nothing was, and the frame is as it came.
  npu_reason run(
      Call& call, c10::DeviceIndex device, const RunOptions& options = {});

  // Capabilities for a fast path; nullptr when there is none: no kernel, a
  // kind that is planned, or something that wants to see every call.
  const npu_op_caps* fast_caps() const;
  // The fast path of run(): a frame inside fast_caps(), queued as it is.
  void run_fast(
      c10::DeviceIndex device,
      npu_dtype compute,
      const FastOperands& operands,
      const void* attrs,
      std::uint32_t attr_bytes);

  const char* overload() const noexcept {
    return overload_;
  }
  std::uint32_t slot() const noexcept {
    return slot_;
  }
  std::uint32_t code() const noexcept {
    return code_;
  }
  // What the driver can do; nullptr when it lacks the kind or the user
  // switched it off.
  const npu_op_caps* caps() const;

  std::uint64_t calls(int rung) const noexcept {
    return calls_[rung - 1].load(std::memory_order_relaxed);
  }
  // Calls below rung 1 that needed the same: which rung, why, at what cost.
  struct Step {
    int rung = 0;
    std::uint32_t reasons = 0;  // bit r is npu_reason r
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;  // copied, in and out
    double seconds = 0;       // on the calling thread
  };
  std::vector<Step> steps() const;
  void reset();

 private:
  const npu_op_caps* find_caps() const;
  void count(int rung) noexcept {
    calls_[rung - 1].fetch_add(1, std::memory_order_relaxed);
  }
  void count(const Step& step);
  npu_reason run_lower(
      Call& call,
      c10::DeviceIndex device,
      const RunOptions& options,
      npu_reason why);

  struct Steps;

  const char* const overload_;
  const std::uint32_t slot_;
  const std::uint32_t code_;
  mutable std::atomic<const npu_op_caps*> caps_{nullptr};
  std::array<std::atomic<std::uint64_t>, kRungs> calls_{};
  std::atomic<Steps*> steps_{nullptr};  // made at the first step down
  DtypeJudge dtypes_;
};

// Every site that was ever reached.
void for_each_site(const std::function<void(Site&)>& visit);

// Any tensor but a plain strided one: sparse, quantised, nested, mkldnn.
inline bool has_components(const c10::TensorImpl& impl) {
  constexpr c10::DispatchKeySet kKeys =
      c10::DispatchKeySet(c10::DispatchKey::Sparse) |
      c10::DispatchKeySet(c10::DispatchKey::SparseCsr) |
      c10::DispatchKeySet(c10::DispatchKey::Quantized) |
      c10::DispatchKeySet(c10::DispatchKey::NestedTensor) |
      c10::DispatchKeySet(c10::DispatchKey::MkldnnCPU);
  return impl.key_set().has_any(kKeys);
}

// The operator behind "aten::add.Tensor". Throws when there is none.
c10::OperatorHandle find_operator(const char* overload);

}  // namespace npu
