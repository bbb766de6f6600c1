// SPDX-License-Identifier: Apache-2.0
// What devices do from start to stop.
#include "profiler/work_trace.h"

#include <algorithm>
#include <utility>

#include "driver/registry.h"
#include "driver/services.h"
#include "npu/validate.h"
#include "profiler/thread_log.h"
#include "profiler/watch.h"
#include "runtime/host_wait.h"
#include "runtime/stream.h"

namespace npu::profiler {
namespace {

const std::string* kernel_name(const npu_call& call) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  if (kind == nullptr) {
    return lasting(call.label != nullptr ? call.label : "kernel of a pack");
  }
  const char* const name = npu_kind_name(call.slot);
  if (kind->n_codes <= 1) {
    return lasting(name);
  }
  constexpr std::size_t kLongest = 128;
  char text[kLongest];
  const int n = std::snprintf(
      text, kLongest, "%s.%s", name, npu_code_name(call.slot, call.code));
  return lasting(
      {text, std::min(static_cast<std::size_t>(std::max(n, 0)), kLongest - 1)});
}

const std::string* name_of(const Launch& launch) {
  // As CUDA's profiler names them: tools that read traces know these.
  switch (launch.kind) {
    case Launch::kToDevice:
      return lasting("Memcpy HtoD");
    case Launch::kToHost:
      return lasting("Memcpy DtoH");
    case Launch::kOnDevice:
      return lasting("Memcpy DtoD");
    case Launch::kPeer:
      return lasting("Memcpy PtoP");
    case Launch::kSet:
      return lasting("Memset");
    case Launch::kKernel:
      break;
  }
  return kernel_name(*launch.call);
}

std::atomic<LineFn> line_provider{nullptr};

const std::string* current_line() {
  const LineFn provider = line_provider.load(std::memory_order_relaxed);
  const std::string text = provider == nullptr ? std::string() : provider();
  return text.empty() ? nullptr : lasting(text);
}

// As CUDA's profiler names the calls that wait.
const char* wait_name(WaitFor what) {
  switch (what) {
    case WaitFor::kDevice:
      return "npuDeviceSynchronize";
    case WaitFor::kStream:
      return "npuStreamSynchronize";
    case WaitFor::kEvent:
      return "npuEventSynchronize";
  }
  return "npuSynchronize";
}

void on_host_wait(
    WaitFor what, c10::DeviceIndex device, c10::approx_time_t begin) noexcept {
  Record record;
  record.kind = Record::kWait;
  record.origin = current_origin();
  record.device = device;
  record.name = lasting(wait_name(what));
  record.launched = begin;
  record.begin = begin;
  record.returned = c10::getApproximateTime();
  record.end = record.returned;
  record.line = current_line();
  place(record);
  WorkTrace::instance().add(std::move(record));
}

}  // namespace

void set_line_provider(LineFn provider) noexcept {
  line_provider.store(provider);
}

WorkTrace& WorkTrace::instance() {
  static auto* const trace = new WorkTrace;
  return *trace;
}

void place(Record& record) noexcept {
  struct Last {
    npu_stream stream = nullptr;
    c10::DeviceIndex device = -1;
    std::int32_t lane = -1;
  };
  static thread_local Last last;
  record.thread = ThreadLog::mine().thread();
  if (record.stream == nullptr) {
    return;
  }
  if (last.stream != record.stream) {
    const auto found = find_stream(record.stream);
    last = {
        record.stream,
        found ? found->device_index() : current_device(),
        found ? static_cast<std::int32_t>(found->id()) : -1};
  }
  record.device = last.device;
  record.lane = last.lane;
}

