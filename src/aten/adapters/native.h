// SPDX-License-Identifier: Apache-2.0
// An operator's way to the driver, and down the ladder when it declines.
//
// One NativeSite per overload and code, static in its adapter. In order:
//
//   at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
//     static NativeSite site("aten::flip", NPU_KIND_FLIP, 0);
//     npu_reason why = site.wants(self);            // cheap: before any work
//     if (why == NPU_REASON_NONE) {
//       at::Tensor out = make_empty_like(self, self.scalar_type());
//       Call call = site.call();
//       build::flip(call, to_operand(out), to_operand(self), attrs);
//       why = site.run(call, self.device().index());  // rungs 1 and 2
//       if (why == NPU_REASON_NONE) {
//         return out;
//       }
//     }
//     return site.cpu(why, &at::cpu::flip, self, dims);  // rung 4 or 5
//   }
//
// - wants() says no for a kind the driver lacks, one that NPU_DISABLE_KIND
//   names, a size the driver leaves to others, tensors of several devices (the
//   CPU rung has the error for it), empty tensors, other layouts.
// - run() plans the call. A driver that asks for contiguous, cast or aligned
//   operands gets copies of them, outputs through a temporary, and is asked
//   again (rung 2). It works on the frame: no tensors needed. Lists are never
//   mended. Every run is counted, by rung. Throws when the driver fails.
// - cpu() runs torch's exported function on the same bytes, without boxing. It
//   takes the overload's own C++ signature; cast the pointer where overloaded.
//   CpuOp (ladder.h) serves operators that export no function.
// - A call whose outputs would be empty is not run: return before.
// - Register with TORCH_LIBRARY_IMPL, or name the function in ops/aten/*.yaml.
//   flip.cpp is the example.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "aten/ladder/unboxed.h"
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

class NativeSite {
 public:
  // `overload` as the dispatcher names it: "aten::add.Tensor". All are kept
  // for ever, in one list.
  NativeSite(StaticName overload, std::uint32_t slot, std::uint32_t code);
  NativeSite(const NativeSite&) = delete;
  NativeSite& operator=(const NativeSite&) = delete;

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

  template <class R, class... Args>
  R cpu(npu_reason why, R (*fn)(Args...), std::type_identity_t<Args>... args) {
    return ladder::run_unboxed<R, Args...>(
        entry(), why, fn, std::forward<Args>(args)...);
  }

  // The same for an operator that is composite on the CPU: boxed.
  template <class R, class... Args>
  R cpu_boxed(npu_reason why, Args&&... args) {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Args));
    (torch::jit::push_one(stack, c10::IValue(std::forward<Args>(args))), ...);
    run_boxed(why, &stack);
    return c10::impl::PopResult<R>::call(stack);
  }

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
  ladder::Entry& entry();

  static constexpr int kRungs = 3;

 private:
  const npu_op_caps* find_caps() const;
  void run_boxed(npu_reason why, torch::jit::Stack* stack);

  const char* const overload_;
  const std::uint32_t slot_;
  const std::uint32_t code_;
  mutable std::atomic<const npu_op_caps*> caps_{nullptr};
  std::atomic<ladder::Entry*> entry_{nullptr};
  std::array<std::atomic<std::uint64_t>, kRungs> calls_{};
  std::atomic<npu_reason> mended_for_{NPU_REASON_NONE};
};

// Every site that was ever reached.
void for_each_site(const std::function<void(NativeSite&)>& visit);

}  // namespace npu
