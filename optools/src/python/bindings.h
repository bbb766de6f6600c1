// SPDX-License-Identifier: Apache-2.0
// The parts of op_tools._C.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string_view>

namespace py = pybind11;

namespace optools {

struct Record;
struct Judgement;
struct CallJudgement;

void bind_call_site(py::module_& m);
void bind_api_mode(py::module_& m);
void bind_api_threads(py::module_& m);
// Is this thread in the mode's handler, its stack of modes not as usual?
bool inside_api_handler();
void bind_results(py::module_& m);
void bind_capture(py::module_& m);
void bind_verdicts(py::module_& m);
void bind_compare(py::module_& m);
void bind_judge_call(py::module_& m);

// How deep values in a record may be nested.
inline constexpr int kMaxDepth = 64;

// MessagePack -> Python values. Extensions become tuples (code, value); arrays
// are lists, so that nothing else is a tuple. Throws ValueError for bytes that
// are no such value.
py::object unpack_value(std::string_view bytes);
// The "number" of a record, which is a map that begins with it; 0 where it
// does not.
uint64_t record_number(std::string_view bytes);

py::dict judgement_dict(const Judgement& judgement);
py::dict call_judgement_dict(const CallJudgement& judgement);

// Of an operator's number.
std::string op_name(uint32_t number);

// A reference of one's own while the object is called: the call, or another
// thread meanwhile, may replace it.
inline py::object kept(PyObject* borrowed) {
  return py::reinterpret_borrow<py::object>(borrowed);
}

}  // namespace optools
