// SPDX-License-Identifier: Apache-2.0
// torch_npu._C._npurt: the few calls of Ascend's runtime that programs make
// themselves. They answer with a number, 0 for success, and never raise.
#include <ATen/Context.h>

#include <cstdint>
#include <exception>

#include "driver/services.h"
#include "python/bindings.h"
#include "runtime/device.h"
#include "runtime/external_stream.h"
#include "runtime/pinned.h"

namespace py = pybind11;

namespace npu {
namespace {

// Ascend's numbers for what can go wrong here.
constexpr int kOk = 0;
constexpr int kInvalid = 107000;
constexpr int kUnsupported = 207000;
constexpr int kInternal = 507000;

template <class Body>
int answer(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    log(NPU_LOG_ERROR, error.what());
    return kInternal;
  }
}

// `flags` says whether the device maps the pages or only locks them: the same
// where it reads host memory as it is.
int host_register(std::uintptr_t ptr, std::size_t bytes, std::uint64_t) {
  return answer([&] {
    // PyTorch takes no memory for pinned before its context has the device.
    at::globalContext().lazyInitDevice(kDeviceType);
    if (device_properties(current_device()).integrated == 0) {
      return kUnsupported;
    }
    return register_host_memory(reinterpret_cast<void*>(ptr), bytes) ? kOk
                                                                     : kInvalid;
  });
}

int host_unregister(std::uintptr_t ptr) {
  return answer([&] {
    return unregister_host_memory(reinterpret_cast<void*>(ptr)) ? kOk
                                                                : kInvalid;
  });
}

// `out` is the address of the pointer to fill.
int stream_create(std::uintptr_t out) {
  return answer([&] {
    if (out == 0) {
      return kInvalid;
    }
    *reinterpret_cast<npu_stream*>(out) = create_external_stream();
    return kOk;
  });
}

int stream_destroy(std::uintptr_t stream) {
  return answer([&] {
    const py::gil_scoped_release no_gil;
    return destroy_external_stream(reinterpret_cast<npu_stream>(stream))
               ? kOk
               : kInvalid;
  });
}

}  // namespace

void bind_npurt(py::module_& m) {
  py::module_ rt = m.def_submodule("_npurt");
  rt.def("npuHostRegister", &host_register);
  rt.def("npuHostUnregister", &host_unregister);
  rt.def("npuStreamCreate", &stream_create);
  rt.def("npuStreamDestroy", &stream_destroy);
}

}  // namespace npu
