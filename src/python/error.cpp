// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: torch_npu's error codes and its warnings.
#include "runtime/error.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace npu {

void bind_error(py::module_& m) {
  m.def("_error_line", [](int module, int code) {
    return error_line(static_cast<Module>(module), static_cast<Code>(code));
  });
}

}  // namespace npu
