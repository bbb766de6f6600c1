// SPDX-License-Identifier: Apache-2.0
// Interface profiler/1 on CUPTI's activity records.
//
// CUPTI serves one client of a process. It is asked by cuptiSubscribe whether
// another one has it; then start is declined, and the host side times work by
// events. CUPTI records all devices at once: which of them was asked for is
// known here. CUPTI hands buffers of records to a thread of its own.
#include "profiler.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "lib/cupti.h"
#include "stream.h"

namespace npu::cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::size_t kMostRecords = std::size_t{1} << 22;

constexpr std::uint32_t bit(std::uint32_t kind) {
  return 1u << kind;
}

struct Raw {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t bytes;
  const char* name;
  std::uint32_t device;
  std::uint32_t stream;
  std::uint32_t correlation;  // CUPTI's
  std::uint32_t kind;
};

struct Span {
  std::uint32_t kinds = 0;  // 0: stopped
  std::uint32_t asked = 0;  // the kinds before it stopped
  std::uint64_t since = 0;
  std::uint64_t until = 0;
  std::uint64_t lost = 0;
};

struct State {
  std::mutex mutex;
  std::map<npu_device, Span> devices;  // with records to come
  std::vector<Raw> records;
  // CUPTI's number of a CUDA call, and that of the npu call it was part of.
  std::unordered_map<std::uint32_t, std::uint64_t> numbers;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> streams;
  std::set<std::string, std::less<>> names;  // of kernels, as C++ has them
  std::set<cupti::Kind> enabled;
  cupti::Subscriber subscriber = nullptr;
};

State& state() {
  static auto* const one = new State;  // CUPTI's thread outlives main()
  return *one;
}

// ---- records, from CUPTI's thread ----

const char* keep_name(State& all, const char* mangled) {
  if (mangled == nullptr) {
    return "kernel";
  }
  int status = 0;
  char* const plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  const char* const name =
      all.names.emplace(status == 0 ? plain : mangled).first->c_str();
  std::free(plain);
  return name;
}

const char* copy_name(std::uint8_t sort) {
  switch (sort) {  // CUpti_ActivityMemcpyKind
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 10:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

void add(State& all, const Raw& raw) {
  const auto found = all.devices.find(static_cast<npu_device>(raw.device));
  if (found == all.devices.end()) {
    return;
  }
  if (all.records.size() >= kMostRecords) {
    ++found->second.lost;
  } else {
    all.records.push_back(raw);
  }
}

void read(State& all, const void* record) {
  cupti::Kind kind = 0;
  std::memcpy(&kind, record, sizeof(kind));
  switch (kind) {
    case cupti::kKernelRecord: {
      const auto& r = *static_cast<const cupti::KernelRecord*>(record);
      const char* const name = keep_name(all, r.name);
      const bool collective = std::string_view(name).starts_with("nccl");
      return add(
          all,
          {r.begin,
           r.end,
           0,
           name,
           r.device,
           r.stream,
           r.correlation,
           collective ? NPU_RECORD_COLLECTIVE : NPU_RECORD_KERNEL});
    }
    case cupti::kCopyRecord: {
      const auto& r = *static_cast<const cupti::CopyRecord*>(record);
      return add(
          all,
          {r.begin,
           r.end,
           r.bytes,
           copy_name(r.sort),
           r.device,
           r.stream,
           r.correlation,
           NPU_RECORD_COPY});
    }
    case cupti::kPeerCopyRecord: {
      const auto& r = *static_cast<const cupti::PeerCopyRecord*>(record);
      return add(
          all,
          {r.begin,
           r.end,
           r.bytes,
           "Memcpy PtoP",
           r.device,
           r.stream,
           r.correlation,
           NPU_RECORD_COPY});
    }
    case cupti::kSetRecord: {
      const auto& r = *static_cast<const cupti::SetRecord*>(record);
      return add(
          all,
          {r.begin,
           r.end,
           r.bytes,
           "Memset",
           r.device,
           r.stream,
           r.correlation,
           NPU_RECORD_SET});
    }
    case cupti::kCorrelationRecord: {
      const auto& r = *static_cast<const cupti::CorrelationRecord*>(record);
      if (r.external_kind == cupti::kCustom2) {
        all.numbers[r.correlation] = r.external;
      }
      return;
    }
    default:
      return;  // calls of the runtime, which correlations need
  }
}

void give_buffer(
    std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;
}

void take_buffer(
    void*,
    std::uint32_t,
    std::uint8_t* buffer,
    std::size_t,
    std::size_t valid) {
  const cupti::Api& api = *cupti::api();
  State& all = state();
  {
    const std::lock_guard lock(all.mutex);
    void* record = nullptr;
    while (api.next_record(buffer, valid, &record) == cupti::kSuccess) {
      read(all, record);
    }
    std::size_t dropped = 0;
    api.dropped(nullptr, 0, &dropped);
    if (dropped != 0 && !all.devices.empty()) {
      all.devices.begin()->second.lost += dropped;
    }
  }
  std::free(buffer);
}

// ---- entries ----

npu_status declined(const char* what, cupti::Result result) {
  if (result == cupti::kMultipleSubscribers) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: cuda driver: another profiler of this process has CUPTI "
        "(torch.profiler of a CUDA build of PyTorch, Nsight, a debugger).");
  }
  const char* text = nullptr;
  if (cupti::api()->result_string(result, &text) != cupti::kSuccess) {
    text = nullptr;
  }
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: cuda driver: %s: CUPTI answers %d (%s).",
      what,
      result,
      text != nullptr ? text : "an error without a name");
}

