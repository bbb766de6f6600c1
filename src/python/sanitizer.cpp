// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: the stream sanitizer and the mode that reports synchronizing
// operators. How a report reads is decided in Python.
#include "runtime/sanitizer/sanitizer.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/call_site.h"

namespace py = pybind11;

namespace npu {
namespace {

using sanitizer::Access;

// Owned references for the life of the process: threads may call at exit.
struct Listeners {
  py::object race;
  py::object missing;
  py::object error;  // () -> the exception to raise
  py::object warn;   // of a synchronizing operator
};
Listeners& listeners() {
  static auto* const all = new Listeners;
  return *all;
}

std::shared_ptr<void> stack_of_thread() {
  return torch::CapturedTraceback::gather(
      /*python=*/true, /*script=*/false, /*cpp=*/false);
}

// [(file, line, function)], the innermost first.
py::list frames_of(const std::shared_ptr<void>& stack) {
  py::list frames;
  auto* const gathered = static_cast<torch::CapturedTraceback*>(stack.get());
  if (gathered != nullptr) {
    const auto found = torch::symbolize({gathered});
    for (const auto index : found.tracebacks.at(0)) {
      const auto& frame = found.all_frames.at(index);
      frames.append(
          py::make_tuple(frame.filename, frame.lineno, frame.funcname));
    }
  }
  return frames;
}

py::object launch_of(const sanitizer::LaunchPtr& launch) {
  if (launch == nullptr) {
    return py::none();
  }
  py::dict out;
  out["name"] = launch->name;
  out["stack"] = frames_of(launch->stack);
  out["forward_stack"] = frames_of(launch->forward_stack);
  return out;
}

py::dict stream_of(const sanitizer::StreamName& stream) {
  py::dict out;
  out["device"] = stream.device;
  out["id"] = stream.id;
  out["host"] = stream.device == sanitizer::kHostMemory;
  out["group"] = stream.id >= sanitizer::kFirstGroupStream;
  return out;
}

py::dict access_of(const Access& access) {
  py::dict out;
  out["write"] = access.write;
  out["begin"] = access.region.begin();
  out["end"] = access.region.end();
  out["stream"] = stream_of(access.stream);
  out["launch"] = launch_of(access.launch);
  out["argument"] = access.argument;
  out["tensor"] = access.tensor;
  out["released"] = access.released;
  return out;
}

py::dict missing_of(const sanitizer::MissingRecord& missing) {
  py::dict out;
  out["use"] = access_of(missing.use);
  out["owner"] = stream_of(missing.owner);
  out["allocated"] = launch_of(missing.allocated);
  out["freed"] = missing.freed;
  return out;
}

// Calls Python from the middle of an operator, or of a deleter: an exception of
// the caller's stays, and one of the listener's goes nowhere.
template <class F>
bool with_python(F body) noexcept {
  if (!Py_IsInitialized()) {
    return false;
  }
  const py::gil_scoped_acquire gil;
  const py::error_scope kept;
  try {
    return body();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("torch_npu.npu._sanitizer");
  } catch (const std::exception&) {
    PyErr_Clear();
  }
  return false;
}

bool show_race(const sanitizer::Race& race) {
  return with_python([&] {
    return listeners()
        .race(
            access_of(race.earlier),
            access_of(race.later),
            launch_of(race.allocated))
        .cast<bool>();
  });
}

void show_missing(const sanitizer::MissingRecord& missing) {
  with_python([&] {
    listeners().missing(missing_of(missing));
    return true;
  });
}

// A warning that the user's filters made an exception; owned.
thread_local PyObject* warning_of_thread = nullptr;

bool warn(const std::string& text) {
  return with_python([&] {
    try {
      listeners().warn(text);
    } catch (py::error_already_set& error) {
      Py_XDECREF(warning_of_thread);
      warning_of_thread = error.value().inc_ref().ptr();
      return true;
    }
    return false;
  });
}

void raise_pending_exception() {
  const py::gil_scoped_acquire gil;
  const py::object error = warning_of_thread != nullptr
                               ? py::reinterpret_steal<py::object>(
                                     std::exchange(warning_of_thread, nullptr))
                               : listeners().error();
  PyErr_SetObject(
      reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  python_error thrown;
  thrown.persist();
  throw thrown;  // NOLINT: as PyTorch throws it
}

std::string line_of_thread() {
  return without_folder(python_call_site());
}

void start(py::object race, py::object missing, py::object error) {
  Listeners& mine = listeners();
  mine.race = std::move(race);
  mine.missing = std::move(missing);
  mine.error = std::move(error);
  const py::gil_scoped_release no_gil;
  sanitizer::find_races(true);
}

}  // namespace

void bind_sanitizer(py::module_& m) {
  sanitizer::set_frontend(
      {&stack_of_thread,
       &show_race,
       &show_missing,
       &warn,
       &raise_pending_exception,
       &line_of_thread});
  m.def("_sanitizer_start", &start);
  m.def(
      "_sanitizer_stop",
      [] { sanitizer::find_races(false); },
      py::call_guard<py::gil_scoped_release>());
  m.def("_sanitizer_is_on", [] { return sanitizer::finds_races(); });
  m.def("_sanitizer_missing_records", [] {
    std::vector<sanitizer::MissingRecord> found;
    {
      const py::gil_scoped_release no_gil;
      found = sanitizer::missing_records();
    }
    py::list out;
    for (const auto& missing : found) {
      out.append(missing_of(missing));
    }
    return out;
  });
  m.def("_set_sync_debug_mode", [](unsigned mode, py::object warn) {
    listeners().warn = std::move(warn);
    const py::gil_scoped_release no_gil;
    sanitizer::set_sync_mode(static_cast<sanitizer::SyncMode>(mode));
  });
  m.def("_get_sync_debug_mode", [] {
    return static_cast<unsigned>(sanitizer::sync_mode());
  });
}

}  // namespace npu
