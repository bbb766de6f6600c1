// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: what only our tests ask, because no public function shows it.
#include <pybind11/stl.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

#include "aten/core/recorder.h"
#include "python/bindings.h"
#include "runtime/parallel.h"

namespace py = pybind11;

namespace npu {
namespace {

// How many threads take part in work of `n` items.
std::size_t threads_of_ranges(std::int64_t n) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const py::gil_scoped_release no_gil;
  parallel_ranges(n, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard<std::mutex> lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  return seen.size();
}

}  // namespace

void bind_probes(py::module_& m) {
  m.def("_threads_of_ranges", &threads_of_ranges, py::arg("n"));
  // Frames and copies of this thread, as lines of text.
  m.def("_start_work_log", &start_work_log);
  m.def("_take_work_log", &take_work_log);
}

}  // namespace npu
