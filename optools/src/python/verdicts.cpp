// SPDX-License-Identifier: Apache-2.0
// Verdicts for Python: judging tensors that are at hand.
#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/complex.h>
#include <torch/csrc/autograd/python_variable.h>

#include "core/thread.h"
#include "judge/host_call.h"
#include "python/bindings.h"

namespace optools {
namespace {

at::Tensor host_tensor(const py::object& object, const char* what) {
  if (!THPVariable_Check(object.ptr())) {
    throw py::type_error(
        std::string("op_tools: ") + what + " has to be a tensor");
  }
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  if (tensor.layout() != c10::kStrided || tensor.is_nested() ||
      tensor.is_quantized()) {
    throw py::value_error(
        std::string("op_tools: ") + what +
        " has to be dense: sparse, nested and quantised tensors are not "
        "judged");
  }
  return tensor.detach().to(c10::kCPU);
}

py::object number(c10::complex<double> value, c10::ScalarType dtype) {
  if (c10::isComplexType(dtype)) {
    return py::cast(std::complex<double>(value.real(), value.imag()));
  }
  return py::cast(value.real());
}

py::dict details_dict(const Details& details) {
  py::dict out;
  out["max_ulp"] = details.max_ulp;
  out["p999_ulp"] = details.p999_ulp;
  out["over_ulp"] = details.over_ulp;
  out["mean_rel"] = details.mean_rel;
  out["bias"] = details.bias;
  return out;
}

py::dict judge(
    const py::object& got,
    const py::object& reference,
    const py::object& majorant,
    int64_t terms,
    std::optional<std::pair<double, double>> tolerance,
    bool details) {
  Quiet quiet;
  at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor mine = host_tensor(got, "got");
  const at::Tensor truth = host_tensor(reference, "reference");
  const at::Tensor bound =
      majorant.is_none() ? at::Tensor() : host_tensor(majorant, "majorant");
  if (mine.sizes() != truth.sizes() ||
      (bound.defined() && bound.sizes() != truth.sizes())) {
    throw py::value_error(
        "op_tools: got, reference and majorant have to have the same sizes");
  }
  const auto chosen = tolerance ? Tolerance{tolerance->first, tolerance->second}
                                : default_tolerance(mine.scalar_type());
  py::dict out =
      judgement_dict(judge_values(mine, truth, bound, terms, chosen));
  if (details) {
    out["details"] = details_dict(measure_details(mine, truth));
  }
  return out;
}

}  // namespace

py::dict judgement_dict(const Judgement& j) {
  py::dict out;
  out["verdict"] = verdict_name(j.verdict);
  out["reason"] = j.reason;
  out["dtype"] = c10::toString(j.dtype);
  out["elements"] = j.elements;
  out["e"] = j.tally.e;
  out["over"] = j.tally.over;
  out["terms"] = j.terms;
  out["worst"] = py::none();
  if (!j.worst.empty() || j.tally.worst >= 0) {
    out["worst"] = py::tuple(py::cast(j.worst));
    out["got"] = number(j.got, j.dtype);
    out["expected"] = number(j.expected, j.dtype);
  }
  out["max_abs_diff"] = j.tally.max_abs;
  out["mean_abs_diff"] = j.mean_abs();
  out["max_relative_diff"] = j.tally.max_rel;
  out["cosine_similarity"] = j.cosine();
  out["relative_l2"] = j.relative_l2();
  out["nan_differs"] = j.tally.nan_differs;
  out["inf_differs"] = j.tally.inf_differs;
  out["allclose"] = j.allclose();
  out["atol"] = j.tolerance.atol;
  out["rtol"] = j.tolerance.rtol;
  return out;
}

py::dict call_judgement_dict(const CallJudgement& judgement) {
  py::dict out;
  out["verdict"] = verdict_name(judgement.verdict);
  out["reason"] = judgement.reason;
  out["worst"] = judgement.worst;
  py::list results;
  for (const auto& [name, each] : judgement.each) {
    py::dict one = judgement_dict(each);
    one["result"] = name;
    results.append(one);
  }
  out["results"] = results;
  return out;
}

namespace {

at::Tensor any_tensor(const py::object& object) {
  if (!THPVariable_Check(object.ptr())) {
    throw py::type_error("op_tools: this has to be a tensor");
  }
  return THPVariable_Unpack(object.ptr());
}

bool is_wrapped_number(const py::object& object) {
  return any_tensor(object).unsafeGetTensorImpl()->is_wrapped_number();
}

// Python cannot say it: the tensor stands for a Python number, and does not
// decide the dtype of a result.
void set_wrapped_number(const py::object& object) {
  const at::Tensor tensor = any_tensor(object);
  if (tensor.dim() != 0) {
    throw py::value_error("op_tools: a wrapped number has no dimensions");
  }
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
}

}  // namespace

void bind_verdicts(py::module_& m) {
  m.def("is_wrapped_number", &is_wrapped_number);
  m.def("set_wrapped_number", &set_wrapped_number);
  m.def(
      "judge",
      &judge,
      py::arg("got"),
      py::arg("reference"),
      py::arg("majorant") = py::none(),
      py::arg("terms") = 1,
      py::arg("tolerance") = py::none(),
      py::arg("details") = false);
}

}  // namespace optools
