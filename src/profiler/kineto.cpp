// SPDX-License-Identifier: Apache-2.0
// torch.profiler's device lanes: Kineto asks us for the work of npu devices.
//
// Kineto calls configure() for every session, those without device activities
// too; it tells each thread's operator numbers by pushCorrelationId, and takes
// the activities in processTrace() after stop(). See docs/profiling.md.
#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "profiler/device_label.h"
#include "profiler/origin.h"
#include "profiler/work_trace.h"
#include "runtime/device.h"
#include "runtime/torch_compat.h"
#if NPU_HAS_PRIVATEUSE1_PROFILER
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

namespace npu::profiler {
namespace {

using libkineto::ActivityType;
using libkineto::CpuTraceBuffer;
using libkineto::GenericTraceActivity;

using Types = std::set<ActivityType>;

const Types kTypes = {
    ActivityType::GPU_MEMCPY,
    ActivityType::GPU_MEMSET,
    ActivityType::CONCURRENT_KERNEL,
    ActivityType::GPU_USER_ANNOTATION,
    ActivityType::PRIVATEUSE1_RUNTIME};

// Arrows' numbers are unique in a trace. CUPTI counts a process' CUDA calls
// from 1, and both are in the trace where torch has a GPU too.
constexpr std::uint32_t kFirstFlow = 1u << 30;

ActivityType type_of(const Record& record) {
  switch (record.kind) {
    case Record::kKernel:
    case Record::kCollective:
      return ActivityType::CONCURRENT_KERNEL;
    case Record::kSet:
      return ActivityType::GPU_MEMSET;
    default:
      return ActivityType::GPU_MEMCPY;
  }
}

const char* host_name_of(const Record& record) {
  switch (record.kind) {
    case Record::kKernel:
      return "npuLaunchKernel";
    case Record::kCollective:
      return "hcclEnqueue";
    case Record::kSet:
      return "npuMemsetAsync";
    case Record::kWait:
      return record.name->c_str();
    default:
      return "npuMemcpyAsync";
  }
}

std::string lane_name(std::int32_t lane) {
  if (lane == kCollectiveLane) {
    return "collectives";
  }
  if (lane < 0) {
    return "streams of others";
  }
  return "stream " + std::to_string(lane) + (lane == 0 ? " (default)" : "");
}

std::string device_label(c10::DeviceIndex device) {
  return "NPU " + std::to_string(device);
}

libkineto::DeviceInfo device_info(c10::DeviceIndex device) {
  return {
      device,
      libkineto::kExceedMaxPid + device,
      device_label(device) + ": " + device_name(device),
      device_label(device)};
}

// As the inside of a JSON string; Kineto writes values as they are given.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// with_stack=True of the session that begins.
bool wants_lines() {
  const auto* const state = torch::profiler::impl::ProfilerStateBase::get();
  return state != nullptr && state->config().with_stack;
}

// The user's ranges as they were on the device: from the first work that was
// launched inside of one to the end of the last.
class Ranges {
 public:
  void see(const Record& record) {
    if (record.origin.range == 0 || record.kind == Record::kWait) {
      return;
    }
    const Key key{record.device, record.lane, record.origin.range};
    const auto [at, is_new] =
        all_.try_emplace(key, record.begin_ns, record.end_ns);
    if (!is_new) {
      at->second.first = std::min(at->second.first, record.begin_ns);
      at->second.second = std::max(at->second.second, record.end_ns);
    }
  }
  using Key = std::tuple<c10::DeviceIndex, std::int32_t, std::uint64_t>;
  const std::map<Key, std::pair<std::int64_t, std::int64_t>>& all() const {
    return all_;
  }

 private:
  std::map<Key, std::pair<std::int64_t, std::int64_t>> all_;
};

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(Types types) : types_(std::move(types)) {}
  ~Session() override {
    if (mine_) {
      WorkTrace::instance().stop();
    }
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    mine_ = WorkTrace::instance().start(wants_lines());
    if (!mine_) {
      errors_.emplace_back(
          "npu: profiler: no device work is recorded: another recording is "
          "under way, or there is no npu device.");
    }
  }
  void stop() override {
    if (std::exchange(mine_, false)) {
      records_ = WorkTrace::instance().stop();
      for (const std::string& text : WorkTrace::instance().complaints()) {
        errors_.push_back(text);
      }
    }
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override {
    return errors_;
  }
  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](std::int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(
      libkineto::ActivityLogger& logger,
      libkineto::getLinkedActivityCallback linked,
      std::int64_t start,
      std::int64_t end) override {
    buffer_ = std::make_unique<CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, "npu");
    buffer_->gpuOpCount = 0;
    Ranges ranges;
    std::uint32_t flow = kFirstFlow;
    for (const Record& record : records_) {
      if (record.launched_ns >= start && record.launched_ns <= end) {
        add_work(logger, record, linked, flow++);
        ranges.see(record);
      }
    }
    add_ranges(logger, ranges, linked);
    name_lanes(logger, start);
    records_.clear();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (lanes_.empty()) {
      return nullptr;
    }
    return std::make_unique<libkineto::DeviceInfo>(
        device_info(lanes_.begin()->first));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {};
  }
  std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(std::uint64_t id) override {
    push_op(id);
  }
  void popCorrelationId() override {
    pop_op();
  }
  void pushUserCorrelationId(std::uint64_t id) override {
    push_range(id);
  }
  void popUserCorrelationId() override {
    pop_range();
  }

