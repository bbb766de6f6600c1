// SPDX-License-Identifier: Apache-2.0
// The last collectives of this process, kept for the day one of them hangs.
#include "dist/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "driver/env.h"
#include "driver/services.h"
#include "driver/status.h"

namespace npu::dist {
namespace {

// The age of the format that fr_trace is told.
constexpr const char* kVersion = "2.10";

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TraceValue::List sizes_of(const FlightRecorder::Operands& operands) {
  TraceValue::List all;
  for (const auto& sizes : operands.sizes) {
    all.emplace_back(TraceValue::List(sizes.begin(), sizes.end()));
  }
  return all;
}

TraceValue::List dtypes_of(const FlightRecorder::Operands& operands) {
  return {operands.dtypes.begin(), operands.dtypes.end()};
}

TraceValue time_or_none(const std::optional<std::int64_t>& time) {
  return time ? TraceValue(*time) : TraceValue::none();
}

// Frames of several stacks, the innermost first.
std::vector<TraceValue::List> symbolized(
    const std::vector<torch::CapturedTraceback*>& stacks) {
  std::vector<TraceValue::List> all;
  const auto found = torch::symbolize(stacks);
  for (const auto& stack : found.tracebacks) {
    auto& frames = all.emplace_back();
    for (const auto index : stack) {
      const auto& frame = found.all_frames.at(index);
      frames.emplace_back(TraceValue::Dict{
          {"name", frame.funcname},
          {"filename", frame.filename},
          {"line", static_cast<std::int64_t>(frame.lineno)}});
    }
  }
  return all;
}

}  // namespace

FlightRecorder::FlightRecorder()
    : capacity_(static_cast<std::size_t>(
          env::integer("TORCH_HCCL_TRACE_BUFFER_SIZE", 0, 1'000'000, 2000))) {}

FlightRecorder& FlightRecorder::of_process() {
  // Never destroyed: lanes may outlive main().
  static auto* made = new FlightRecorder;
  return *made;
}

std::shared_ptr<torch::CapturedTraceback> FlightRecorder::stack_here() {
  return torch::CapturedTraceback::gather(
      /*python=*/true, /*script=*/false, /*cpp=*/false);
}

std::uint64_t FlightRecorder::scheduled(Call call) {
  if (!on()) {
    return 0;
  }
  Entry entry;
  entry.call = std::move(call);
  entry.created = nanoseconds_now();
  const std::lock_guard lock(mutex_);
  entry.record = next_++;
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(entry));
    return ring_.back().record;
  }
  auto& place = ring_[entry.record % capacity_];
  place = std::move(entry);
  return place.record;
}

FlightRecorder::Entry* FlightRecorder::find(std::uint64_t record) {
  if (!on() || ring_.empty()) {
    return nullptr;
  }
  auto& entry = ring_[record % capacity_];
  return entry.record == record ? &entry : nullptr;
}

void FlightRecorder::started(std::uint64_t record) {
  const std::lock_guard lock(mutex_);
  if (auto* entry = find(record)) {
    entry->started = nanoseconds_now();
  }
}

void FlightRecorder::completed(std::uint64_t record) {
  const std::lock_guard lock(mutex_);
  if (auto* entry = find(record)) {
    entry->completed = nanoseconds_now();
    entry->retired = true;
  }
}

void FlightRecorder::failed(std::uint64_t record, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (auto* entry = find(record)) {
    entry->error = why;
    entry->retired = true;
  }
}

TraceValue FlightRecorder::described(
    const Entry& entry, std::int64_t group, TraceValue::List frames) const {
  const auto& call = entry.call;
  const auto number = static_cast<std::int64_t>(call.number);
  const char* state = "scheduled";
  if (entry.completed) {
    state = "completed";
  } else if (entry.started) {
    state = "started";
  }
  TraceValue::Dict all{
      {"record_id", static_cast<std::int64_t>(entry.record)},
      {"pg_id", group},
      {"process_group",
       TraceValue::List{call.group.uid, call.group.description}},
      {"collective_seq_id", static_cast<std::int64_t>(call.matched)},
      {"p2p_seq_id", call.point_to_point ? number : std::int64_t{0}},
      {"op_id", static_cast<std::int64_t>(entry.record)},
      {"profiling_name", "hccl:" + call.name},
      {"time_created_ns", entry.created},
      {"input_sizes", sizes_of(call.inputs)},
      {"input_dtypes", dtypes_of(call.inputs)},
      {"output_sizes", sizes_of(call.outputs)},
      {"output_dtypes", dtypes_of(call.outputs)},
      {"state", state},
      {"time_discovered_started_ns", time_or_none(entry.started)},
      {"time_discovered_completed_ns", time_or_none(entry.completed)},
      {"retired", entry.retired},
      {"timeout_ms", static_cast<std::int64_t>(call.timeout.count())},
      {"is_p2p", call.point_to_point},
      {"frames", std::move(frames)}};
  if (!entry.error.empty()) {
    all.emplace_back("error", entry.error);
  }
  return all;
}

