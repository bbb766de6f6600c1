// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: which cores the calling thread may run on.
#include <pybind11/stl.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "driver/status.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace npu {
namespace {

void set_cores(const cpu_set_t& cores) {
  // 0 is the calling thread; threads it starts later inherit its cores.
  if (sched_setaffinity(0, sizeof(cores), &cores) != 0) {
    throw Error(
        NPU_E_INVALID,
        std::string("npu: set_thread_affinity: ") + std::strerror(errno) +
            ". Name cores this process may use.");
  }
}

cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  return cores;
}

// What the process was started with; taken when the module is loaded.
cpu_set_t& first_cores() {
  static cpu_set_t cores = own_cores();
  return cores;
}

void set_affinity(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) {
    if (core < 0 || core >= CPU_SETSIZE) {
      throw Error(
          NPU_E_INVALID,
          "npu: set_thread_affinity: there is no core " + std::to_string(core) +
              ".");
    }
    CPU_SET(static_cast<unsigned>(core), &set);
  }
  set_cores(set);
}

}  // namespace

void bind_affinity(py::module_& m) {
  first_cores();
  m.def("_npu_set_thread_affinity", &set_affinity);
  // -1, -1: as the process was started.
  m.def("_npu_set_thread_affinity", [](int, int) { set_cores(first_cores()); });
  m.def("_npu_reset_thread_affinity", [] { set_cores(first_cores()); });
}

}  // namespace npu
