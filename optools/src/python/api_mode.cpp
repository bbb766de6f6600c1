// SPDX-License-Identifier: Apache-2.0
// The handler of the TorchFunctionMode that knows Python API names: it marks
// the running thread as inside an API call, and calls the function.
#include <torch/csrc/autograd/function.h>

#include <atomic>

#include "core/engine.h"
#include "python/bindings.h"

namespace optools {
namespace {

std::atomic<uint64_t> g_api_calls{0};

// function -> number of its name, 0 for one that is no operator. Functions are
// compared by value: a property's getter is a new object each time.
PyObject* g_known = nullptr;
// resolver(function) -> name or None; called once per function.
PyObject* g_resolver = nullptr;
// observer(name, call, function, args, kwargs) -> what to call with the result,
// or None.
PyObject* g_observer = nullptr;

// -1 with a Python error set.
int64_t api_number(PyObject* function) {
  PyObject* known = PyDict_GetItemWithError(g_known, function);
  if (known != nullptr) {
    return PyLong_AsLongLong(known);
  }
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();  // not hashable
    return 0;
  }
  int64_t number = 0;
  if (g_resolver != nullptr) {
    PyObject* name =
        PyObject_CallFunctionObjArgs(kept(g_resolver).ptr(), function, nullptr);
    if (name == nullptr) {
      return -1;
    }
    if (PyUnicode_Check(name)) {
      number = api_names().number(PyUnicode_AsUTF8(name));
    }
    Py_DECREF(name);
  }
  PyObject* value = PyLong_FromLongLong(number);
  const int stored = PyDict_SetItem(g_known, function, value);
  Py_DECREF(value);
  return stored < 0 ? -1 : number;
}

bool in_node() {
  return torch::autograd::get_current_node() != nullptr;
}

// Inside an API call until it is destroyed.
class Scope {
 public:
  Scope(uint32_t api, uint64_t call)
      : thread_(this_thread()),
        api_(thread_.api),
        call_(thread_.api_call),
        in_node_(thread_.api_in_node) {
    thread_.api = api;
    thread_.api_call = call;
    thread_.api_in_node = in_node();
  }
  ~Scope() {
    thread_.api = api_;
    thread_.api_call = call_;
    thread_.api_in_node = in_node_;
  }

 private:
  ThreadState& thread_;
  uint32_t api_;
  uint64_t call_;
  bool in_node_;
};

// How deep this thread is in handle(): PyTorch has the mode off its stack
// there, and puts it back afterwards.
constinit thread_local int t_handling = 0;

struct Handling {
  Handling() {
    ++t_handling;
  }
  ~Handling() {
    --t_handling;
  }
};

// Tells an observer the result, or by calling it with nothing that the function
// raised; that exception stays.
void tell(PyObject* after, PyObject*& result) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* done = PyObject_CallFunctionObjArgs(after, result, nullptr);
  if (done == nullptr && result != nullptr) {
    Py_CLEAR(result);
  } else {
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
  }
  Py_XDECREF(done);
}

PyObject* call_observed(
    PyObject* function,
    PyObject* args,
    PyObject* kwargs,
    uint32_t api,
    uint64_t call) {
  PyObject* after = PyObject_CallFunction(
      kept(g_observer).ptr(),
      "sKOOO",
      api_names().name(api).c_str(),
      static_cast<unsigned long long>(call),
      function,
      args,
      kwargs == nullptr ? Py_None : kwargs);
  if (after == nullptr) {
    return nullptr;
  }
  PyObject* result;
  {
    const Scope scope(api, call);
    result = PyObject_Call(function, args, kwargs);
  }
  if (after != Py_None) {
    tell(after, result);
  }
  Py_DECREF(after);
  return result;
}

// Calls a function as API number `api`; what it calls is part of it.
PyObject* call_api(
    PyObject* function, PyObject* args, PyObject* kwargs, uint32_t api) {
  const uint64_t call = ++g_api_calls;
  if (g_observer != nullptr) {
    return call_observed(function, args, kwargs, api, call);
  }
  const Scope scope(api, call);
  return PyObject_Call(function, args, kwargs);
}

bool part_of_a_call() {
  const ThreadState& thread = this_thread();
  return thread.api != 0 && (thread.api_in_node || !in_node());
}

// Does anyone ask which API this thread calls?
bool is_asked() {
  return this_thread().busy != ~ToolMask{0} &&
         (g_observer != nullptr || Engine::get().needs_origin());
}

// __torch_function__(function, types, args=(), kwargs=None)
PyObject* handle(PyObject*, PyObject* const* argv, Py_ssize_t count) {
  if (count < 2) {
    PyErr_SetString(
        PyExc_TypeError, "__torch_function__ takes 2 to 4 arguments");
    return nullptr;
  }
  PyObject* function = argv[0];
  PyObject* empty = nullptr;
  PyObject* args = count > 2 ? argv[2] : (empty = PyTuple_New(0));
  PyObject* kwargs = count > 3 && argv[3] != Py_None ? argv[3] : nullptr;
  PyObject* result = nullptr;
  const Handling handling;
  // A function called by another one is part of that.
  const int64_t api =
      !part_of_a_call() && is_asked() ? api_number(function) : 0;
  if (api == 0) {
    result = PyObject_Call(function, args, kwargs);
  } else if (api > 0) {
    result = call_api(function, args, kwargs, static_cast<uint32_t>(api));
  }
  Py_XDECREF(empty);
  return result;
}

PyMethodDef g_handler{
    "__torch_function__",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&handle)),
    METH_FASTCALL,
    "Calls a function, marked as an API call"};

void replace(PyObject*& slot, py::object value) {
  PyObject* old = slot;
  slot = value.is_none() ? nullptr : value.release().ptr();
  Py_XDECREF(old);
}

}  // namespace

bool inside_api_handler() {
  return t_handling > 0;
}

void bind_api_mode(py::module_& m) {
  g_known = PyDict_New();
  // PyTorch wants a handler bound to its mode.
  m.def("api_handler", [](const py::object& mode) {
    return py::reinterpret_steal<py::object>(
        PyCFunction_New(&g_handler, mode.ptr()));
  });
  m.def(
      "set_api_resolver",
      [](py::object resolver) {
        PyDict_Clear(g_known);
        replace(g_resolver, std::move(resolver));
      },
      "resolver(function) -> API name or None");
  m.def("set_api_observer", [](py::object observer) {
    replace(g_observer, std::move(observer));
  });
  m.def(
      "call_api",
      [](const py::object& function,
         uint32_t api,
         const py::tuple& args,
         const py::dict& kwargs) {
        PyObject* result =
            is_asked()
                ? call_api(function.ptr(), args.ptr(), kwargs.ptr(), api)
                : PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr());
        if (result == nullptr) {
          throw py::error_already_set();
        }
        return py::reinterpret_steal<py::object>(result);
      },
      "function(*args, **kwargs) as the API of that number");
  m.def("next_api_call", [] { return ++g_api_calls; });
  m.def("api_number", [](const std::string& name) {
    return api_names().number(name);
  });
  m.def("api_names", [] { return api_names().all(); });
}

}  // namespace optools