bool WorkTrace::start(bool lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Driver* const driver = active_driver_or_null();
  if (is_on() || driver == nullptr || forked_child()) {
    return false;
  }
  complaints_.clear();
  ThreadLog::take_all();  // of threads that were late for the last one
  forget_origins();
  if (!driver->queues_work()) {
    way_ = Way::kInline;
  } else {
    way_ = driver_.start() ? Way::kDriver : Way::kEvents;
    events_.start();  // also for devices the driver's recorder does not take
  }
  clock_ = std::make_unique<c10::ApproximateClockToUnixTimeConverter>();
  lines_.store(lines, std::memory_order_relaxed);
  on_.store(true, std::memory_order_release);
  host_wait_listener.store(&on_host_wait, std::memory_order_release);
  watch_for(Reason::kRecording, true);
  return true;
}

std::vector<Record> WorkTrace::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_on()) {
    return {};
  }
  host_wait_listener.store(nullptr, std::memory_order_release);
  watch_for(Reason::kRecording, false);
  on_.store(false, std::memory_order_release);
  std::vector<Record> records = ThreadLog::take_all();
  if (forked_child()) {
    return {};  // they are the parent's
  }
  fill_host_times(records);
  std::uint64_t lost = 0;
  if (way_ == Way::kDriver && is_initialized()) {
    lost = driver_.finish(records);
  }
  if (way_ != Way::kInline && is_initialized()) {
    events_.finish(records);
  }
  lost += static_cast<std::uint64_t>(std::erase_if(
      records, [](const Record& r) { return r.timing != Record::kKnown; }));
  if (lost != 0) {
    complaints_.push_back(
        "npu: profiler: the times of " + std::to_string(lost) +
        " pieces of device work are not known; they are not in the trace.");
    log(NPU_LOG_WARNING, complaints_.back());
  }
  std::ranges::sort(records, {}, &Record::begin_ns);
  return records;
}

std::vector<std::string> WorkTrace::complaints() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return complaints_;
}

void WorkTrace::fill_host_times(std::vector<Record>& records) {
  const auto to_ns = clock_->makeConverter();
  for (Record& record : records) {
    record.launched_ns = to_ns(record.launched);
    record.returned_ns = to_ns(record.returned);
    if (record.timing == Record::kTicks) {
      record.begin_ns = to_ns(record.begin);
      record.met_ns = to_ns(record.met);
      record.end_ns = to_ns(record.end);
      record.timing = Record::kKnown;
    }
  }
}

// Events go back while the program runs: else a long recording would hold two
// for every piece of work.
void WorkTrace::resolve_some() {
  constexpr std::size_t kMany = 1024;
  ThreadLog& log = ThreadLog::mine();
  if (log.unresolved() > kMany) {
    log.resolve([this](Record& record) { return events_.resolve(record); });
  }
}

npu_status WorkTrace::launch(const Launch& launch) noexcept {
  Record record;
  record.kind = static_cast<Record::Kind>(launch.kind);
  record.number = numbers_.fetch_add(1, std::memory_order_relaxed) + 1;
  record.origin = current_origin();
  record.stream = launch.stream;
  record.bytes = launch.bytes;
  record.name = name_of(launch);
  if (launch.call != nullptr && launch.call->label != nullptr) {
    record.label = lasting(launch.call->label);
  }
  place(record);
  record.line = line_of_launch();
  record.launched = c10::getApproximateTime();
  if (way_ == Way::kDriver && driver_.covers(record.device)) {
    record.timing = Record::kDriver;
  } else if (way_ != Way::kInline) {
    events_.before(record);
  }
  record.begin = c10::getApproximateTime();
  const npu_status status = launch.give(record.number);
  record.end = c10::getApproximateTime();
  if (record.timing == Record::kEvents) {
    events_.after(record);
    resolve_some();
  }
  record.returned = c10::getApproximateTime();
  if (status == NPU_OK) {
    add(std::move(record));
  }
  return status;
}

const std::string* WorkTrace::line_of_launch() const {
  return lines_.load(std::memory_order_relaxed) ? current_line() : nullptr;
}

void WorkTrace::add(Record&& record) {
  if (is_on()) {
    ThreadLog::mine().add(std::move(record));
  }
}

}  // namespace npu::profiler
