// SPDX-License-Identifier: Apache-2.0
// The parts of torch_npu._C, one function per file. They convert and call;
// decisions are made in src/runtime, src/aten or in Python.
#pragma once

#include <pybind11/pybind11.h>

namespace npu {

void bind_affinity(pybind11::module_& m);
void bind_device(pybind11::module_& m);
void bind_distributed(pybind11::module_& m);
void bind_error(pybind11::module_& m);
void bind_fallback(pybind11::module_& m);
void bind_graph(pybind11::module_& m);
void bind_host_memory(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_memory_pools(pybind11::module_& m);
void bind_npurt(pybind11::module_& m);
void bind_operators(pybind11::module_& m);
void bind_packs(pybind11::module_& m);
void bind_probes(pybind11::module_& m);
void bind_profiler(pybind11::module_& m);
void bind_sanitizer(pybind11::module_& m);
void bind_stream(pybind11::module_& m);
void bind_tensor(pybind11::module_& m);

}  // namespace npu
