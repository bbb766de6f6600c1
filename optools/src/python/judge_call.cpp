// SPDX-License-Identifier: Apache-2.0
// The verdict on a call that was captured: its arguments and results are
// Python values.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "core/engine.h"
#include "judge/host_call.h"
#include "python/bindings.h"

namespace optools {
namespace {

Tolerance usual_tolerance(c10::ScalarType dtype, const void*) {
  return default_tolerance(dtype);
}

c10::IValue schema_value(
    const py::handle& object, const c10::Argument& argument) {
  try {
    return torch::jit::toIValue(object, argument.type(), argument.N());
  } catch (const std::exception&) {
    throw py::value_error("its " + argument.name() + " cannot be given again");
  }
}

void add_results(
    HostCall& call, const c10::IValue& value, bool output, size_t position) {
  HostResult result;
  result.output = output;
  result.position = static_cast<uint8_t>(position);
  if (value.isScalar()) {
    result.got = number_tensor(value);
    result.dtype = result.got.scalar_type();
    call.results.push_back(std::move(result));
    return;
  }
  each_tensor(value, [&](const at::Tensor& t) {
    result.got = t.resolve_conj().resolve_neg();
    result.dtype = t.scalar_type();
    result.strides = t.strides().vec();
    call.results.push_back(result);
    ++result.item;
  });
}

HostCall captured_call(
    const Operator& op,
    const py::list& arguments,
    const py::list& outputs,
    const py::dict& after) {
  const auto& schema = op.handle.schema();
  if (arguments.size() != schema.arguments().size() ||
      outputs.size() > schema.returns().size()) {
    throw py::value_error("this PyTorch's " + op.name + " has another schema");
  }
  HostCall call;
  call.op = &op;
  call.rule = rule_of(op);
  call.writes = op.writes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    call.inputs.push_back(schema_value(arguments[i], schema.arguments()[i]));
    each_tensor(call.inputs.back(), [&](const at::Tensor& t) {
      call.true_strides = call.true_strides && t.is_non_overlapping_and_dense();
    });
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto value = schema_value(outputs[i], schema.returns()[i]);
    add_results(call, value, true, i);
  }
  for (const auto& [key, object] : after) {
    const auto place = key.cast<size_t>();
    if (place >= call.inputs.size()) {
      throw py::value_error("it wrote an argument that it does not have");
    }
    call.writes = true;
    const auto value = schema_value(object, schema.arguments()[place]);
    add_results(call, value, false, place);
  }
  return call;
}

CallJudgement verdict_on(const HostCall& call) {
  if (call.rule.rule == Rule::kNotJudged) {
    return skip_call(call.rule.why_not);
  }
  if (call.op->is_view) {
    return skip_call("only makes a view");
  }
  if (call.results.empty()) {
    return skip_call(kNoTensor);
  }
  if (const char* why = no_reference(*call.op, call.rule)) {
    return skip_call(why);
  }
  try {
    return draws(*call.op, call.inputs)
               ? judge_random(call)
               : judge_call(call, &usual_tolerance, nullptr);
  } catch (const c10::Error& error) {
    return skip_call(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return skip_call(error.what());
  }
}

// Arguments as the schema orders them, all in host memory.
py::dict judge_captured(
    uint32_t op,
    const py::list& arguments,
    const py::list& outputs,
    const py::dict& after,
    bool on_cpu) {
  Quiet quiet;
  at::AutoDispatchBelowADInplaceOrView below;
  c10::AutoGradMode no_grad(false);
  const auto* known = Engine::get().operator_at(op);
  if (known == nullptr) {
    throw py::index_error("op_tools: no operator of that number");
  }
  HostCall call = captured_call(*known, arguments, outputs, after);
  call.device = on_cpu ? c10::DeviceType::CPU : c10::DeviceType::PrivateUse1;
  CallJudgement found;
  {
    py::gil_scoped_release release;
    found = verdict_on(call);
  }
  return call_judgement_dict(found);
}

}  // namespace

void bind_judge_call(py::module_& m) {
  m.def(
      "judge_call",
      &judge_captured,
      py::arg("op"),
      py::arg("arguments"),
      py::arg("outputs"),
      py::arg("after"),
      py::arg("on_cpu"));
  m.def("known_dtypes", &known_dtypes, "How many are remembered");
}

}  // namespace optools
