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
// wants() and run() are Site's (aten/core/site.h). cpu() runs torch's exported
// function on the same bytes, without boxing. It takes the overload's own C++
// signature; cast the pointer where overloaded. TwinOp (ladder.h) serves
// operators that export no function.
// A call whose outputs would be empty is not run: return before. Most adapters
// are generated like that (docs/adding-an-operator.md); one written by hand is
// registered with TORCH_LIBRARY_IMPL, as log_sigmoid_backward of pointwise.cpp.
#pragma once

#include <atomic>
#include <type_traits>

#include "aten/core/site.h"
#include "aten/ladder/unboxed.h"

namespace npu {

class NativeSite : public Site {
 public:
  using Site::Site;

  template <class R, class... Args>
  R cpu(npu_reason why, R (*fn)(Args...), std::type_identity_t<Args>... args) {
    return ladder::Unboxed<R(Args...)>::run_operator(
        entry(), why, fn, std::forward<Args>(args)...);
  }

  // The same where an argument has a value that no code stands for. PyTorch may
  // refuse it; its error then ends with torch_npu's line about parameters.
  template <class R, class... Args>
  R cpu_without_code(
      npu_reason why, R (*fn)(Args...), std::type_identity_t<Args>... args) {
    try {
      return cpu(why, fn, std::forward<Args>(args)...);
    } catch (const c10::Error& error) {
      raise_with_parameter_line(error);
    }
  }

  // The same for an operator that is composite on the CPU: boxed.
  template <class R, class... Args>
  R cpu_boxed(npu_reason why, Args&&... args) {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Args));
    (torch::jit::push_one(stack, c10::IValue(std::forward<Args>(args))), ...);
    run_boxed(why, &stack);
    if constexpr (!std::is_void_v<R>) {
      return c10::impl::PopResult<R>::call(stack);
    }
  }

  twin::Entry& entry();

 private:
  void run_boxed(npu_reason why, torch::jit::Stack* stack);
  // Only inside a handler: errors of other types go on as they are.
  [[noreturn]] static void raise_with_parameter_line(const c10::Error& error);

  std::atomic<twin::Entry*> entry_{nullptr};
};

}  // namespace npu
