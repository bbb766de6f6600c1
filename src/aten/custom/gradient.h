// SPDX-License-Identifier: Apache-2.0
// The gradient of an operator of ops/npu, as key 'gradient' of its row says it:
// one node of autograd for all of them.
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstdint>
#include <initializer_list>

#include "aten/custom/arguments.h"

namespace npu::custom {

using torch::autograd::variable_list;

// The composition serves CPU tensors, and by its operators those of any device.
inline constexpr c10::DispatchKeySet kComposition{c10::DispatchKey::CPU};

// Where something that the gradient is computed from comes from.
struct Source {
  enum class From : std::uint8_t {
    kDefault,  // of the schema
    kArgument,
    kResult,
    kGrad,   // of a result
    kSize,   // of an argument; 1 where it has no such dimension
    kDtype,  // of an argument
  };
  From from = From::kDefault;
  std::uint8_t index = 0;
  std::uint8_t dim = 0;
  // Bits of arguments: kept where one of them wants a gradient; 0: always.
  std::uint64_t for_gradients_of = 0;
};

// Gradients of the arguments `Gradient::of`, from the values of the sources.
using Backward = variable_list (*)(const torch::jit::Stack& values);

struct Gradient {
  static constexpr int kNone = -1;

  const char* of_operator;
  const char* overload;  // the operator that computes it, or null
  Backward backward;     // the function that does, beside an adapter, or null
  std::initializer_list<Source> sources;  // the operator's arguments
  // The argument that each result of operator or function is the gradient of.
  std::initializer_list<int> of;
  std::uint64_t results;  // bit i: result i has a gradient
  // Where it says no, PyTorch records the composition; null: never.
  bool (*recorded)(const Arguments& arguments);
};

// Registers the kernel of autograd of an overload. Without a row (null) the
// composition is recorded, and only where a gradient is wanted.
void install_gradient(
    torch::Library& library, const char* overload, const Gradient* row);

// Gradients of an operator that are to be differentiated again: through the
// composition, where everything depends on the inputs. `of` are arguments,
// `grads` those of the first results.
variable_list gradients_of_composition(
    const c10::OperatorHandle& op,
    torch::jit::Stack arguments,
    std::initializer_list<int> of,
    const variable_list& grads);

}  // namespace npu::custom
