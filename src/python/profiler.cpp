// SPDX-License-Identifier: Apache-2.0
// State of the profiler and `opennpu top`, for tests.
#include "profiler/page.h"
#include "profiler/watch.h"
#include "python/bindings.h"

namespace npu {

void bind_profiler(pybind11::module_& m) {
  // Who watches device work now: bit 0 a recording, bit 1 `opennpu top`.
  m.def("_watched_for", &profiler::watched_for);
  m.def("_top_page", &profiler::page_path);
}

}  // namespace npu
