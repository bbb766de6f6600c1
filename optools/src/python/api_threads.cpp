// SPDX-License-Identifier: Apache-2.0
// PyTorch's stack of function modes belongs to a thread, and only that thread
// can change it. Python can make a running thread call us at the next thing it
// does: a profile function, taken off again as soon as it has run once.
#include "python/bindings.h"

#if PY_VERSION_HEX >= 0x030D0000
extern "C" int _PyEval_SetProfile(PyThreadState*, Py_tracefunc, PyObject*);
#endif

namespace optools {
namespace {

// Called in the thread, without arguments; True when it is done there.
PyObject* g_visitor = nullptr;

int visit(PyObject*, PyFrameObject*, int, PyObject*) {
  if (inside_api_handler()) {
    return 0;  // the next event will do
  }
  PyThreadState* self = PyThreadState_Get();
  if (self->c_profilefunc == &visit &&
      _PyEval_SetProfile(self, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
  if (g_visitor == nullptr) {
    return 0;
  }
  // An event may carry an exception on its way.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* done = PyObject_CallObject(kept(g_visitor).ptr(), nullptr);
  if (done == nullptr ||
      (done == Py_False && _PyEval_SetProfile(self, &visit, nullptr) < 0)) {
    PyErr_Clear();
  }
  Py_XDECREF(done);
  PyErr_Restore(type, value, trace);
  return 0;
}

// Threads with another profiler are left alone. Returns how many.
int visit_threads() {
  const PyThreadState* self = PyThreadState_Get();
  const bool now = !inside_api_handler();
  if (now) {
    visit(nullptr, nullptr, 0, nullptr);
  }
  int skipped = 0;
  PyThreadState* each = PyInterpreterState_ThreadHead(self->interp);
  for (; each != nullptr; each = PyThreadState_Next(each)) {
    if ((each == self && now) || each->c_profilefunc == &visit) {
      continue;
    }
    if (each->c_profilefunc != nullptr) {
      ++skipped;
    } else if (_PyEval_SetProfile(each, &visit, nullptr) < 0) {
      PyErr_Clear();
      ++skipped;
    }
  }
  return skipped;
}

}  // namespace

void bind_api_threads(py::module_& m) {
  m.def(
      "visit_threads",
      [](py::object visitor) {
        PyObject* old = g_visitor;
        g_visitor = visitor.release().ptr();
        Py_XDECREF(old);
        return visit_threads();
      },
      "Calls visitor() here, and makes every other Python thread call it soon; "
      "returns how many threads could not be asked");
}

}  // namespace optools
