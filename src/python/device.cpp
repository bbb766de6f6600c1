// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: devices, their properties and the driver behind them.
#include <pybind11/stl.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include "driver/registry.h"
#include "python/bindings.h"
#include "python/index.h"
#include "runtime/allocator/allocator_api.h"
#include "runtime/backend.h"
#include "runtime/capabilities.h"
#include "runtime/capture_state.h"
#include "runtime/device.h"
#include "runtime/device_peek.h"
#include "runtime/error.h"

namespace py = pybind11;

namespace npu {
namespace {

// Core calls torch.npu._lazy_init once; from then on a child process has to
// be told that it inherited a device it cannot use.
void init_from_python() {
  torch::utils::register_fork_handler_for_device_init(kDeviceType);
  py::gil_scoped_release no_gil;
  init();
}

py::dict properties(int device) {
  const auto p = peek_properties(index_of(device));
  py::dict out;
  out["name"] = std::string(p.name);
  out["architecture"] = std::string(p.architecture);
  out["uuid"] =
      py::bytes(reinterpret_cast<const char*>(p.uuid), sizeof(p.uuid));
  out["total_memory"] = p.total_memory;
  out["compute_units"] = p.compute_units;
  out["integrated"] = p.integrated != 0;
  out["capability"] = py::make_tuple(p.capability_major, p.capability_minor);
  out["host_can_read"] = host_can_read(p);
  return out;
}

// A driver that did not load is described by why.
py::dict driver_info() {
  py::dict out;
  const Driver* const driver = active_driver_or_null();
  if (driver == nullptr) {
    out["failure"] = driver_failure();
    return out;
  }
  const auto& table = driver->table();
  out["name"] = table.name;
  out["vendor"] = table.vendor;
  out["version"] = table.version;
  out["path"] = driver->path();
  out["reason"] = driver_choice_reason();
  out["abi"] = std::to_string(table.abi >> 16) + "." +
               std::to_string(table.abi & 0xffffu);
  return out;
}

bool can_access_peer(int device, int peer) {
  const auto& table = active_driver().device();
  const auto first = driver_device(index_of(device));
  const auto second = driver_device(index_of(peer));
  if (first == second || table.can_access_peer == nullptr) {
    return false;
  }
  std::int32_t yes = 0;
  check_driver(
      table.can_access_peer(first, second, &yes), "can_device_access_peer");
  return yes != 0;
}

// A negative index leaves the device as it is, as PyTorch's own helpers do.
int exchange(int device) {
  const int previous = current_device();
  if (device >= 0) {
    set_device(index_of(device));
  }
  return device >= 0 ? previous : -1;
}

}  // namespace

void bind_device(py::module_& m) {
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  m.def("_set_package_driver_dir", &set_package_driver_dir);
  m.def("_set_torch_platform", &set_torch_platform);
  m.def("_driver_info", &driver_info);
  m.def("_prepare_exit", &prepare_exit, no_gil);
  m.def("_init", &init_from_python);
  m.def("_is_initialized", &is_initialized);
  m.def("_in_bad_fork", &in_bad_fork);
  m.def("_device_count", [] { return static_cast<int>(device_count()); });
  m.def("_npu_getDeviceCount", [] { return static_cast<int>(device_count()); });
  m.def("_get_device", [] { return static_cast<int>(current_device()); });
  m.def(
      "_set_device", [](int device) { set_device(index_of(device)); }, no_gil);
  m.def("_exchange_device", &exchange, no_gil);
  m.def("_check_device_index", [](int device) {
    check_device_index(index_of(device));
  });
  m.def(
      "_synchronize",
      [](int device) {
        const c10::DeviceIndex index = device_or_current(index_of(device));
        refuse_in_capture(index, "torch.npu.synchronize");
        synchronize_device(index);
      },
      no_gil);
  m.def("_device_properties", &properties);
  m.def("_memory_info", [](int device) {
    return memory::memory_info(index_of(device));
  });
  m.def("_can_access_peer", &can_access_peer);
}

}  // namespace npu
