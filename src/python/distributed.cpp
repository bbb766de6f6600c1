// SPDX-License-Identifier: Apache-2.0
// The process group in Python: torch_npu.distributed makes it known to torch.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "dist/flight_recorder.h"
#include "dist/lane.h"
#include "dist/process_group.h"
#include "dist/transport.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace npu {
namespace {

using dist::ProcessGroupHccl;
using Group = ProcessGroupHccl;
using Options = ProcessGroupHccl::Options;

void bind_options(py::module_& m) {
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(
      m, "ProcessGroupHCCLOptions")
      .def(
          py::init([](bool high_priority, const std::string& backend) {
            auto made = c10::make_intrusive<Options>(backend);
            made->is_high_priority_stream = high_priority;
            return made;
          }),
          py::arg("is_high_priority_stream") = false,
          py::arg("backend") = "hccl")
      .def_readwrite("op_timeout", &Options::op_timeout)
      .def_readwrite(
          "is_high_priority_stream", &Options::is_high_priority_stream)
      .def(
          "__deepcopy__",
          [](const Options& self, const py::object&) {
            return c10::make_intrusive<Options>(self);
          },
          py::arg("memo"));
}

void bind_group(py::module_& m) {
  const py::call_guard<py::gil_scoped_release> free;
  py::class_<Group, c10d::Backend, c10::intrusive_ptr<Group>>(
      m, "ProcessGroupHCCL")
      .def(
          py::init([](const c10::intrusive_ptr<c10d::Store>& store,
                      int rank,
                      int size,
                      const c10::intrusive_ptr<Options>& options) {
            const py::gil_scoped_release released;
            return c10::make_intrusive<Group>(store, rank, size, options);
          }),
          py::arg("store"),
          py::arg("rank"),
          py::arg("size"),
          py::arg("options"))
      .def_property_readonly("options", &Group::options)
      .def("_set_default_timeout", &Group::setTimeout, py::arg("timeout"), free)
      .def("abort", &Group::abort, free)
      .def("abort_hccl_comm", &Group::abort, free)
      .def("shutdown", &Group::shutdown, free)
      .def(
          "perform_nocolor_split",
          [](Group&, const py::object&) {},
          py::arg("device"),
          "Ranks outside a new group have nothing to do here.");
}

// torch_npu's names for it.
void bind_flight_recorder(py::module_ m) {
  using dist::FlightRecorder;
  m.def(
      "_dump_hccl_trace",
      [](bool calls, bool stacks, bool only_active) {
        std::string made;
        {
          const py::gil_scoped_release free;
          made = FlightRecorder::of_process().dump(calls, stacks, only_active);
        }
        return py::bytes(made);
      },
      py::arg("includeCollectives") = true,
      py::arg("includeStackTraces") = true,
      py::arg("onlyActive") = false);
  m.def("_collective_transports", &dist::counted_transports);
  m.def(
      "_write_hccl_trace",
      [](int rank) {
        const py::gil_scoped_release free;
        const std::string file = FlightRecorder::file_of(rank);
        FlightRecorder::write(
            file, FlightRecorder::of_process().dump(true, true, false));
        return file;
      },
      py::arg("rank"));
}

}  // namespace

// Not at import: torch registers the base classes when torch.distributed comes.
void bind_distributed(py::module_& m) {
  m.def("_bind_distributed", [](py::module_ into) {
    bind_options(into);
    bind_group(into);
    bind_flight_recorder(into.def_submodule("_distributed_c10d"));
  });
  m.def(
      "_end_lanes",
      [] { dist::end_lanes(std::chrono::seconds(2)); },
      py::call_guard<py::gil_scoped_release>());
  m.def("_set_gloo_factory", [](const py::function& function) {
    // For the life of the process: groups are split without Python.
    auto* kept = new py::function(function);
    ProcessGroupHccl::set_gloo_factory(
        [kept](
            const dist::StorePtr& store,
            int rank,
            int size,
            const ProcessGroupHccl::OptionsPtr& options) {
          const py::gil_scoped_acquire gil;
          return (*kept)(store, rank, size, options)
              .cast<c10::intrusive_ptr<c10d::Backend>>();
        });
  });
}

}  // namespace npu
