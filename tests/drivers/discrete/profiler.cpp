// SPDX-License-Identifier: Apache-2.0
// profiler/1 of the discrete driver, offered with NPU_DISCRETE_PROFILER=1
// (=twice: wrong, flush keeps what it passed on). Its
// device clock starts elsewhere and runs a little fast: who takes device times
// for host times is off.
#include "npu/profiler.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "optional.h"

namespace npu::discrete {
namespace {

constexpr std::size_t kMost = 100'000;

std::mutex mutex;
auto& records = *new std::vector<npu_profile_record>;  // threads outlive main
uint32_t wanted[kDevices];                             // kinds; 0: stopped
uint64_t lost[kDevices];

int64_t host_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t device_ns() {
  const int64_t now = host_ns();
  return now + now / 5000 - INT64_C(7'000'000'000'000);
}

std::string mode() {
  const char* const given = std::getenv("NPU_DISCRETE_PROFILER");
  return given != nullptr ? given : "";
}
bool keeps_records() {
  return mode() == "twice";
}

npu_status start(npu_device device, uint32_t kinds) {
  NPU_TRY(check_device(device));
  const std::lock_guard lock(mutex);
  wanted[device] = kinds;
  return NPU_OK;
}

npu_status stop(npu_device device) {
  NPU_TRY(check_device(device));
  const std::lock_guard lock(mutex);
  wanted[device] = 0;
  return NPU_OK;
}

npu_status flush(
    npu_device device, npu_record_fn take, void* context, uint64_t* dropped) {
  NPU_TRY(check_device(device, take, dropped));
  const std::lock_guard lock(mutex);
  std::vector<npu_profile_record> others;
  // The newest first: the contract promises no order.
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    if (record->device == device) {
      take(context, &*record, 1);
    } else {
      others.insert(others.begin(), *record);
    }
  }
  records = keeps_records() ? records : others;
  *dropped = lost[device];
  lost[device] = 0;
  return NPU_OK;
}

npu_status clocks(npu_device device, int64_t* theirs, int64_t* ours) {
  NPU_TRY(check_device(device, theirs, ours));
  *ours = host_ns();
  *theirs = device_ns();
  return NPU_OK;
}

const npu_profiler profiler = {
    sizeof(profiler), NPU_PROFILER_VERSION, start, stop, flush, clocks};

}  // namespace

const void* profiler_interface(const char* name) {
  const bool offered = mode() == "1" || keeps_records();
  return offered && std::strcmp(name, NPU_PROFILER_INTERFACE) == 0 ? &profiler
                                                                   : nullptr;
}

Work recorded(npu_stream stream, Piece piece, Work work) {
  {
    const std::lock_guard lock(mutex);
    if ((wanted[device_of(stream)] >> piece.kind & 1) == 0) {
      return work;
    }
  }
  return [=](std::string& failure) {
    npu_profile_record record{};
    record.correlation = piece.correlation;
    record.stream = reinterpret_cast<uintptr_t>(stream);
    record.name = "discrete";
    record.bytes = piece.bytes;
    record.device = device_of(stream);
    record.kind = piece.kind;
    record.begin_ns = device_ns();
    work(failure);
    record.end_ns = device_ns();
    const std::lock_guard lock(mutex);
    if (records.size() < kMost) {
      records.push_back(record);
    } else {
      ++lost[record.device];
    }
  };
}

}  // namespace npu::discrete
