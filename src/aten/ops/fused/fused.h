// SPDX-License-Identifier: Apache-2.0
// What the fast forms of Ascend's own operators are written with.
//
// Such an operator has three parts. A composition of PyTorch's operators in
// Python (torch_npu.ops) is the kernel of every device, the fake kernel, and
// has all checks and errors. A kernel here, on PrivateUse1, runs the usual
// calls as one kind and gives the rest to the composition. A function on
// Autograd records one node whose backward calls the operator of the gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/core/factories.h"
#include "aten/custom/custom.h"
#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu::fused {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The composition serves CPU tensors, and by its operators those of any device.
inline constexpr c10::DispatchKeySet kComposition{c10::DispatchKey::CPU};

template <class Signature>
auto typed(const char* overload) {
  return find_operator(overload).typed<Signature>();
}

template <class... Tensors>
bool needs_grad(const Tensors&... tensors) {
  return at::GradMode::is_enabled() &&
         ((tensors.defined() && tensors.requires_grad()) || ...);
}

// Inside torch.func, or with a forward gradient: seen through the composition.
template <class... Tensors>
bool is_transformed(const Tensors&... tensors) {
  constexpr c10::DispatchKeySet kKeys(
      {c10::DispatchKey::FuncTorchBatched,
       c10::DispatchKey::FuncTorchGradWrapper});
  return (
      (tensors.defined() &&
       (tensors.key_set().has_any(kKeys) || tensors._fw_grad(0).defined())) ||
      ...);
}

// On Autograd, for operators whose gradient nobody wrote: recorded through the
// composition, and only where a gradient is wanted.
void record_parts(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack);

// The device is this computer's processor.
bool is_on_cpu();

inline at::Tensor empty_of(
    const at::Tensor& like, at::IntArrayRef sizes, c10::ScalarType type) {
  return make_empty(sizes, type, like.device().index());
}

// float16, bfloat16 and float32: what the fused kinds compute.
inline bool is_narrow(const at::Tensor& tensor) {
  return is_float(tensor) && tensor.scalar_type() != at::kDouble;
}

using BoxedKernel = void (*)(
    const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);

// What custom::Native installs: a kernel of the device, boxed or not; an
// autograd kernel, or the gradient of the composition; or one of the two.
template <auto* kFunction>
void install_on(
    torch::Library& library, const char* overload, c10::DispatchKey key) {
  if constexpr (std::is_same_v<decltype(kFunction), BoxedKernel>) {
    library.impl(
        overload,
        torch::dispatch(
            key, torch::CppFunction::makeFromBoxedFunction<kFunction>()));
  } else {
    library.impl(overload, torch::dispatch(key, TORCH_FN(kFunction)));
  }
}
template <auto* kKernel>
void install_kernel(torch::Library& library, const char* overload) {
  install_on<kKernel>(library, overload, c10::DispatchKey::PrivateUse1);
}
template <auto* kAutograd>
void install_autograd(torch::Library& library, const char* overload) {
  install_on<kAutograd>(library, overload, c10::DispatchKey::Autograd);
}
template <auto* kKernel, auto* kAutograd = &record_parts>
void install(torch::Library& library, const char* overload) {
  install_kernel<kKernel>(library, overload);
  install_autograd<kAutograd>(library, overload);
}

}  // namespace npu::fused
