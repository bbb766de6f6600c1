// SPDX-License-Identifier: Apache-2.0
// Arithmetic of a graph on numbers that are CPU tensors of one element.
//
// Optimizers keep the number of steps as such tensors, one per parameter, and a
// compiled step computes bias corrections from them: ten operators on as many
// lists. PyTorch's loop over a list costs a microsecond per number; this is the
// number's own arithmetic, with the results of PyTorch's kernels bit for bit.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace npu::graph {

enum class NumberOp : std::uint8_t {
  kNone,
  kAdd,    // x + a
  kSub,    // x - a
  kMul,    // x * a
  kDiv,    // x / a
  kPowOf,  // a to the power x
  kNeg,
  kReciprocal,
  kCopy,  // copy_ of one tensor
};

// What `op` is for lists of numbers, kNone for operators that are none of them.
NumberOp number_op(const c10::OperatorHandle& op, bool* in_place);

// Runs it when the arguments on the stack are float32 numbers on the CPU, and
// replaces them by the results; false, and nothing was done, when not.
bool run_numbers(NumberOp op, bool in_place, torch::jit::Stack& stack);

}  // namespace npu::graph
