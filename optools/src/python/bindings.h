// SPDX-License-Identifier: Apache-2.0
// The parts of op_tools._C.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace optools {

struct Record;
struct Judgement;

void bind_call_site(py::module_& m);
void bind_api_mode(py::module_& m);
void bind_results(py::module_& m);
void bind_verdicts(py::module_& m);

py::dict judgement_dict(const Judgement& judgement);

}  // namespace optools