void switch_off(State& all) {
  profiling.store(false, std::memory_order_relaxed);
  for (const cupti::Kind kind : std::exchange(all.enabled, {})) {
    cupti::api()->disable(kind);
  }
}

// Another profiler may have CUPTI from now on.
void release(State& all) {
  if (all.subscriber != nullptr) {
    cupti::api()->unsubscribe(std::exchange(all.subscriber, nullptr));
  }
}

bool is_on(const State& all) {
  return std::ranges::any_of(
      all.devices, [](const auto& each) { return each.second.kinds != 0; });
}

std::vector<cupti::Kind> records_of(std::uint32_t kinds) {
  std::vector<cupti::Kind> out;
  if ((kinds & (bit(NPU_RECORD_KERNEL) | bit(NPU_RECORD_COLLECTIVE))) != 0) {
    out.push_back(cupti::kKernelRecord);
  }
  if ((kinds & bit(NPU_RECORD_COPY)) != 0) {
    out.push_back(cupti::kCopyRecord);
    out.push_back(cupti::kPeerCopyRecord);
  }
  if ((kinds & bit(NPU_RECORD_SET)) != 0) {
    out.push_back(cupti::kSetRecord);
  }
  if (!out.empty()) {
    // CUPTI notes a number of ours only beside a record of the CUDA call.
    out.push_back(cupti::kCorrelationRecord);
    out.push_back(cupti::kRuntimeCall);
    out.push_back(cupti::kDriverCall);
  }
  return out;
}

// The host side calls these from one thread at a time. The lock is for CUPTI's
// thread, and not held while CUPTI is called: it may hand over buffers then.
npu_status switch_on(State& all, std::uint32_t kinds) {
  const cupti::Api& api = *cupti::api();
  if (all.subscriber == nullptr) {
    const cupti::Result result = api.subscribe(
        &all.subscriber,
        [](void*, int, std::uint32_t, const void*) {},
        nullptr);
    if (result != cupti::kSuccess) {
      all.subscriber = nullptr;
      return declined("asking for CUPTI", result);
    }
  }
  cupti::Result result = api.register_callbacks(give_buffer, take_buffer);
  for (const cupti::Kind kind : records_of(kinds)) {
    if (result == cupti::kSuccess && !all.enabled.contains(kind)) {
      result = api.enable(kind);
      if (result == cupti::kSuccess) {
        all.enabled.insert(kind);
      }
    }
  }
  if (result == cupti::kSuccess) {
    return NPU_OK;
  }
  if (!is_on(all)) {
    switch_off(all);
    release(all);
  }
  return declined("switching records on", result);
}

npu_status start(npu_device device, std::uint32_t kinds) {
  return entry(true, [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    State& all = state();
    Span span{.kinds = kinds, .asked = kinds, .since = 0, .until = UINT64_MAX};
    cupti::api()->timestamp(&span.since);
    if (npu_status status = switch_on(all, kinds)) {
      return status;
    }
    {
      const std::lock_guard lock(all.mutex);
      all.devices[device] = span;
    }
    profiling.store(true, std::memory_order_relaxed);
    return NPU_OK;
  });
}

