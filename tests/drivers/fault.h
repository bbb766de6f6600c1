// SPDX-License-Identifier: Apache-2.0
// One fault at a time: the n-th call of a slot fails with a status (NPU_FAULT).
// For faulty_driver.cpp alone.
#pragma once

#include <array>
#include <atomic>
#include <charconv>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "driver/slots.h"
#include "npu/driver.h"

namespace {

const npu_host_services* services = nullptr;

using npu::kSlotCount;
using npu::kSlotNames;

// Slots that answer a status, by SlotId.
constexpr auto kCanFail = [] {
  std::array<bool, kSlotCount> can{};
  npu::for_each_slot(
      [&](auto slot) { can[slot.id] = decltype(slot)::fallible; });
  return can;
}();

struct StatusName {
  std::string_view name;
  npu_status status;
};
constexpr std::array<StatusName, 8> kStatuses = {{
    {"invalid", NPU_E_INVALID},
    {"unsupported", NPU_E_UNSUPPORTED},
    {"out_of_memory", NPU_E_OUT_OF_MEMORY},
    {"async", NPU_E_ASYNC},
    {"device_lost", NPU_E_DEVICE_LOST},
    {"timeout", NPU_E_TIMEOUT},
    {"shutdown", NPU_E_SHUTDOWN},
    {"internal", NPU_E_INTERNAL},
}};

// ---- the fault ----

std::atomic<int> armed_slot{-1};  // cheap to look at when nothing is armed
std::mutex fault_mutex;
std::int64_t calls_left = 0;
npu_status fault_status = NPU_E_INTERNAL;
std::atomic<std::int64_t> fired{0};
std::array<std::atomic<std::int64_t>, kSlotCount> calls{};

npu_status bad_spec(const std::string& spec, const std::string& what) {
  services->set_error(("faulty: NPU_FAULT='" + spec + "': " + what +
                       ". Allowed: <table>.<slot>:<call>[:<status>], such as "
                       "memory.alloc:3:out_of_memory")
                          .c_str());
  return NPU_E_INVALID;
}

std::vector<std::string> pieces(const std::string& spec) {
  std::vector<std::string> result(1);
  for (const char c : spec) {
    if (c == ':') {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  return result;
}

npu_status arm(const std::string& spec) {
  if (spec.empty()) {
    armed_slot = -1;
    return NPU_OK;
  }
  const std::vector<std::string> parts = pieces(spec);
  int slot = 0;
  while (slot < kSlotCount && kSlotNames[slot] != parts[0]) {
    ++slot;
  }
  if (slot == kSlotCount || !kCanFail[slot]) {
    return bad_spec(spec, "no slot '" + parts[0] + "'");
  }
  std::int64_t number = 1;
  if (parts.size() > 1) {
    const char* end = parts[1].data() + parts[1].size();
    const auto [stop, error] = std::from_chars(parts[1].data(), end, number);
    if (error != std::errc{} || stop != end || number < 1) {
      return bad_spec(spec, "'" + parts[1] + "' is no number from 1");
    }
  }
  npu_status status = NPU_E_INTERNAL;
  if (parts.size() > 2) {
    status = NPU_OK;
    for (const StatusName& known : kStatuses) {
      status = known.name == parts[2] ? known.status : status;
    }
  }
  if (status == NPU_OK || parts.size() > 3) {
    return bad_spec(spec, "no such status");
  }
  const std::lock_guard<std::mutex> lock(fault_mutex);
  calls_left = number;
  fault_status = status;
  armed_slot = slot;
  return NPU_OK;
}

// NPU_OK, or the status this call must fail with.
npu_status fault(int slot) {
  ++calls[slot];
  if (armed_slot.load(std::memory_order_relaxed) != slot) {
    return NPU_OK;
  }
  const std::lock_guard<std::mutex> lock(fault_mutex);
  if (armed_slot != slot || --calls_left > 0) {
    return NPU_OK;
  }
  armed_slot = -1;
  ++fired;
  services->set_error(
      ("faulty: " + std::string(kSlotNames[slot]) + " fails, as asked")
          .c_str());
  return fault_status;
}

}  // namespace
