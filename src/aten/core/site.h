// SPDX-License-Identifier: Apache-2.0
// The one runner: an operator's call of a kind on the driver, rungs 1 to 3.
//
// One Site per overload and code. NativeSite (aten/ladder/native.h) adds the
// CPU rungs and is what adapters use; its header shows how.
//
// - wants() says no for a kind the driver lacks, one that NPU_DISABLE_KIND
//   names, a size the driver leaves to others, tensors of several devices (the
//   CPU rung has the error for it), empty tensors, other layouts.
// - run() plans the call. A driver that asks for contiguous, cast or aligned
//   operands gets copies of them, outputs through a temporary, and is asked
//   again (rung 2). A kind it lacks is composed of others where a decomposition
//   exists (rung 3). run() works on the frame: no tensors needed. Every run is
//   counted, by rung. Throws when the driver fails.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>

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

class Site {
 public:
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
  // NPU_REASON_NONE when it was queued. Operands in `casts` (bit i is
  // tensors[i]) are cast to the compute dtype first.
  npu_reason run(Call& call, c10::DeviceIndex device, std::uint64_t casts = 0);

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
  // Counts a call that went to the driver without run().
  void count(int rung) noexcept {
    calls_[rung - 1].fetch_add(1, std::memory_order_relaxed);
  }
  std::uint64_t calls(int rung) const noexcept {
    return calls_[rung - 1].load(std::memory_order_relaxed);
  }
  // Why the last call of rung 2 needed mending.
  npu_reason mended_for() const noexcept {
    return mended_for_.load(std::memory_order_relaxed);
  }
  void reset() noexcept;

  static constexpr int kRungs = 3;

 private:
  const npu_op_caps* find_caps() const;

  const char* const overload_;
  const std::uint32_t slot_;
  const std::uint32_t code_;
  mutable std::atomic<const npu_op_caps*> caps_{nullptr};
  std::array<std::atomic<std::uint64_t>, kRungs> calls_{};
  std::atomic<npu_reason> mended_for_{NPU_REASON_NONE};
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
