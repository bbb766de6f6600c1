// SPDX-License-Identifier: Apache-2.0
// A call that was made, run again on the CPU.
#include "judge/host_call.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <optional>

#include "core/tool.h"
#include "core/values.h"
#include "core/widen.h"
#include "judge/definitions.h"

namespace optools {
namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

ScalarType wider(ScalarType dtype, ScalarType real) {
  if (c10::isComplexType(dtype)) {
    return real == ScalarType::Double ? ScalarType::ComplexDouble
                                      : ScalarType::ComplexFloat;
  }
  return c10::isFloatingType(dtype) ? real : dtype;
}

bool any_tensor(const Values& values) {
  return std::any_of(values.begin(), values.end(), holds_tensor);
}

bool any_floating_result(const HostCall& call) {
  for (const auto& result : call.results) {
    if (unit_roundoff(result.dtype) != 0) {
      return true;
    }
  }
  return false;
}

c10::IValue wider_dtype(
    const c10::IValue& value, const HostCall& call, ScalarType real) {
  if (value.isInt()) {
    return static_cast<int64_t>(
        wider(static_cast<ScalarType>(value.toInt()), real));
  }
  // A factory's default is float32, which is no reference.
  if (value.isNone() && !any_tensor(call.inputs) && any_floating_result(call)) {
    return static_cast<int64_t>(real);
  }
  return value;
}

at::Tensor converted(const at::Tensor& t, ScalarType dtype, bool copy) {
  if (t.scalar_type() == dtype && !copy) {
    return t;
  }
  if (!t.is_non_overlapping_and_dense()) {
    return t.to(dtype, false, copy);
  }
  return widened_copy(t, dtype);
}

// Operators PyTorch keeps for other backends have a CPU kernel that only
// raises: the operator of the same meaning, with its arguments on the stack.
std::optional<c10::OperatorHandle> host_twin(
    const std::string& name, torch::jit::Stack& stack) {
  if (name == "convolution_overrideable") {
    return c10::Dispatcher::singleton().findSchema({"aten::convolution", ""});
  }
  if (name == "convolution_backward_overrideable") {
    const int64_t channels = stack[0].toTensor().size(1);
    stack.insert(stack.begin() + 3, c10::List<int64_t>({channels}));
    return c10::Dispatcher::singleton().findSchema(
        {"aten::convolution_backward", ""});
  }
  return std::nullopt;
}

}  // namespace

const c10::IValue* argument_named(const HostCall& call, const char* name) {
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) {
      return &call.inputs[i];
    }
  }
  return nullptr;
}

bool is_dtype(const c10::Argument& argument) {
  const c10::Type* type = argument.real_type().get();
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType().get();
  }
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

bool same_strides(const at::Tensor& t, c10::IntArrayRef strides) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) > 1 && t.stride(d) != strides[d]) {
      return false;
    }
  }
  return true;
}

std::string result_name(const HostCall& call, const HostResult& result) {
  const auto& schema = call.op->handle.schema();
  const bool many = call.op->returns > 1;
  std::string name;
  if (!result.output) {
    name = schema.arguments()[result.position].name();
  } else {
    name = many ? "output[" + std::to_string(result.position) + "]" : "output";
  }
  const auto& value = result.output
                          ? schema.returns()[result.position].type()
                          : schema.arguments()[result.position].type();
  if (value->kind() == c10::TypeKind::ListType) {
    name += "[" + std::to_string(result.item) + "]";
  }
  return name;
}

Values run_on_host(const Operator& op, const Values& inputs) {
  if (auto defined = defined_answer(op, inputs)) {
    return std::move(*defined);
  }
  torch::jit::Stack stack(inputs.begin(), inputs.end());
  const auto handle = host_twin(base_name(op), stack).value_or(op.handle);
  handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return {stack.begin(), stack.end()};
}

Values widened(const HostCall& call, ScalarType real) {
  const auto& arguments = call.op->handle.schema().arguments();
  std::vector<std::pair<at::Tensor, at::Tensor>> done;
  const auto widen = [&](const at::Tensor& t) -> at::Tensor {
    for (const auto& [before, after] : done) {
      if (before.is_same(t)) {
        return after;
      }
    }
    const auto dtype = real == ScalarType::Undefined
                           ? t.scalar_type()
                           : wider(t.scalar_type(), real);
    // The call may be run again: its inputs stay as they are.
    done.emplace_back(t, converted(t, dtype, call.writes));
    // Which says that it does not decide the result's dtype.
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
      done.back().second.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return done.back().second;
  };
  Values inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const auto& value = call.inputs[i];
    if (value.isDevice()) {
      inputs.emplace_back(c10::Device(c10::DeviceType::CPU));
    } else if (real == ScalarType::Undefined) {
      inputs.push_back(map_tensors(value, widen));
    } else if (is_dtype(arguments[i])) {
      inputs.push_back(wider_dtype(value, call, real));
    } else if (arguments[i].name() == "half_to_float") {
      inputs.emplace_back(false);
    } else {
      inputs.push_back(map_tensors(value, widen));
    }
  }
  return inputs;
}

at::Tensor number_tensor(const c10::IValue& value) {
  return value.isScalar()
             ? at::scalar_tensor(
                   value.toScalar(),
                   value.isBool()            ? ScalarType::Bool
                   : value.isInt()           ? ScalarType::Long
                   : value.isComplexDouble() ? ScalarType::ComplexDouble
                                             : ScalarType::Double)
             : at::Tensor();
}

at::Tensor corresponding(
    const HostResult& result, const Values& inputs, const Values& outputs) {
  const auto& from = result.output ? outputs : inputs;
  at::Tensor found;
  if (result.position >= from.size()) {
    return found;
  }
  if (from[result.position].isScalar()) {
    return number_tensor(from[result.position]);
  }
  uint16_t item = 0;
  each_tensor(from[result.position], [&](const at::Tensor& t) {
    if (item++ == result.item) {
      found = t;
    }
  });
  return found;
}

}  // namespace optools
