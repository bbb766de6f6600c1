// SPDX-License-Identifier: Apache-2.0
// op_tools._C: tools and what they select. Converts and calls.
#include <torch/csrc/autograd/function.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "core/engine.h"
#include "core/phase.h"
#include "core/taps.h"
#include "core/thread_names.h"
#include "python/bindings.h"

namespace optools {
namespace {

uint64_t device_mask(const std::vector<std::string>& names) {
  uint64_t mask = 0;
  for (const auto& name : names) {
    mask |= uint64_t{1} << static_cast<int>(c10::Device(name).type());
  }
  return mask;
}

void mark(std::vector<bool>& list, const std::vector<uint32_t>& numbers) {
  for (const auto number : numbers) {
    if (number >= list.size()) {
      list.resize(number + 1);
    }
    list[number] = true;
  }
}

// A selection is made once, before the tool starts.
void select(
    Tool& tool,
    const std::vector<std::string>& devices,
    const std::optional<std::vector<uint32_t>>& operators,
    const std::vector<uint32_t>& refused,
    bool by_api,
    bool refuses_apis) {
  auto& selection = tool.selection;
  selection.devices = device_mask(devices);
  selection.every_operator = !operators.has_value();
  if (operators) {
    mark(selection.operators, *operators);
  }
  mark(selection.refused, refused);
  selection.by_api = by_api;
  selection.refuses_apis = refuses_apis;
}

void restrict_to(
    Tool& tool,
    uint8_t phases,
    std::pair<int64_t, int64_t> steps,
    bool by_module,
    uint32_t thread) {
  auto& selection = tool.selection;
  selection.phases = phases;
  selection.first_step = steps.first;
  selection.last_step = steps.second;
  selection.by_module = by_module;
  selection.thread = thread;
}

std::map<std::string, uint64_t> unseen_calls(const Tool& tool) {
  std::map<std::string, uint64_t> found;
  const auto& calls = tool.unseen();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i] != 0) {
      found[c10::DeviceTypeName(static_cast<c10::DeviceType>(i), true)] =
          calls[i];
    }
  }
  return found;
}

}  // namespace

std::string op_name(uint32_t number) {
  const auto* op = Engine::get().operator_at(number);
  return op == nullptr ? std::string() : op->name;
}

namespace {

void bind_tool(py::module_& m) {
  py::class_<Tool, std::shared_ptr<Tool>>(m, "Tool")
      .def(
          "select",
          &select,
          py::kw_only(),
          py::arg("devices"),
          py::arg("operators") = py::none(),
          py::arg("refused") = std::vector<uint32_t>{},
          py::arg("by_api") = false,
          py::arg("refuses_apis") = false)
      .def(
          "restrict",
          &restrict_to,
          py::kw_only(),
          py::arg("phases"),
          py::arg("steps"),
          py::arg("by_module"),
          py::arg("thread"))
      .def(
          "set_api",
          [](Tool& tool, uint32_t api, bool wanted, bool refused) {
            tool.selection.apis.set(api, wanted);
            tool.selection.refused_apis.set(api, refused);
          })
      .def(
          "set_module",
          [](Tool& tool, uint32_t module, bool wanted) {
            tool.selection.modules.set(module, wanted);
          })
      .def_readwrite("wants_sites", &Tool::wants_sites)
      .def_readwrite("label", &Tool::label)
      .def(
          "start",
          [](const std::shared_ptr<Tool>& tool) { Engine::get().start(tool); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "stop",
          [](const std::shared_ptr<Tool>& tool) {
            const bool was = Engine::get().stop(tool);
            if (was) {
              tool->finish();
            }
            return was;
          },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly(
          "running",
          [](const Tool& tool) { return Engine::get().running(&tool); })
      .def_property_readonly("failure", &Tool::failure)
      .def_property_readonly("saw", &Tool::saw)
      .def(
          "unseen",
          &unseen_calls,
          "Calls by device type while it saw none; after stop()");
}

// Python's finalisation is over: handlers have run, files are closed.
void end_with_failure() {
  std::exit(1);
}

void bind_state(py::module_& m) {
  m.def(
      "fail_process",
      [] {
        static const bool said = Py_AtExit(&end_with_failure) == 0;
        return said;
      },
      "The process is to end with exit code 1, after all there is to do at its "
      "end; False where Python has no room for that");
  m.def(
      "calls_without_backward",
      &calls_without_backward,
      "(forward calls of this thread that wait for backward(), a number that "
      "changes when one runs)");
  m.def(
      "operator_names",
      [] { return Engine::get().operator_names(); },
      "By operator number",
      py::call_guard<py::gil_scoped_release>());
  m.def("dump_dispatcher", &dump_dispatcher);
  m.def("tap_count", [] { return Engine::get().tap_count(); });
  m.def("drop_taps", [] { Engine::get().drop_taps(); });
  m.def("idle", [] { return Engine::get().idle(); });
  m.def("step", [] { return Engine::get().step(); });
  m.def("set_step", [](int64_t step) { Engine::get().set_step(step); });
  m.def("thread_number", [] { return this_thread().id; });
  m.def("threads", [] {
    py::list all;
    for (const auto& t : thread_names()) {
      all.append(py::make_tuple(t.number, t.system, t.name));
    }
    return all;
  });
  // What Python code of ours computes is no call of the user's.
  m.def(
      "quiet", [] { return std::exchange(this_thread().busy, ~ToolMask{0}); });
  m.def("end_quiet", [](ToolMask before) { this_thread().busy = before; });
  m.def("module_number", [](const std::string& name) {
    return module_names().number(name);
  });
  // In the user's forward: without memory a module has no name, and its calls
  // have that of the module around it.
  m.def("enter_module", [](uint32_t number) {
    try {
      auto& thread = this_thread();
      if (thread.modules.size() == thread.modules_entered++) {
        thread.modules.push_back(
            {number, torch::autograd::get_current_node().get()});
      }
    } catch (const std::bad_alloc&) {
    }
  });
  m.def("leave_module", [] {
    try {
      auto& thread = this_thread();
      if (thread.modules_entered != 0 &&
          thread.modules.size() > --thread.modules_entered) {
        thread.modules.pop_back();
      }
    } catch (const std::bad_alloc&) {
    }
  });
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  bind_tool(m);
  bind_state(m);
  bind_call_site(m);
  bind_api_mode(m);
  bind_api_threads(m);
  bind_results(m);
  bind_capture(m);
  bind_verdicts(m);
  bind_compare(m);
  bind_judge_call(m);
}

}  // namespace optools
