// SPDX-License-Identifier: Apache-2.0
// The last collectives of this process, kept for the day one of them hangs.
#include "dist/flight_recorder.h"

#include <fcntl.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "dist/lane.h"
#include "driver/env.h"
#include "driver/services.h"
#include "driver/status.h"

namespace npu::dist {
namespace {

using c10::IValue;
using Dict = c10::impl::GenericDict;
using List = c10::impl::GenericList;

// The age of the format that fr_trace is told.
constexpr const char* kVersion = "2.10";

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Dict make_dict(
    std::initializer_list<std::pair<const char*, IValue>> items = {}) {
  Dict made(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : items) {
    made.insert(key, value);
  }
  return made;
}

template <class Values>
List make_list(const Values& values) {
  List made(c10::AnyType::get());
  for (const auto& value : values) {
    made.emplace_back(value);
  }
  return made;
}

List sizes_of(const FlightRecorder::Operands& operands) {
  List all(c10::AnyType::get());
  for (const auto& sizes : operands.sizes) {
    all.push_back(make_list(sizes));
  }
  return all;
}

IValue time_or_none(const std::optional<std::int64_t>& time) {
  return time ? IValue(*time) : IValue();
}

// Frames of several stacks, the innermost first.
std::vector<List> symbolized(
    const std::vector<torch::CapturedTraceback*>& stacks) {
  std::vector<List> all;
  const auto found = torch::symbolize(stacks);
  for (const auto& stack : found.tracebacks) {
    auto& frames = all.emplace_back(c10::AnyType::get());
    for (const auto index : stack) {
      const auto& frame = found.all_frames.at(index);
      frames.push_back(make_dict(
          {{"name", frame.funcname},
           {"filename", frame.filename},
           {"line", static_cast<std::int64_t>(frame.lineno)}}));
    }
  }
  return all;
}

std::string pickled(const IValue& value) {
  std::string made;
  torch::jit::Pickler pickler(
      [&](const char* data, std::size_t size) { made.append(data, size); },
      nullptr,
      nullptr,
      nullptr,
      nullptr,
      false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return made;
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

void FlightRecorder::started(std::uint64_t record, ProgressPtr progress) {
  const std::lock_guard lock(mutex_);
  if (auto* entry = find(record)) {
    entry->started = nanoseconds_now();
    entry->progress = std::move(progress);
  }
}

void FlightRecorder::completed(std::uint64_t record) {
  const std::lock_guard lock(mutex_);
  if (auto* entry = find(record)) {
    entry->completed = nanoseconds_now();
    entry->retired = true;
    entry->progress = nullptr;
  }
}

void FlightRecorder::failed(std::uint64_t record, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (auto* entry = find(record)) {
    entry->error = why;
    entry->retired = true;
    entry->progress = nullptr;
  }
}

namespace {

template <class Entry>
Dict described(const Entry& entry, std::int64_t group, const List& frames) {
  const auto& call = entry.call;
  const auto number = static_cast<std::int64_t>(call.number);
  const char* state = "scheduled";
  if (entry.completed) {
    state = "completed";
  } else if (entry.started) {
    state = "started";
  }
  Dict all = make_dict(
      {{"record_id", static_cast<std::int64_t>(entry.record)},
       {"pg_id", group},
       {"process_group",
        make_list(std::vector{call.group.uid, call.group.description})},
       {"collective_seq_id", static_cast<std::int64_t>(call.matched)},
       {"p2p_seq_id", call.point_to_point ? number : std::int64_t{0}},
       {"op_id", static_cast<std::int64_t>(entry.record)},
       {"profiling_name", "hccl:" + call.name},
       {"time_created_ns", entry.created},
       {"input_sizes", sizes_of(call.inputs)},
       {"input_dtypes", make_list(call.inputs.dtypes)},
       {"output_sizes", sizes_of(call.outputs)},
       {"output_dtypes", make_list(call.outputs.dtypes)},
       {"state", state},
       {"time_discovered_started_ns", time_or_none(entry.started)},
       {"time_discovered_completed_ns", time_or_none(entry.completed)},
       {"retired", entry.retired},
       {"timeout_ms", static_cast<std::int64_t>(call.timeout.count())},
       {"is_p2p", call.point_to_point},
       {"frames", frames}});
  if (!entry.error.empty()) {
    all.insert("error", entry.error);
  }
  return all;
}

Dict described(const FlightRecorder::Group& group) {
  std::string ranks;
  for (const auto rank : group.ranks) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return make_dict(
      {{"name", group.uid},
       {"desc", group.description},
       {"ranks", "[" + ranks + "]"}});
}

}  // namespace

std::string FlightRecorder::dump(bool calls, bool stacks, bool only_active) {
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : ring_) {
      if (entry.progress && entry.progress->is_done()) {
        entry.completed = nanoseconds_now();
        entry.progress = nullptr;
      }
    }
    entries = ring_;
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.record < b.record;
  });
  std::map<std::string, std::int64_t> numbers;  // of groups, as they come
  Dict groups = make_dict();
  for (const auto& entry : entries) {
    const Group& group = entry.call.group;
    const auto number = static_cast<std::int64_t>(numbers.size());
    if (numbers.try_emplace(group.uid, number).second) {
      groups.insert(group.uid, described(group));
    }
  }
  Dict all = make_dict({{"version", kVersion}, {"pg_config", groups}});
  if (!calls) {
    return pickled(all);
  }
  std::erase_if(entries, [&](const auto& entry) {
    return only_active && entry.completed.has_value();
  });
  std::vector<List> frames(entries.size(), List(c10::AnyType::get()));
  if (stacks) {
    std::vector<torch::CapturedTraceback*> of_entries;
    for (const auto& entry : entries) {
      of_entries.push_back(entry.call.stack.get());
    }
    frames = symbolized(of_entries);
  }
  List list(c10::AnyType::get());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    list.push_back(described(
        entries[i], numbers.at(entries[i].call.group.uid), frames[i]));
  }
  all.insert("entries", list);
  return pickled(all);
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
    write(file, dump(true, false, false));
    log(NPU_LOG_ERROR, "npu: hccl: the calls of this rank are in " + file);
    // Stacks need Python's lock, which may be long in coming.
    run_before_end([&] { write(file, dump(true, true, false)); });
  } catch (const std::exception& error) {
    log(NPU_LOG_ERROR, error.what());
  }
}

}  // namespace npu::dist
