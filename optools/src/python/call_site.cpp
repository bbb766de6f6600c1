// SPDX-License-Identifier: Apache-2.0
// Where in the user's Python program a call was made: the innermost frame
// outside PyTorch and these tools. A line is looked up when its instruction is
// first met; the number of both is bounded.
#include "core/call_site.h"

#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "python/bindings.h"

namespace optools {
namespace {

struct Site {
  std::string file;
  int line;
  std::string function;
};

// Sites there can be. Beyond it, calls from new lines share one.
constexpr size_t kMostSites = 200000;
// Code objects remembered; a program that compiles source over and over meets
// no end of them.
constexpr size_t kMostCode = 20000;
constexpr uint32_t kOtherSite = 1;

using CodePtr = PyCodeObject*;

// All of it is touched with the GIL held.
struct Sites {
  std::vector<Site> sites{{"", 0, ""}, {"<more than 200000 lines>", 0, "-"}};
  std::map<std::tuple<std::string, int, std::string>, uint32_t> known;
  // By code object and place in it; owns a reference of each code object, so
  // that the address stays this code's.
  struct Code {
    bool library = false;
    bool engine = false;   // the function of PyTorch that runs backward
    bool applies = false;  // the one that runs a custom Function
    std::unordered_map<int, uint32_t> numbers;
  };
  std::unordered_map<CodePtr, Code> codes;
  std::vector<std::string> prefixes;

  void forget_codes() {
    auto dropped = std::exchange(codes, {});
    for (auto& [code, numbers] : dropped) {
      Py_DECREF(code);
    }
  }
};

Sites& sites() {
  static auto* all = new Sites;
  return *all;
}

std::string file_of(CodePtr code) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code))
      .attr("co_filename")
      .cast<std::string>();
}

std::string name_of(CodePtr code) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code))
      .attr("co_name")
      .cast<std::string>();
}

bool is_function_of(
    CodePtr code, std::string_view file, std::string_view name) {
  return name_of(code) == name && file_of(code).ends_with(file);
}

bool in_library(CodePtr code) {
  const std::string file = file_of(code);
  bool found = file.rfind("<frozen", 0) == 0;
  for (const auto& prefix : sites().prefixes) {
    found = found || file.rfind(prefix, 0) == 0;
  }
  return found;
}

Sites::Code& remembered(CodePtr code) {
  auto& all = sites();
  if (const auto at = all.codes.find(code); at != all.codes.end()) {
    return at->second;
  }
  if (all.codes.size() >= kMostCode) {
    all.forget_codes();
  }
  const bool library = in_library(code);
  Sites::Code found{.library = library};
  // What is above the first on the calling thread's stack runs in a node.
  found.engine =
      library &&
      is_function_of(code, "torch/autograd/graph.py", "_engine_run_backward");
  found.applies =
      library && is_function_of(code, "torch/autograd/function.py", "apply");
  Py_INCREF(code);
  return all.codes.emplace(code, std::move(found)).first->second;
}

int place_in(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return PyFrame_GetLineNumber(frame);
#endif
}

int line_of(CodePtr code, int instruction) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyCode_Addr2Line(code, instruction);
#else
  (void)code;
  return instruction;
#endif
}

// A line of a function has one number, however often its source is compiled.
uint32_t number_of_line(CodePtr code, int instruction) {
  auto& all = sites();
  std::tuple key(file_of(code), line_of(code, instruction), name_of(code));
  if (const auto at = all.known.find(key); at != all.known.end()) {
    return at->second;
  }
  if (all.sites.size() >= kMostSites) {
    return kOtherSite;
  }
  const auto fresh = static_cast<uint32_t>(all.sites.size());
  all.sites.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
  all.known.emplace(std::move(key), fresh);
  return fresh;
}

uint32_t number(CodePtr code, int instruction) {
  const auto& numbers = remembered(code).numbers;
  if (const auto at = numbers.find(instruction); at != numbers.end()) {
    return at->second;
  }
  // Runs Python, which may come here again and forget: look the code up anew.
  const uint32_t found = number_of_line(code, instruction);
  remembered(code).numbers[instruction] = found;
  return found;
}

// `in_node`: only of frames that the running node of autograd entered; 0 where
// none of them is the user's.
uint32_t walk(bool in_node) {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  uint32_t innermost = 0;
  while (frame != nullptr) {
    CodePtr code = PyFrame_GetCode(frame);
    const auto& known = remembered(code);
    const bool library = known.library;
    if (in_node && known.engine) {
      Py_DECREF(code);
      Py_DECREF(frame);
      return 0;
    }
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
  return in_node ? 0 : innermost;
}

bool python_is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

uint32_t find_site_where(bool in_node) {
  if (!Py_IsInitialized() || python_is_ending()) {
    return 0;
  }
  const PyGILState_STATE state = PyGILState_Ensure();
  uint32_t site = 0;
  try {
    site = walk(in_node);
  } catch (const std::exception&) {
    PyErr_Clear();  // a record without a place is better than a failed call
  }
  PyGILState_Release(state);
  return site;
}

uint32_t find_site() {
  return find_site_where(false);
}

uint32_t find_node_site() {
  // A thread that has never run Python has no frames.
  const bool has_python =
      Py_IsInitialized() && PyGILState_GetThisThreadState() != nullptr;
  return has_python ? find_site_where(true) : 0;
}

// Among the innermost frames: a Function's forward may call other functions.
bool walk_to_function() {
  constexpr int kMostFrames = 64;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  bool found = false;
  for (int i = 0; i < kMostFrames && frame != nullptr && !found; ++i) {
    CodePtr code = PyFrame_GetCode(frame);
    found = remembered(code).applies;
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return found;
}

bool find_function() {
  if (!Py_IsInitialized() || python_is_ending() ||
      PyGILState_GetThisThreadState() == nullptr) {
    return false;
  }
  const PyGILState_STATE state = PyGILState_Ensure();
  bool found = false;
  try {
    found = walk_to_function();
  } catch (const std::exception&) {
    PyErr_Clear();
  }
  PyGILState_Release(state);
  return found;
}

py::object describe(uint32_t site) {
  if (site == 0 || site >= sites().sites.size()) {
    return py::none();
  }
  const auto& [file, line, function] = sites().sites[site];
  return py::make_tuple(file, line, function);
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
  g_node_site_finder = &find_node_site;
  g_function_finder = &find_function;
  g_site_describer = &describe_text;
  m.def(
      "site",
      &describe,
      "(file, line, function) of a site number, or None for number 0");
  m.def("site_count", [] { return sites().sites.size(); });
  m.def(
      "set_library_paths",
      [](std::vector<std::string> prefixes) {
        sites().prefixes = std::move(prefixes);
        sites().forget_codes();
      },
      "Files that begin with one of these are no user code");
}

}  // namespace optools
