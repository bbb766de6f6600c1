// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program the calling thread is.
#include "python/call_site.h"

#include <pybind11/pybind11.h>

#include <string_view>

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

bool is_library(std::string_view file) {
  return file.find("/torch/") != std::string_view::npos ||
         file.find("/torch_npu/") != std::string_view::npos;
}

std::string_view text_of(const py::object& text) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) {
    throw py::error_already_set();
  }
  return {bytes, static_cast<std::size_t>(size)};
}

std::string first_line_of_user() {
  auto frame = py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const py::object code = steal(PyFrame_GetCode(raw));
    const py::object file = code.attr("co_filename");
    if (const auto name = text_of(file); !is_library(name)) {
      const py::object function = code.attr("co_name");
      return std::string(name) + ":" +
             std::to_string(PyFrame_GetLineNumber(raw)) + " in " +
             std::string(text_of(function));
    }
    frame = steal(PyFrame_GetBack(raw));
  }
  return {};
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
  return best->file + ":" + std::to_string(best->line) + " in " +
         best->function;
}

std::string python_line() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) {
    return {};
  }
  py::gil_scoped_acquire gil;
  // A launch may happen while an exception is on its way.
  const py::error_scope kept;
  try {
    return first_line_of_user();
  } catch (const std::exception&) {
    return {};  // a trace without a line is better than a failed operator
  }
}

std::string without_folder(const std::string& site) {
  const auto slash = site.rfind('/');
  return slash == std::string::npos ? site : site.substr(slash + 1);
}

}  // namespace npu
