// SPDX-License-Identifier: Apache-2.0
// The ladder's lower rungs: an operator without a kernel in the driver runs
// PyTorch's own kernel on the device's bytes (rung 4, Note [Twin]), or where no
// twin reaches them PyTorch's CPU kernel on copies (rung 5).
#pragma once

#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <utility>
#include <vector>

#include "aten/ladder/unboxed_rows.h"
#include "npu/driver.h"

namespace npu::twin {
struct Entry;
}  // namespace npu::twin

namespace npu::ladder {

// The fallbacks, the allocator shim, the rows of `tables`, and our kernel on
// every operator whose composite kernel would hide the fallback. Call it
// once, when all of src/aten is registered: operators that have an npu kernel
// by then keep it.
void install(const std::vector<UnboxedRows>& tables);

// Runs `op` on rung 4 or 5 with the npu arguments on `stack`, and leaves npu
// results there. Counted, warned about and refused as the user's policy says.
// Throws what the kernel throws, and for tensors of different devices.
void run_below(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    npu_reason reason = NPU_REASON_NO_KERNEL);

// An operator of the twin called from C++ with npu tensors, whatever kernel the
// npu device has for it itself. `label` is the operator it is counted as and
// looked up in the profile by ("aten::convolution_overrideable").
//
//   static const ladder::TwinOp op("aten::convolution", "",
//   "aten::convolution"); return op.call<at::Tensor>(input, weight, bias,
//   stride, ...);
//
// Arguments have the types of the operator's C++ signature (SymInt lists may
// be plain), results are values: a tensor, a vector of them, or a tuple.
class TwinOp {
 public:
  TwinOp(const char* name, const char* overload, const char* label);

  template <class Return, class... Args>
  Return call(Args... args) const {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Args));
    (torch::jit::push_one(stack, c10::IValue(std::move(args))), ...);
    run(&stack);
    if constexpr (!std::is_void_v<Return>) {
      return c10::impl::PopResult<Return>::call(stack);
    }
  }

  // The arguments and then the results are on the stack.
  void run(torch::jit::Stack* stack) const;

 private:
  twin::Entry* entry_;
};

}  // namespace npu::ladder