 private:
  GenericTraceActivity& make(ActivityType type, const std::string& name) {
    buffer_->emplace_activity(buffer_->span, type, name);
    return CpuTraceBuffer::toRef(buffer_->activities.back());
  }

  void add_work(
      libkineto::ActivityLogger& logger,
      const Record& record,
      const libkineto::getLinkedActivityCallback& linked,
      std::uint32_t flow) {
    const auto* const op = linked(static_cast<std::int32_t>(record.origin.op));
    if (types_.contains(ActivityType::PRIVATEUSE1_RUNTIME)) {
      auto& launch =
          make(ActivityType::PRIVATEUSE1_RUNTIME, host_name_of(record));
      launch.startTime = record.launched_ns;
      launch.endTime = record.returned_ns;
      launch.device = libkineto::processId();
      launch.resource = record.thread;
      launch.threadId = record.thread;
      launch.addMetadata("correlation", flow);
      if (record.line != nullptr) {
        launch.addMetadataQuoted("Call site", escaped(*record.line));
      }
      if (record.kind == Record::kWait) {
        launch.id = static_cast<std::int32_t>(flow);
        launch.linked = op;
        logger.handleActivity(launch);
        return;  // the host's alone
      }
      finish(logger, launch, op, flow, true);
    }
    if (record.kind == Record::kWait || !types_.contains(type_of(record))) {
      return;
    }
    auto& work = make(type_of(record), *record.name);
    work.startTime = record.begin_ns;
    work.endTime = record.end_ns;
    work.device = record.device;
    work.resource = record.lane;
    work.addMetadata("stream", record.lane);
    work.addMetadata("device", static_cast<int>(record.device));
    work.addMetadata("correlation", flow);
    if (record.label != nullptr) {
      work.addMetadataQuoted("operator", *record.label);
    }
    if (record.bytes != 0) {
      work.addMetadata("bytes", record.bytes);
    }
    if (record.kind == Record::kCollective) {
      work.addMetadata("waited (ns)", record.met_ns - record.begin_ns);
    }
    lanes_[record.device].insert(record.lane);
    ++buffer_->gpuOpCount;
    finish(logger, work, op, flow, false);
  }

  static void finish(
      libkineto::ActivityLogger& logger,
      GenericTraceActivity& activity,
      const libkineto::ITraceActivity* op,
      std::uint32_t flow,
      bool is_start) {
    activity.id = static_cast<std::int32_t>(flow);
    activity.linked = op;
    activity.flow.id = flow;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = is_start ? 1 : 0;
    logger.handleActivity(activity);
  }

  void add_ranges(
      libkineto::ActivityLogger& logger,
      const Ranges& ranges,
      const libkineto::getLinkedActivityCallback& linked) {
    if (!types_.contains(ActivityType::GPU_USER_ANNOTATION)) {
      return;
    }
    for (const auto& [key, times] : ranges.all()) {
      const auto [device, lane, id] = key;
      const auto* const range = linked(static_cast<std::int32_t>(id));
      if (range == nullptr) {
        continue;
      }
      auto& shown = make(ActivityType::GPU_USER_ANNOTATION, range->name());
      shown.startTime = times.first;
      shown.endTime = times.second;
      shown.device = device;
      shown.resource = lane;
      shown.id = static_cast<std::int32_t>(id);
      logger.handleActivity(shown);
    }
  }

  // Kineto itself asks for one device; the others are told here.
  void name_lanes(libkineto::ActivityLogger& logger, std::int64_t time) const {
    for (const auto& [device, lanes] : lanes_) {
      logger.handleDeviceInfo(device_info(device), time);
      for (const std::int32_t lane : lanes) {
        logger.handleResourceInfo(
            trace_row<libkineto::ResourceInfo>(device, lane, lane_name(lane)),
            time);
      }
    }
  }

  const Types types_;
  bool mine_ = false;
  std::vector<Record> records_;
  std::map<c10::DeviceIndex, std::set<std::int32_t>> lanes_;
  std::unique_ptr<CpuTraceBuffer> buffer_;
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }
  const Types& availableActivities() const override {
    return kTypes;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const Types& types, const libkineto::Config&) override {
    const bool wanted = types.contains(ActivityType::CONCURRENT_KERNEL) ||
                        types.contains(ActivityType::GPU_MEMCPY) ||
                        types.contains(ActivityType::GPU_MEMSET);
    return wanted ? std::make_unique<Session>(types) : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t,
      std::int64_t,
      const Types& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "npu";
};

std::unique_ptr<libkineto::IActivityProfiler> make_profiler() {
  return std::make_unique<Profiler>();
}

[[maybe_unused]] const bool kineto_registered = [] {
#if NPU_HAS_PRIVATEUSE1_PROFILER
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance()
      .registerFactory(&make_profiler);
#else
  libkineto::api().registerProfilerFactory(&make_profiler);
#endif
  return true;
}();

}  // namespace
}  // namespace npu::profiler
