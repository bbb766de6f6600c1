// SPDX-License-Identifier: Apache-2.0
// What kernels of Ascend's own operators are written with.
//
// A composition of PyTorch's operators in Python (torch_npu.ops) is the kernel
// of every device, the fake kernel, and has all checks and errors. A row of
// ops/npu/*.yaml with key 'attempt' gives the operator a kernel on PrivateUse1
// as well: the attempt runs the usual calls, and what it declines goes to the
// composition.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

#include "aten/core/factories.h"
#include "aten/custom/arguments.h"
#include "aten/custom/gradient.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu::fused {

using custom::Arguments;
using custom::kComposition;
using torch::autograd::variable_list;

// float16, bfloat16 and float32: what the fused kinds compute.
inline bool is_narrow(const at::Tensor& tensor) {
  return is_float(tensor) && tensor.scalar_type() != at::kDouble;
}

inline const at::Tensor& set_output(
    Outputs& out,
    int i,
    at::IntArrayRef sizes,
    const at::Tensor& like,
    c10::ScalarType dtype) {
  return npu::set_output(out, i, sizes, like.options().dtype(dtype));
}
using npu::set_output;

template <class Signature>
auto typed(const char* overload) {
  return find_operator(overload).typed<Signature>();
}

// A kernel whose attempt gets the arguments by name and pushes the results.
template <class Attempt>
void run_boxed(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    const Attempt& attempt) {
  torch::jit::Stack results;
  if (attempt(Arguments(op, *stack), results) != NPU_REASON_NONE) {
    op.redispatchBoxed(kComposition, stack);
    return;
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
}

}  // namespace npu::fused
