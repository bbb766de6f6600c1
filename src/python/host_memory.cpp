// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: pinned host memory, its cache and its counters.
#include "python/bindings.h"
#include "python/stat_dict.h"
#include "runtime/pinned.h"

namespace py = pybind11;

namespace npu {
namespace {

template <class Duration>
py::dict duration_dict(const Duration& duration) {
  py::dict out;
  out["total"] = duration.total;
  out["max"] = duration.max;
  out["min"] = duration.min;
  out["count"] = duration.count;
  return out;
}

// torch.cuda.host_memory_stats' names.
py::dict host_memory_stats() {
  const at::HostStats stats = pinned_allocator()->get_stats();
  py::dict out;
  out["num_host_alloc"] = stats.num_host_alloc;
  out["num_host_free"] = stats.num_host_free;
  out["allocations"] = stat_dict(stats.allocations);
  out["active_requests"] = stat_dict(stats.active_requests);
  out["allocated_bytes"] = stat_dict(stats.allocated_bytes);
  out["active_bytes"] = stat_dict(stats.active_bytes);
  out["host_alloc_time"] = duration_dict(stats.host_alloc_time);
  out["host_free_time"] = duration_dict(stats.host_free_time);
  return out;
}

}  // namespace

void bind_host_memory(py::module_& m) {
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  m.def("_host_memory_stats", &host_memory_stats);
  m.def(
      "_npu_hostEmptyCache", [] { pinned_allocator()->empty_cache(); }, no_gil);
  m.def(
      "_reset_accumulated_host_memory_stats",
      [] { pinned_allocator()->reset_accumulated_stats(); },
      no_gil);
  m.def(
      "_reset_peak_host_memory_stats",
      [] { pinned_allocator()->reset_peak_stats(); },
      no_gil);
}

}  // namespace npu
