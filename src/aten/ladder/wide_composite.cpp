// SPDX-License-Identifier: Apache-2.0
// Operators that are cast around where autograd sees it: composites of PyTorch
// that refuse halves on every device but CUDA, and those whose gradient PyTorch
// composes of several operators, each of which would round.
#include "aten/ladder/wide_composite.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "aten/twin/wide.h"

namespace npu::ladder {
namespace {

using c10::ScalarType;

std::optional<ScalarType> wider(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return ScalarType::Float;
    case ScalarType::ComplexHalf:
      return ScalarType::ComplexFloat;
    default:
      return std::nullopt;
  }
}

std::optional<ScalarType> narrower(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return ScalarType::Half;
    case ScalarType::ComplexFloat:
      return ScalarType::ComplexHalf;
    default:
      return std::nullopt;
  }
}

// Casts the tensors among `n` values; true when there was one to cast.
template <class Other>
bool cast_tensors(c10::IValue* values, std::size_t n, const Other& other) {
  bool any = false;
  for (std::size_t i = 0; i < n; ++i) {
    if (!values[i].isTensor() || !values[i].toTensor().defined()) {
      continue;
    }
    if (const auto to = other(values[i].toTensor().scalar_type())) {
      values[i] = values[i].toTensor().to(*to);
      any = true;
    }
  }
  return any;
}

class CastAround final : public c10::OperatorKernel {
 public:
  explicit CastAround(c10::SafeKernelFunction composite)
      : composite_(std::move(composite)) {}
  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      torch::jit::Stack* stack) {
    const std::size_t n_args = op.schema().arguments().size();
    const std::size_t n_results = op.schema().returns().size();
    const bool any =
        cast_tensors(stack->data() + stack->size() - n_args, n_args, wider);
    composite_.callBoxed(op, keys, stack);
    if (any) {
      cast_tensors(
          stack->data() + stack->size() - n_results, n_results, narrower);
    }
  }

 private:
  c10::SafeKernelFunction composite_;
};

// Halves are computed in float32, forward and backward, and rounded once each.
class CastAroundGradient final : public c10::OperatorKernel {
 public:
  explicit CastAroundGradient(c10::SafeKernelFunction autograd)
      : autograd_(std::move(autograd)) {}
  void operator()(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet keys,
      torch::jit::Stack* stack) {
    const std::size_t n_args = op.schema().arguments().size();
    c10::IValue* const args = stack->data() + stack->size() - n_args;
    const ScalarType half = args[0].toTensor().scalar_type();
    const bool differentiated =
        at::GradMode::is_enabled() &&
        std::any_of(args, args + n_args, [](const c10::IValue& value) {
          return value.isTensor() && value.toTensor().defined() &&
                 value.toTensor().requires_grad();
        });
    if (!differentiated || !at::isReducedFloatingType(half)) {
      autograd_.callBoxed(op, keys, stack);
      return;
    }
    const auto float_of = [&](ScalarType dtype) {
      return dtype == half ? std::optional(ScalarType::Float) : std::nullopt;
    };
    cast_tensors(args, n_args, float_of);
    op.callBoxed(stack);
    c10::IValue& result = stack->back();
    result = result.toTensor().to(half);
  }

 private:
  c10::SafeKernelFunction autograd_;
};

// Their first argument has the dtype of the result.
constexpr const char* kComposedGradients[] = {
    "aten::binary_cross_entropy_with_logits",
};

void register_composed_gradients(
    std::vector<c10::RegistrationHandleRAII>& made, const char* by) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const char* const text : kComposedGradients) {
    const c10::OperatorName name(text, "");
    const auto op = dispatcher.findSchemaOrThrow(text, "");
    made.push_back(dispatcher.registerImpl(
        name,
        c10::DispatchKey::AutogradPrivateUse1,
        c10::KernelFunction::makeFromBoxedFunctor(
            std::make_unique<CastAroundGradient>(
                op.getComputedKernelForDispatchKey(
                    c10::DispatchKey::AutogradCPU))),
        std::nullopt,
        nullptr,
        by));
  }
}

}  // namespace

void register_wide_composites(
    std::vector<c10::RegistrationHandleRAII>& made, const char* by) {
  register_composed_gradients(made, by);
  auto& dispatcher = c10::Dispatcher::singleton();
  const twin::WideNames names = twin::wide_composites();
  for (std::size_t i = 0; i < names.n; ++i) {
    const c10::OperatorName name(names.names[i], "");
    const auto op = dispatcher.findSchema(name);
    if (!op) {
      continue;
    }
    const auto composite =
        op->getComputedKernelForDispatchKey(c10::DispatchKey::CPU);
    for (const auto key :
         {c10::DispatchKey::PrivateUse1,
          c10::DispatchKey::AutogradPrivateUse1}) {
      made.push_back(dispatcher.registerImpl(
          name,
          key,
          c10::KernelFunction::makeFromBoxedFunctor(
              std::make_unique<CastAround>(composite)),
          std::nullopt,
          nullptr,
          by));
    }
  }
}

}  // namespace npu::ladder
