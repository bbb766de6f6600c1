// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program the calling thread is.
#include "python/call_site.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace npu {
namespace {

bool is_library(const std::string& file) {
  return file.find("/torch/") != std::string::npos ||
      file.find("/torch_npu/") != std::string::npos || file.rfind("<", 0) == 0;
}

std::string describe(PyFrameObject* frame, const std::string& file) {
  const auto code =
      py::reinterpret_steal<py::object>((PyObject*)PyFrame_GetCode(frame));
  const auto name = code.attr("co_name").cast<std::string>();
  const auto slash = file.rfind('/');
  return file.substr(slash == std::string::npos ? 0 : slash + 1) + ":" +
      std::to_string(PyFrame_GetLineNumber(frame)) + " in " + name;
}

std::string search() {
  auto frame = py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string innermost;
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code =
        py::reinterpret_steal<py::object>((PyObject*)PyFrame_GetCode(raw));
    const auto file = code.attr("co_filename").cast<std::string>();
    if (!is_library(file)) {
      return describe(raw, file);
    }
    if (innermost.empty()) {
      innermost = describe(raw, file);
    }
    frame = py::reinterpret_steal<py::object>(
        reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return innermost;
}

} // namespace

std::string python_call_site() {
  if (!Py_IsInitialized()) {
    return {};
  }
  py::gil_scoped_acquire gil;
  try {
    return search();
  } catch (const std::exception&) {
    return {}; // a report without a place is better than a failed operator
  }
}

} // namespace npu
