// SPDX-License-Identifier: Apache-2.0
// The optional interfaces of drivers, as Driver::interface<T>() finds them.
#pragma once

#include <cstdint>
#include <span>

#include "npu/capture.h"
#include "npu/comm.h"
#include "npu/ipc.h"
#include "npu/profiler.h"
#include "npu/vmm.h"

namespace npu {

// An interface is a struct that begins with its size and version. Its functions
// are side by side; data may follow them, zero in a driver that lacks it.
struct InterfaceInfo {
  const char* name;  // "capture/1"
  std::uint32_t version;
  std::uint32_t bytes;
  std::uint32_t first_slot;                // offset of the first function
  std::span<const char* const> slots;      // their names, in order
  void (*fill_defaults)(void*) = nullptr;  // of optional functions
};

template <class Interface>
const InterfaceInfo& interface_info();
template <>
const InterfaceInfo& interface_info<npu_capture>();
template <>
const InterfaceInfo& interface_info<npu_comm_table>();
template <>
const InterfaceInfo& interface_info<npu_ipc>();
template <>
const InterfaceInfo& interface_info<npu_profiler>();
template <>
const InterfaceInfo& interface_info<npu_vmm>();

}  // namespace npu
