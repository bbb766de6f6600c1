// SPDX-License-Identifier: Apache-2.0
// Finds the overload that a named kernel's operands fit, and calls the built-in
// kernel of it: a pack that replaced the operator must not reach itself.
#include "torch_npu/named_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "aten/packs/load.h"
#include "aten/packs/operands.h"
#include "runtime/error.h"

namespace npu::named {
namespace {

using Results = std::vector<at::Tensor>;

// Arguments of a schema made of the operands; nullopt when they do not fit.
struct Fit {
  c10::OperatorHandle op;
  std::vector<c10::IValue> stack;
  int cost = 0;
};

// A factory makes its result where the output is.
std::optional<c10::IValue> like_output(
    const std::string& argument, const Results& outputs) {
  if (outputs.empty() || !outputs[0].defined()) {
    return std::nullopt;
  }
  if (argument == "device") {
    return c10::IValue(outputs[0].device());
  }
  if (argument == "dtype") {
    return c10::IValue(static_cast<std::int64_t>(outputs[0].scalar_type()));
  }
  return std::nullopt;
}

bool is_factory(const c10::FunctionSchema& schema) {
  return std::ranges::none_of(schema.arguments(), [](const c10::Argument& a) {
    return a.type()->kind() == c10::TypeKind::TensorType;
  });
}

std::optional<Fit> fit(
    const c10::OperatorHandle& op,
    const Operands& operands,
    const Results& outputs) {
  Fit result{op, {}, 0};
  std::size_t next = 0;
  std::size_t named = 0;
  const c10::FunctionSchema& schema = op.schema();
  const bool factory = is_factory(schema);
  for (const c10::Argument& argument : schema.arguments()) {
    const auto by_name = operands.by_name.find(argument.name());
    const c10::IValue* given = nullptr;
    if (by_name != operands.by_name.end()) {
      given = &by_name->second;
      ++named;
    } else if (next < operands.in_order.size()) {
      given = &operands.in_order[next];
    }
    std::optional<c10::IValue> value;
    if (given != nullptr) {
      value = as_type(*given, *argument.type(), result.cost);
    }
    if (value && by_name == operands.by_name.end()) {
      ++next;
    }
    if (!value && factory) {
      value = like_output(argument.name(), outputs);
    }
    if (!value && argument.default_value()) {
      value = argument.default_value();
      if (by_name != operands.by_name.end()) {
        return std::nullopt;  // given, and of another type
      }
    }
    if (!value) {
      return std::nullopt;
    }
    result.stack.push_back(std::move(*value));
  }
  if (next != operands.in_order.size() || named != operands.by_name.size()) {
    return std::nullopt;
  }
  return result;
}

void call(Fit& chosen) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (const auto* const builtin = packs::builtin_kernel(chosen.op)) {
    builtin->callBoxed(
        chosen.op,
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        &chosen.stack);
  } else {
    chosen.op.callBoxed(chosen.stack);
  }
}

void write(const at::Tensor& to, const at::Tensor& from) {
  if (!to.defined() || to.is_same(from)) {
    return;
  }
  if (to.sizes() != from.sizes()) {
    to.resize_(from.sizes());
  }
  to.copy_(from);
}

void deliver(
    const std::string& name,
    std::vector<c10::IValue>& results,
    const Results& outputs,
    bool swapped) {
  Results found;
  for (const c10::IValue& result : results) {
    if (result.isTensorList()) {
      const auto list = result.toTensorVector();
      found.insert(found.end(), list.begin(), list.end());
    } else if (result.isTensor()) {
      found.push_back(result.toTensor());
    }
  }
  TORCH_CHECK(
      outputs.size() <= found.size(),
      name,
      " has ",
      found.size(),
      " results, ",
      outputs.size(),
      " outputs are given.",
      ops_error(Code::kParam));
  if (swapped && found.size() == 2) {
    std::swap(found[0], found[1]);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    write(outputs[i], found[i]);
  }
}

Meaning known(const std::string& name) {
  Meaning meaning = find_meaning(name);
  TORCH_CHECK(
      !meaning.op.empty(),
      name,
      " or ",
      name,
      "GetWorkspaceSize not in libopapi.so, or libopapi.so not found.",
      ops_error(Code::kPointer));
  return meaning;
}

std::string kinds_of(const std::vector<c10::IValue>& values) {
  std::string text;
  for (const c10::IValue& value : values) {
    text += (text.empty() ? "" : ", ") + value.tagKind();
  }
  return text;
}

[[noreturn]] void no_fit(
    const std::string& name,
    const Meaning& meaning,
    const std::vector<c10::IValue>& given) {
  std::string schemas;
  for (const c10::OperatorHandle& op : overloads_of(meaning)) {
    schemas += "\n  " + c10::toString(op.schema());
  }
  TORCH_CHECK(
      false,
      name,
      ": operands (",
      kinds_of(given),
      ") fit no overload of ",
      meaning.op,
      meaning.inplace ? "_" : "",
      ":",
      schemas,
      ops_error(Code::kParam));
}

std::optional<Fit> best(
    const Meaning& meaning, const Operands& operands, const Results& outputs) {
  std::optional<Fit> result;
  for (const c10::OperatorHandle& op : overloads_of(meaning)) {
    auto found = fit(op, operands, outputs);
    if (found && (!result || found->cost < result->cost)) {
      result = std::move(found);
    }
  }
  return result;
}

std::size_t results_of(const c10::FunctionSchema& schema) {
  return schema.returns().size();
}

// The outputs of an aclnn call: the last tensors or lists before the numbers
// at the end. Takes them and what follows from `arguments`.
std::optional<Results> take_outputs(
    std::vector<c10::IValue>& arguments, std::size_t count) {
  while (!arguments.empty() && !arguments.back().isTensor() &&
         !arguments.back().isTensorList()) {
    arguments.pop_back();
  }
  Results result;
  if (arguments.size() < count) {
    return std::nullopt;
  }
  for (std::size_t i = arguments.size() - count; i < arguments.size(); ++i) {
    if (arguments[i].isTensorList()) {
      const auto list = arguments[i].toTensorVector();
      result.insert(result.end(), list.begin(), list.end());
    } else if (arguments[i].isTensor()) {
      result.push_back(arguments[i].toTensor());
    } else {
      return std::nullopt;
    }
  }
  arguments.resize(arguments.size() - count);
  return result;
}

}  // namespace

