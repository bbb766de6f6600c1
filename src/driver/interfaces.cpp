// SPDX-License-Identifier: Apache-2.0
// Asks a driver for its optional interfaces and checks them.
#include "driver/interfaces.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "driver/driver.h"
#include "driver/interface_lock.h"
#include "driver/services.h"

namespace npu {

namespace {

// The part all interfaces have in common.
struct Head {
  std::uint32_t size;
  std::uint32_t version;
};

npu_status no_split(
    npu_comm, std::int32_t, std::int32_t, const npu_comm_config*, npu_comm*) {
  host_services()->set_error("the driver has no split in comm/1");
  return NPU_E_UNSUPPORTED;
}

npu_status no_all_to_all(
    npu_comm,
    const void*,
    const std::uint64_t*,
    const std::uint64_t*,
    void*,
    const std::uint64_t*,
    const std::uint64_t*,
    npu_dtype,
    npu_stream) {
  host_services()->set_error("the driver has no all_to_all in comm/1");
  return NPU_E_UNSUPPORTED;
}

void fill_comm(void* data) {
  auto& comm = *static_cast<npu_comm_table*>(data);
  comm.split = comm.split != nullptr ? comm.split : &no_split;
  comm.all_to_all =
      comm.all_to_all != nullptr ? comm.all_to_all : &no_all_to_all;
}

// What is wrong with a struct a driver gave; "" when it can be used.
std::string problem(const InterfaceInfo& info, const Head& given) {
  if (given.version != info.version) {
    return "its version is " + std::to_string(given.version) + ", expected " +
           std::to_string(info.version);
  }
  if (given.size < info.first_slot) {
    return "its size is " + std::to_string(given.size) + ", at least " +
           std::to_string(info.first_slot) + " is needed";
  }
  return "";
}

std::string missing_slots(const InterfaceInfo& info, const std::byte* mine) {
  std::string missing;
  for (std::size_t i = 0; i < info.slots.size(); ++i) {
    void* function = nullptr;
    std::memcpy(
        &function,
        mine + info.first_slot + i * sizeof(function),
        sizeof(function));
    if (function == nullptr) {
      missing += (missing.empty() ? "" : ", ") + std::string(info.slots[i]);
    }
  }
  return missing.empty() ? "" : "functions are missing: " + missing;
}

}  // namespace

#define NPU_INTERFACE(type, upper, first, tail, defaults, ...)           \
  template <>                                                            \
  const InterfaceInfo& interface_info<type>() {                          \
    static constexpr const char* kSlots[] = {__VA_ARGS__};               \
    static_assert(                                                       \
        offsetof(type, first) + sizeof(kSlots) + (tail) == sizeof(type), \
        "every function of the struct is named");                        \
    static constexpr InterfaceInfo kInfo = {                             \
        NPU_##upper##_INTERFACE,                                         \
        NPU_##upper##_VERSION,                                           \
        sizeof(type),                                                    \
        offsetof(type, first),                                           \
        kSlots,                                                          \
        defaults};                                                       \
    return kInfo;                                                        \
  }

// clang-format off
NPU_INTERFACE(npu_capture, CAPTURE, begin, 0, nullptr,
    "begin", "join", "end", "status", "instantiate", "launch", "update",
    "destroy_graph", "destroy_exec")
NPU_INTERFACE(npu_comm_table, COMM, make_id, sizeof(uint64_t), &fill_comm,
    "make_id", "init", "state", "abort", "destroy", "split", "group_begin",
    "group_end", "all_reduce", "reduce", "broadcast", "all_gather",
    "reduce_scatter", "all_to_all", "send", "recv")
NPU_INTERFACE(npu_ipc, IPC, export_memory, 0, nullptr,
    "export_memory", "open_memory", "close_memory", "export_event",
    "open_event")
NPU_INTERFACE(npu_profiler, PROFILER, start, 0, nullptr,
    "start", "stop", "flush", "clocks")
NPU_INTERFACE(npu_vmm, VMM, granularity, 0, nullptr,
    "granularity", "reserve", "unreserve", "create", "release", "map", "unmap",
    "set_access")
// clang-format on
#undef NPU_INTERFACE

const void* Driver::find_interface(const InterfaceInfo& info) const {
  const std::lock_guard<std::mutex> lock(interface_mutex_);
  const auto [entry, is_new] = interfaces_.try_emplace(info.name);
  if (!is_new || forked_child()) {
    return entry->second.get();
  }
  const auto* given =
      static_cast<const Head*>(tables_.driver.get_interface(info.name));
  if (given == nullptr) {
    return nullptr;
  }
  auto mine = std::make_unique<std::byte[]>(info.bytes);
  std::string wrong = problem(info, *given);
  if (wrong.empty()) {
    std::memcpy(
        mine.get(), given, std::min<std::size_t>(given->size, info.bytes));
    std::memcpy(mine.get(), &info.bytes, sizeof(info.bytes));  // size
    if (info.fill_defaults != nullptr) {
      info.fill_defaults(mine.get());
    }
    wrong = missing_slots(info, mine.get());
  }
  if (!wrong.empty()) {
    log(NPU_LOG_ERROR,
        identity() + ": " + info.name + " is not used: " + wrong + " (" +
            path_ + ").");
    return nullptr;
  }
  lock_interface(*this, info.name, mine.get());
  entry->second = std::move(mine);
  return entry->second.get();
}

}  // namespace npu