npu_status stop(npu_device device) {
  return entry([&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    State& all = state();
    const auto found = all.devices.find(device);
    if (found == all.devices.end() || found->second.kinds == 0) {
      return NPU_OK;
    }
    std::uint64_t now = UINT64_MAX;
    cupti::api()->timestamp(&now);
    {
      const std::lock_guard lock(all.mutex);
      found->second.kinds = 0;
      // CUPTI goes on for others: what begins from now on is not asked for.
      found->second.until = is_on(all) ? now : UINT64_MAX;
    }
    if (!is_on(all)) {
      switch_off(all);  // its records are still to be flushed
    }
    return NPU_OK;
  });
}

// The records of one device, out of all; with the lock held.
std::vector<npu_profile_record> take_records(
    State& all, npu_device device, const Span& span) {
  std::vector<npu_profile_record> out;
  std::erase_if(all.records, [&](const Raw& raw) {
    if (static_cast<npu_device>(raw.device) != device) {
      return false;
    }
    const auto number = all.numbers.extract(raw.correlation);
    if (raw.begin < span.since || raw.begin > span.until ||
        (span.asked & bit(raw.kind)) == 0) {
      return true;
    }
    npu_profile_record record{};
    record.correlation = number.empty() ? 0 : number.mapped();
    const auto stream = all.streams.find({raw.device, raw.stream});
    record.stream = stream == all.streams.end() ? 0 : stream->second;
    record.begin_ns = static_cast<std::int64_t>(raw.begin);
    record.end_ns = static_cast<std::int64_t>(std::max(raw.end, raw.begin));
    record.name = raw.name;
    record.bytes = raw.bytes;
    record.device = device;
    record.kind = raw.kind;
    out.push_back(record);
    return true;
  });
  return out;
}

npu_status flush(
    npu_device device, npu_record_fn take, void* context, std::uint64_t* lost) {
  return entry(given(take, lost), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    *lost = 0;
    State& all = state();
    if (all.subscriber != nullptr) {
      for_each_stream(
          device, [](const Stream& each) { remember_stream(each); });
      // Not forced: a forced flush gives records that are not complete.
      const cupti::Result result = cupti::api()->flush_all(0);
      if (!is_on(all)) {
        release(all);
      }
      if (result != cupti::kSuccess) {
        return declined("reading records", result);
      }
    }
    std::vector<npu_profile_record> records;
    {
      const std::lock_guard lock(all.mutex);
      const auto found = all.devices.find(device);
      if (found == all.devices.end()) {
        return NPU_OK;
      }
      Span& span = found->second;
      records = take_records(all, device, span);
      *lost = std::exchange(span.lost, 0);
      if (!is_on(all) && all.records.empty()) {
        all.numbers.clear();
      }
    }
    if (!records.empty()) {
      take(context, records.data(), static_cast<std::uint32_t>(records.size()));
    }
    return NPU_OK;
  });
}

std::int64_t monotonic_ns() {
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

npu_status clocks(
    npu_device device, std::int64_t* device_ns, std::int64_t* host_ns) {
  return entry(given(device_ns, host_ns), [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    const std::int64_t before = monotonic_ns();
    std::uint64_t now = 0;
    const cupti::Result result = cupti::api()->timestamp(&now);
    if (result != cupti::kSuccess) {
      return declined("reading its clock", result);
    }
    *device_ns = static_cast<std::int64_t>(now);
    *host_ns = before + (monotonic_ns() - before) / 2;
    return NPU_OK;
  });
}

constexpr npu_profiler kTable = {
    .size = sizeof(npu_profiler),
    .version = NPU_PROFILER_VERSION,
    .start = start,
    .stop = stop,
    .flush = flush,
    .clocks = clocks,
};

}  // namespace

void Numbered::push(std::uint64_t correlation) noexcept {
  pushed_ = cupti::api()->push(cupti::kCustom2, correlation) == cupti::kSuccess;
}

void Numbered::pop() noexcept {
  cupti::api()->pop(cupti::kCustom2, nullptr);
}

void remember_stream(const Stream& stream) noexcept {
  State& all = state();
  std::uint32_t id = 0;
  if (cupti::api()->stream_id(nullptr, stream.handle, 0, &id) ==
      cupti::kSuccess) {
    const std::lock_guard lock(all.mutex);
    all.streams[{static_cast<std::uint32_t>(stream.device), id}] =
        reinterpret_cast<std::uintptr_t>(&stream);
  }
}

const npu_profiler* profiler_interface() noexcept {
  if (cupti::api() != nullptr) {
    return &kTable;
  }
  static const bool told = [] {
    warn(
        "no records of device work: " + cupti::why() +
        ". Events give the times.");
    return true;
  }();
  static_cast<void>(told);
  return nullptr;
}

}  // namespace npu::cuda
