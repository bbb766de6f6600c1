// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: the module, and how our exceptions reach Python.
#include <torch/csrc/Exceptions.h>

#include "driver/status.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace npu {
namespace {

PyObject* python_type(npu_status code) {
  switch (code) {
    case NPU_E_INVALID:
      return PyExc_ValueError;
    case NPU_E_UNSUPPORTED:
      return PyExc_NotImplementedError;
    default:
      return PyExc_RuntimeError;
  }
}

// PyTorch's own functions translate through a macro; bindings of ours go
// through pybind11, which knows nothing of c10::Error.
void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& e) {
    if (e.code() == NPU_E_OUT_OF_MEMORY) {
      torch::translate_exception_to_python(std::make_exception_ptr(
          c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, e.what())));
    } else {
      PyErr_SetString(python_type(e.code()), e.what());
    }
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace
}  // namespace npu

PYBIND11_MODULE(_C, m) {
  py::register_local_exception_translator(&npu::translate);
  npu::bind_affinity(m);
  npu::bind_device(m);
  npu::bind_distributed(m);
  npu::bind_error(m);
  npu::bind_fallback(m);
  npu::bind_graph(m);
  npu::bind_host_memory(m);
  npu::bind_memory(m);
  npu::bind_memory_pools(m);
  npu::bind_npurt(m);
  npu::bind_operators(m);
  npu::bind_packs(m);
  npu::bind_probes(m);
  npu::bind_profiler(m);
  npu::bind_sanitizer(m);
  npu::bind_stream(m);
  npu::bind_tensor(m);
}
