// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program the calling thread is.
#include "python/call_site.h"

#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace npu {
namespace {

template <class T>
py::object steal(T* object) {
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

std::vector<PythonFrame> walk() {
  std::vector<PythonFrame> frames;
  auto frame = py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const py::object code = steal(PyFrame_GetCode(raw));
    frames.push_back(
        {code.attr("co_filename").cast<std::string>(),
         PyFrame_GetLineNumber(raw),
         code.attr("co_name").cast<std::string>()});
    frame = steal(PyFrame_GetBack(raw));
  }
  return frames;
}

bool is_library(const std::string& file) {
  return file.find("/torch/") != std::string::npos ||
         file.find("/torch_npu/") != std::string::npos;
}

}  // namespace

std::vector<PythonFrame> python_frames() noexcept {
  if (!Py_IsInitialized()) {
    return {};
  }
  py::gil_scoped_acquire gil;
  try {
    return walk();
  } catch (const std::exception&) {
    return {};  // a report without a place is better than a failed operator
  }
}

std::string python_call_site() {
  const auto frames = python_frames();
  if (frames.empty()) {
    return {};
  }
  const PythonFrame* best = &frames.front();
  for (const auto& frame : frames) {
    if (!is_library(frame.file)) {
      best = &frame;
      break;
    }
  }
  const auto slash = best->file.rfind('/');
  return best->file.substr(slash == std::string::npos ? 0 : slash + 1) + ":" +
         std::to_string(best->line) + " in " + best->function;
}

}  // namespace npu