void run(
    const std::string& name,
    std::vector<c10::IValue> inputs,
    const Attributes& attributes,
    const std::vector<at::Tensor>& outputs) {
  const Meaning meaning = known(name);
  const std::vector<c10::IValue> given = inputs;
  const Operands operands =
      arrange(name, meaning, std::move(inputs), attributes);
  auto chosen = best(meaning, operands, outputs);
  if (!chosen) {
    no_fit(name, meaning, given);
  }
  call(*chosen);
  deliver(name, chosen->stack, outputs, operands.swapped);
}

void run_aclnn(const std::string& name, std::vector<c10::IValue> arguments) {
  const Meaning meaning = known(name);
  if (meaning.inplace) {
    auto operands = arrange(name, meaning, arguments, {});
    auto chosen = best(meaning, operands, {});
    if (!chosen) {
      no_fit(name, meaning, arguments);
    }
    call(*chosen);
    return;
  }
  std::optional<Fit> chosen;
  Results outputs;
  bool swapped = false;
  for (const c10::OperatorHandle& op : overloads_of(meaning)) {
    auto inputs = arguments;
    auto taken = take_outputs(inputs, results_of(op.schema()));
    if (!taken) {
      continue;
    }
    const Operands operands = arrange(name, meaning, std::move(inputs), {});
    auto found = fit(op, operands, *taken);
    if (found && (!chosen || found->cost < chosen->cost)) {
      chosen = std::move(found);
      outputs = std::move(*taken);
      swapped = operands.swapped;
    }
  }
  if (!chosen) {
    no_fit(name, meaning, arguments);
  }
  call(*chosen);
  deliver(name, chosen->stack, outputs, swapped);
}

}  // namespace npu::named