TraceValue FlightRecorder::groups(const std::vector<Entry>& entries) const {
  TraceValue::Dict all;
  std::set<std::string> seen;
  for (const auto& entry : entries) {
    const Group& group = entry.call.group;
    if (!seen.insert(group.uid).second) {
      continue;
    }
    std::string ranks;
    for (const auto rank : group.ranks) {
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    all.emplace_back(
        group.uid,
        TraceValue::Dict{
            {"name", group.uid},
            {"desc", group.description},
            {"ranks", "[" + ranks + "]"}});
  }
  return all;
}

TraceValue FlightRecorder::dump(
    bool calls, bool stacks, bool only_active) const {
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries = ring_;
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.record < b.record;
  });
  TraceValue::Dict all{{"version", kVersion}, {"pg_config", groups(entries)}};
  if (!calls) {
    return all;
  }
  std::erase_if(entries, [&](const auto& entry) {
    return only_active && entry.completed.has_value();
  });
  std::vector<TraceValue::List> frames(entries.size());
  if (stacks) {
    std::vector<torch::CapturedTraceback*> of_entries;
    for (const auto& entry : entries) {
      of_entries.push_back(entry.call.stack.get());
    }
    frames = symbolized(of_entries);
  }
  std::map<std::string, std::int64_t> numbers;  // of groups, as they come
  TraceValue::List list;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto place = numbers.try_emplace(
        entries[i].call.group.uid, static_cast<std::int64_t>(numbers.size()));
    list.push_back(
        described(entries[i], place.first->second, std::move(frames[i])));
  }
  all.emplace_back("entries", std::move(list));
  return all;
}

// ---- files ----

std::string FlightRecorder::file_of(int rank) {
  return env::text("TORCH_HCCL_DEBUG_INFO_TEMP_FILE")
             .value_or("/tmp/hccl_trace_rank_") +
         std::to_string(rank);
}

void FlightRecorder::write(
    const std::string& file, const std::string& contents) {
  const std::string partial = file + "." + std::to_string(::getpid());
  const int out = ::open(
      partial.c_str(),
      O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
      0600);
  std::size_t done = 0;
  while (out >= 0 && done < contents.size()) {
    const auto n = ::write(out, contents.data() + done, contents.size() - done);
    if (n < 0 && errno != EINTR) {
      break;
    }
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  const bool whole = out >= 0 && done == contents.size() && ::close(out) == 0 &&
                     ::rename(partial.c_str(), file.c_str()) == 0;
  if (!whole) {
    const std::string why = std::strerror(errno);
    ::unlink(partial.c_str());
    throw Error(
        NPU_E_INTERNAL,
        "npu: hccl: the flight record " + file + " could not be written: " +
            why + ". TORCH_HCCL_DEBUG_INFO_TEMP_FILE says where it goes.");
  }
}

void FlightRecorder::write_after_failure(int rank) noexcept {
  try {
    if (!on() || !env::flag("TORCH_HCCL_DUMP_ON_TIMEOUT", false)) {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(written_, true)) {
        return;
      }
    }
    const std::string file = file_of(rank);
    write(file, dump(true, false, false).pickle());
    log(NPU_LOG_ERROR, "npu: hccl: what this rank did is in " + file);
    // With stacks, if whoever hangs does not hold Python's lock.
    write(file, dump(true, true, false).pickle());
  } catch (const std::exception& error) {
    log(NPU_LOG_ERROR, error.what());
  }
}

}  // namespace npu::dist
