// SPDX-License-Identifier: Apache-2.0
// Compare for Python.
#include "tools/compare.h"

#include <torch/csrc/Dtype.h>

#include "core/blocking.h"
#include "core/engine.h"
#include "python/bindings.h"

namespace optools {
namespace {

void wait_without_gil(const std::function<void()>& wait) {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    py::gil_scoped_release release;
    wait();
  } else {
    wait();
  }
}

// {("LINEAR", torch.bfloat16 or None): (atol, rtol)}
Tolerances tolerances_of(const py::dict& map) {
  Tolerances found;
  for (const auto& [key, value] : map) {
    const auto pair = py::cast<std::pair<std::string, py::object>>(key);
    const auto limits = py::cast<std::pair<double, double>>(value);
    auto dtype = c10::ScalarType::Undefined;
    if (!pair.second.is_none()) {
      if (!THPDtype_Check(pair.second.ptr())) {
        throw py::type_error("op_tools: expected a torch.dtype");
      }
      dtype = reinterpret_cast<THPDtype*>(pair.second.ptr())->scalar_type;
    }
    found[{pair.first, dtype}] = {limits.first, limits.second};
  }
  return found;
}

std::shared_ptr<Compare> make_compare(
    int threads,
    size_t queue_bytes,
    uint64_t every,
    double most_slowdown,
    size_t row_limit,
    size_t finding_limit,
    const py::dict& tolerances) {
  CompareOptions options;
  options.threads = std::max(threads, 1);
  options.queue_bytes = queue_bytes;
  options.every = every;
  options.most_slowdown = most_slowdown;
  options.row_limit = row_limit;
  options.finding_limit = finding_limit;
  options.tolerances = tolerances_of(tolerances);
  return std::make_shared<Compare>(std::move(options));
}

py::dict place_dict(const CallPlace& place) {
  py::dict out;
  out["number"] = place.number;
  out["op"] = op_name(place.op);
  out["phase"] = phase_name(place.phase);
  out["device"] = c10::DeviceTypeName(place.device, true);
  out["step"] = place.step;
  out["thread"] = place.thread;
  out["api"] = api_names().name(place.origin.api);
  out["api_call"] = place.origin.api_call;
  out["module"] = module_names().name(place.origin.module);
  out["site"] = place.origin.site;
  out["forward"] = place.origin.number;
  return out;
}

py::list compared_rows(const Compare& tool) {
  py::list out;
  for (const auto& row : tool.rows()) {
    py::dict one = place_dict(row.place);
    one["result"] = row.result;
    one.attr("update")(judgement_dict(row.judgement));
    out.append(one);
  }
  return out;
}

py::list compared_findings(const Compare& tool) {
  py::list out;
  for (const auto& finding : tool.findings()) {
    py::dict one = place_dict(finding.place);
    one.attr("update")(call_judgement_dict(finding.judgement));
    out.append(one);
  }
  return out;
}

py::list compared_sums(const Compare& tool) {
  py::list out;
  for (const auto& [op, sum] : tool.sums()) {
    py::dict one;
    one["op"] = op_name(op);
    for (size_t i = 0; i < sum.calls.size(); ++i) {
      one[verdict_name(static_cast<Verdict>(i))] = sum.calls[i];
    }
    one["e"] = sum.worst;
    one["worst_call"] = sum.worst_call;
    one["ns"] = sum.ns;
    out.append(one);
  }
  return out;
}

py::list compared_skips(const Compare& tool) {
  py::list out;
  for (const auto& [key, share] : tool.skips()) {
    out.append(
        py::make_tuple(op_name(key.first), key.second, share.calls, share.ns));
  }
  return out;
}

py::dict compare_costs(const Compare& tool) {
  const auto costs = tool.costs();
  py::dict out;
  out["calls"] = costs.calls;
  out["kernels_ns"] = costs.kernels;
  out["looking_ns"] = costs.looking;
  out["judging_ns"] = costs.judging;
  out["every"] = costs.every;
  out["since"] = costs.since;
  out["slowdown"] = costs.slowdown;
  return out;
}

}  // namespace

void bind_compare(py::module_& m) {
  g_waiter.store(&wait_without_gil);
  py::class_<Compare, Tool, std::shared_ptr<Compare>>(m, "Compare")
      .def(
          py::init(&make_compare),
          py::kw_only(),
          py::arg("threads"),
          py::arg("queue_bytes"),
          py::arg("every"),
          py::arg("most_slowdown"),
          py::arg("row_limit"),
          py::arg("finding_limit"),
          py::arg("tolerances"))
      .def(
          "wait",
          &Compare::wait,
          "Until every call so far is judged",
          py::call_guard<py::gil_scoped_release>())
      .def("rows", &compared_rows)
      .def("findings", &compared_findings)
      .def("sums", &compared_sums)
      .def("skips", &compared_skips)
      .def("costs", &compare_costs)
      .def_property_readonly("dropped_rows", &Compare::dropped_rows);
}

}  // namespace optools
