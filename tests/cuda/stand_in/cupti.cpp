// SPDX-License-Identifier: Apache-2.0
// CUPTI without GPUs, by the comments of cupti_activity.h and
// cupti_callbacks.h: one subscriber, kinds that are switched on, buffers that
// the client gives and gets back from a thread of CUPTI's, and numbers of the
// client's beside records of CUDA calls.
//
//   STAND_IN_CUPTI_VERSION=130001
//   STAND_IN_CUPTI_TAKEN=1    another profiler has subscribed
//   STAND_IN_CUPTI_REFUSES=10 this kind of record cannot be switched on
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "machine.h"

namespace {

using stand_in::Sort;
using stand_in::Work;

std::mutex& mutex = *new std::mutex;
std::set<CUpti_ActivityKind>& enabled = *new std::set<CUpti_ActivityKind>;
std::vector<std::vector<char>>& records = *new std::vector<std::vector<char>>;
std::set<std::string>& names = *new std::set<std::string>;
CUpti_BuffersCallbackRequestFunc requested = nullptr;
CUpti_BuffersCallbackCompleteFunc completed = nullptr;
bool subscribed = false;
thread_local std::map<CUpti_ExternalCorrelationKind, std::vector<std::uint64_t>>
    numbers;

int setting(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

template <class Record>
void add(const Record& record) {
  const auto* const bytes = reinterpret_cast<const char*>(&record);
  records.emplace_back(bytes, bytes + sizeof(record));
}

CUpti_ActivityKind kind_of(const Work& work) {
  switch (work.sort) {
    case Sort::kKernel:
      return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    case Sort::kCopy:
      return CUPTI_ACTIVITY_KIND_MEMCPY;
    case Sort::kPeerCopy:
      return CUPTI_ACTIVITY_KIND_MEMCPY2;
    case Sort::kSet:
      return CUPTI_ACTIVITY_KIND_MEMSET;
    default:
      return CUPTI_ACTIVITY_KIND_INVALID;
  }
}

// A CUDA call that queues: the record of the call, and the client's numbers
// before it.
bool on_call(const Work& work) {
  const std::lock_guard lock(mutex);
  if (enabled.contains(CUPTI_ACTIVITY_KIND_RUNTIME)) {
    for (const auto& [kind, stack] : numbers) {
      if (!stack.empty() &&
          enabled.contains(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
        CUpti_ActivityExternalCorrelation record{};
        record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
        record.externalKind = kind;
        record.externalId = stack.back();
        record.correlationId = work.correlation;
        add(record);
      }
    }
    CUpti_ActivityAPI record{};
    record.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    record.correlationId = work.correlation;
    add(record);
  }
  return enabled.contains(kind_of(work));
}

template <class Record>
void add_work(const Work& work, Record record) {
  record.kind = kind_of(work);
  record.start = work.begin_ns;
  record.end = work.end_ns;
  record.deviceId = static_cast<std::uint32_t>(work.device);
  record.contextId = 1;
  record.streamId = work.stream;
  record.correlationId = work.correlation;
  add(record);
}

void on_done(const Work& work) {
  const std::lock_guard lock(mutex);
  switch (work.sort) {
    case Sort::kKernel: {
      CUpti_ActivityKernel10 record{};
      record.name = names.insert(work.name).first->c_str();
      return add_work(work, record);
    }
    case Sort::kCopy: {
      CUpti_ActivityMemcpy6 record{};
      record.bytes = work.bytes;
      record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
      return add_work(work, record);
    }
    case Sort::kPeerCopy: {
      CUpti_ActivityMemcpyPtoP4 record{};
      record.bytes = work.bytes;
      return add_work(work, record);
    }
    case Sort::kSet: {
      CUpti_ActivityMemset4 record{};
      record.bytes = work.bytes;
      return add_work(work, record);
    }
    default:
      return;
  }
}

std::size_t size_of(const std::uint8_t* record) {
  CUpti_ActivityKind kind{};
  std::memcpy(&kind, record, sizeof(kind));
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return sizeof(CUpti_ActivityAPI);
    default:
      return sizeof(CUpti_ActivityExternalCorrelation);
  }
}

// Kernels' records first: a client must not count on the order of buffers.
void deliver() {
  std::vector<std::vector<char>> all;
  {
    const std::lock_guard lock(mutex);
    all.swap(records);
  }
  std::size_t at = all.size();
  while (at > 0) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0;
    std::size_t most = 0;
    requested(&buffer, &bytes, &most);
    if (buffer == nullptr) {
      return;
    }
    std::size_t filled = 0;
    while (at > 0 && filled + all[at - 1].size() <= bytes) {
      --at;
      std::memcpy(buffer + filled, all[at].data(), all[at].size());
      filled += all[at].size();
    }
    completed(nullptr, 0, buffer, bytes, filled);
  }
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = static_cast<uint32_t>(
      setting("STAND_IN_CUPTI_VERSION", CUPTI_API_VERSION));
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
              ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
              : "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t* now) {
  *now = stand_in::now_ns();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(
    CUpti_SubscriberHandle* out, CUpti_CallbackFunc callback, void*) {
  const std::lock_guard lock(mutex);
  if (out == nullptr || callback == nullptr) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  if (subscribed || setting("STAND_IN_CUPTI_TAKEN", 0) != 0) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  subscribed = true;
  *out = reinterpret_cast<CUpti_SubscriberHandle>(&subscribed);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  const std::lock_guard lock(mutex);
  if (!subscribed) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  subscribed = false;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request,
    CUpti_BuffersCallbackCompleteFunc complete) {
  requested = request;
  completed = complete;
  return request != nullptr && complete != nullptr
             ? CUPTI_SUCCESS
             : CUPTI_ERROR_INVALID_PARAMETER;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (setting("STAND_IN_CUPTI_REFUSES", 0) == static_cast<int>(kind)) {
    return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  }
  {
    const std::lock_guard lock(mutex);
    enabled.insert(kind);
  }
  stand_in::watch({&on_call, &on_done});
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  {
    const std::lock_guard lock(mutex);
    enabled.erase(kind);
  }
  // The client is told of buffers meanwhile, as CUPTI may do at any time.
  std::thread(deliver).join();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(uint32_t) {
  if (completed == nullptr) {
    return CUPTI_ERROR_INVALID_OPERATION;
  }
  if (!subscribed) {
    return CUPTI_ERROR_NOT_INITIALIZED;  // stricter than its documentation
  }
  std::thread(deliver).join();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(
    uint8_t* buffer, size_t valid, CUpti_Activity** record) {
  auto* const last = reinterpret_cast<uint8_t*>(*record);
  uint8_t* const next = last == nullptr ? buffer : last + size_of(last);
  if (next >= buffer + valid) {
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  }
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(
    CUcontext, uint32_t, size_t* dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(
    CUpti_ExternalCorrelationKind kind, uint64_t id) {
  numbers[kind].push_back(id);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(
    CUpti_ExternalCorrelationKind kind, uint64_t* last) {
  auto& stack = numbers[kind];
  if (stack.empty()) {
    return CUPTI_ERROR_QUEUE_EMPTY;
  }
  if (last != nullptr) {
    *last = stack.back();
  }
  stack.pop_back();
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetStreamIdEx(
    CUcontext, CUstream stream, uint8_t, uint32_t* id) {
  *id = stand_in::number_of(stream);
  return CUPTI_SUCCESS;
}

}  // extern "C"
