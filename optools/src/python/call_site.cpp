// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program a call was made: the innermost frame
// outside PyTorch and these tools. Kept raw (code object and instruction);
// file and line are looked up when somebody reads them.
#include "core/call_site.h"

#include <unordered_map>

#include "python/bindings.h"

namespace optools {
namespace {

struct Site {
  PyCodeObject* code;  // owned
  int instruction;     // a line number before Python 3.11
};

// All of it is touched with the GIL held.
struct Sites {
  std::vector<Site> sites{{nullptr, 0}};
  std::unordered_map<PyCodeObject*, std::unordered_map<int, uint32_t>> numbers;
  std::unordered_map<PyCodeObject*, bool> library;
  std::vector<std::string> prefixes;
};

Sites& sites() {
  static auto* all = new Sites;
  return *all;
}

std::string file_of(PyCodeObject* code) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code))
      .attr("co_filename")
      .cast<std::string>();
}

bool is_library(PyCodeObject* code) {
  auto& known = sites().library;
  const auto at = known.find(code);
  if (at != known.end()) {
    return at->second;
  }
  const std::string file = file_of(code);
  bool found = file.rfind("<frozen", 0) == 0;
  for (const auto& prefix : sites().prefixes) {
    found = found || file.rfind(prefix, 0) == 0;
  }
  Py_INCREF(code);  // the address must stay this code's
  known.emplace(code, found);
  return found;
}

int place_in(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return PyFrame_GetLineNumber(frame);
#endif
}

uint32_t number(PyCodeObject* code, int instruction) {
  auto& all = sites();
  const auto [it, fresh] = all.numbers[code].try_emplace(
      instruction, static_cast<uint32_t>(all.sites.size()));
  if (fresh) {
    Py_INCREF(code);
    all.sites.push_back({code, instruction});
  }
  return it->second;
}

uint32_t walk() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  uint32_t innermost = 0;
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool library = is_library(code);
    uint32_t here = 0;
    if (!library || innermost == 0) {
      here = number(code, place_in(frame));
    }
    Py_DECREF(code);
    if (!library) {
      Py_DECREF(frame);
      return here;
    }
    innermost = innermost == 0 ? here : innermost;
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return innermost;
}

bool python_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

uint32_t find_site() {
  if (!Py_IsInitialized() || python_is_ending()) {
    return 0;
  }
  const PyGILState_STATE state = PyGILState_Ensure();
  uint32_t site = 0;
  try {
    site = walk();
  } catch (const std::exception&) {
    PyErr_Clear();  // a record without a place is better than a failed call
  }
  PyGILState_Release(state);
  return site;
}

py::object describe(uint32_t site) {
  if (site == 0 || site >= sites().sites.size()) {
    return py::none();
  }
  const auto& [code, instruction] = sites().sites[site];
#if PY_VERSION_HEX >= 0x030B0000
  const int line = PyCode_Addr2Line(code, instruction);
#else
  const int line = instruction;
#endif
  const auto object =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code));
  return py::make_tuple(
      object.attr("co_filename"), line, object.attr("co_name"));
}

std::string describe_text(uint32_t site) {
  if (!Py_IsInitialized() || python_is_ending()) {
    return {};
  }
  const py::gil_scoped_acquire gil;
  const py::object found = describe(site);
  if (found.is_none()) {
    return {};
  }
  const auto parts = found.cast<std::tuple<std::string, int, std::string>>();
  return std::get<0>(parts) + ":" + std::to_string(std::get<1>(parts)) + " " +
         std::get<2>(parts);
}

}  // namespace

void bind_call_site(py::module_& m) {
  g_site_finder = &find_site;
  g_site_describer = &describe_text;
  m.def(
      "site",
      &describe,
      "(file, line, function) of a site number, or None for number 0");
  m.def(
      "set_library_paths",
      [](std::vector<std::string> prefixes) {
        sites().prefixes = std::move(prefixes);
        sites().library.clear();
      },
      "Files that begin with one of these are no user code");
}

}  // namespace optools
