// SPDX-License-Identifier: Apache-2.0
// A driver that forwards every slot to another one and fails when told to.
//
//   NPU_FAULT=memory.alloc:3             the third call of the slot fails, once
//   NPU_FAULT=memory.alloc:3:out_of_memory   ... with that status
//   NPU_FAULTY_BASE=<path>               what it forwards to; default: the host
//                                        driver beside it or in ../drivers
//   NPU_FAULTY_HOST_ACCESS=none          says that host code may not touch
//                                        memory
//   NPU_FAULTY_DECLINE=1                 has no kinds
//   NPU_FAULTY_TALLY=1                   notes every call that ran
//   NPU_FAULTY_LACKS, NPU_FAULTY_ASKS    can do less, asks for more: sparing.h
//   NPU_FAULTY_BY_CHANCE=1               says that no kernel is deterministic
//   NPU_FAULTY_WRONG=<word>              misbehaves: the words are in wrong.h
//
// A test in the same process uses npu_faulty_arm and the counters below.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fault.h"
#include "npu/driver.h"
#include "npu/op.h"
#include "run_tally.h"
#include "sparing.h"
#include "wrong.h"

namespace {

namespace fs = std::filesystem;

const npu_driver* base = nullptr;

// ---- what is alive ----

std::atomic<std::int64_t> live_memory{0};
std::atomic<std::int64_t> live_host{0};
std::atomic<std::int64_t> live_streams{0};
std::atomic<std::int64_t> live_events{0};

void count_live(int slot) {
  switch (slot) {
    case k_memory_alloc:
      ++live_memory;
      break;
    case k_memory_free:
      --live_memory;
      break;
    case k_memory_host_alloc:
      ++live_host;
      break;
    case k_memory_host_free:
      --live_host;
      break;
    case k_stream_create:
      ++live_streams;
      break;
    case k_stream_destroy:
      --live_streams;
      break;
    case k_event_create:
      ++live_events;
      break;
    case k_event_destroy:
      --live_events;
      break;
    default:
      break;
  }
}

// ---- forwarding ----

npu_device_table device_table;
npu_memory_table memory_table;
npu_stream_table stream_table;
npu_event_table event_table;
npu_op_table op_table;
npu_driver driver;

bool no_host_access = false;
bool decline = false;
bool tally_runs = false;
bool by_chance = false;
RunTally tally;
Wrong wrong;
Sparing sparing;
auto& late_worker = *new LateWorker;  // its thread outlives main

const npu_device_table* base_table(const npu_device_table*) {
  return base->device;
}
const npu_memory_table* base_table(const npu_memory_table*) {
  return base->memory;
}
const npu_stream_table* base_table(const npu_stream_table*) {
  return base->stream;
}
const npu_event_table* base_table(const npu_event_table*) {
  return base->event;
}
const npu_op_table* base_table(const npu_op_table*) {
  return base->op;
}

template <auto Member, int Number>
struct Forward;

template <
    class Table,
    class... Args,
    npu_status (*Table::*Member)(Args...),
    int Number>
struct Forward<Member, Number> {
  static npu_status call(Args... args) {
    if (const npu_status status = fault(Number); status != NPU_OK) {
      return status;
    }
    const Table* table = base_table(static_cast<const Table*>(nullptr));
    const npu_status status = (table->*Member)(args...);
    if (status == NPU_OK) {
      count_live(Number);
    }
    const bool swallows =
        wrong.is("swallow") && wrong.value == kSlotNames[Number];
    return swallows && status == NPU_E_ASYNC ? npu_status{NPU_OK} : status;
  }
};

npu_status properties(npu_device device, npu_device_properties* out) {
  const npu_status status =
      Forward<&npu_device_table::properties, k_device_properties>::call(
          device, out);
  if (status == NPU_OK && no_host_access) {
    out->host_access = NPU_HOST_ACCESS_NONE;
  }
  return status;
}

npu_status find(const char* name, uint32_t* slot) {
  if (decline) {
    services->set_error("faulty: declines every kind, as asked");
    return NPU_E_UNSUPPORTED;
  }
  return Forward<&npu_op_table::find, k_op_find>::call(name, slot);
}

npu_status caps(uint32_t slot, uint32_t code, npu_op_caps* out) {
  const npu_status status =
      Forward<&npu_op_table::caps, k_op_caps>::call(slot, code, out);
  if (status == NPU_OK && by_chance) {
    out->flags &= ~NPU_CAP_DETERMINISTIC;
  }
  const npu_kind_info* kind = npu_kind_of(slot);
  if (status == NPU_OK && wrong.plans() && kind != nullptr) {
    out->plan_use = kind->plan_use;
  }
  if (status == NPU_OK && wrong.is("ndim")) {
    out->max_ndim = static_cast<uint32_t>(wrong.number(0));
  }
  if (status == NPU_OK) {
    wrong.change_caps(slot, *out);
    sparing.limit(slot, *out);
  }
  return status;
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  const npu_status status =
      Forward<&npu_op_table::plan, k_op_plan>::call(device, call, verdict);
  if (status == NPU_OK) {
    change_verdict(wrong, *call, *verdict);
    sparing.ask(*call, *verdict);
  }
  return status;
}

// What caps exclude must not reach a kernel.
bool too_many_dims(const npu_call& call) {
  for (uint32_t i = 0; wrong.is("ndim") && i < call.n_out + call.n_in; ++i) {
    if (call.tensors[i].ndim > wrong.number(0)) {
      services->set_error("faulty: more dimensions than caps allow");
      return true;
    }
  }
  return false;
}

void look_at(const npu_call& call) {
  npu_op_caps can{};
  can.size = sizeof(can);
  if (base->op->caps(call.slot, call.code, &can) == NPU_OK) {
    sparing.limit(call.slot, can);
    sparing.look(call, can);
  }
}

npu_status run(npu_stream stream, const npu_call* call) {
  wrong.misbehave(npu_kind_name(call->slot));
  if (too_many_dims(*call)) {
    return NPU_E_INVALID;
  }
  look_at(*call);
  if (wrong.is("last_device") && call->n_out > 0 &&
      call->tensors[0].device > 0) {
    return NPU_OK;
  }
  ChangedCall changed(*call);
  changed.apply(wrong);
  const int64_t start = tally_runs ? thread_time() : 0;
  const npu_status status =
      Forward<&npu_op_table::run, k_op_run>::call(stream, changed.get());
  if (status == NPU_OK) {
    sparing.watch(stream, *call, *base->stream);
  }
  if (status == NPU_OK && tally_runs) {
    tally.record_time(*call, thread_time() - start);
    tally.record(*call);
  }
  return status;
}

// Says that a copy is done, and does it later. Small ones are in time: the kit
// reads its sentinels with them, into memory that is gone soon after.
template <auto Member, int Number>
npu_status late_copy(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  if (bytes < 4096) {
    return Forward<Member, Number>::call(stream, dst, src, bytes);
  }
  late_worker.push(
      [=] { Forward<Member, Number>::call(stream, dst, src, bytes); });
  return NPU_OK;
}

template <auto Member, int Number, class... Args>
npu_status after_late_work(Args... args) {
  late_worker.wait();
  return Forward<Member, Number>::call(args...);
}

void make_copies_late() {
  memory_table.copy_to_host =
      &late_copy<&npu_memory_table::copy_to_host, k_memory_copy_to_host>;
  memory_table.copy_on_device =
      &late_copy<&npu_memory_table::copy_on_device, k_memory_copy_on_device>;
  memory_table.free = &after_late_work<
      &npu_memory_table::free,
      k_memory_free,
      npu_device,
      void*>;
  stream_table.destroy = &after_late_work<
      &npu_stream_table::destroy,
      k_stream_destroy,
      npu_stream>;
  memory_table.host_free =
      &after_late_work<&npu_memory_table::host_free, k_memory_host_free, void*>;
}

template <class Table>
void copy_table(Table& mine, const Table* given) {
  mine = Table{};
  std::memcpy(
      &mine, given, given->size < sizeof(mine) ? given->size : sizeof(mine));
  mine.size = sizeof(mine);
}

void build_tables() {
  copy_table(device_table, base->device);
  copy_table(memory_table, base->memory);
  copy_table(stream_table, base->stream);
  copy_table(event_table, base->event);
  copy_table(op_table, base->op);
  copy_table(driver, base);
#define NPU_FORWARD(table, slot)                                        \
  if (table##_table.slot != nullptr) {                                  \
    table##_table.slot =                                                \
        &Forward<&npu_##table##_table::slot, k_##table##_##slot>::call; \
  }
  NPU_FALLIBLE_SLOTS(NPU_FORWARD)
#undef NPU_FORWARD
  device_table.properties = &properties;
  op_table.find = &find;
  op_table.plan = &plan;
  op_table.run = &run;
  op_table.caps = &caps;
  if (wrong.is("late")) {
    make_copies_late();
  }
  if (wrong.is("no_wait")) {
    stream_table.wait_event = [](npu_stream, npu_event) {
      return npu_status{NPU_OK};
    };
  }
  if (wrong.is("idle")) {
    stream_table.query = [](npu_stream) { return npu_status{NPU_OK}; };
  }
  if (wrong.is("tune")) {
    op_table.tune = [](npu_stream, const npu_call*, npu_verdict* verdict) {
      verdict->workspace_bytes += 64;
      return npu_status{NPU_OK};
    };
    driver.call_flags_known |= NPU_CALL_BENCHMARK;
  }
  driver.name = "faulty";
  driver.vendor = "OpenNPU tests";
  // Stands for a vendor's device, whatever is underneath.
  driver.flags = wrong.is("inline") ? NPU_DRIVER_INLINE : 0;
  driver.default_profile = nullptr;
  driver.device = &device_table;
  driver.memory = &memory_table;
  driver.stream = &stream_table;
  driver.event = &event_table;
  driver.op = &op_table;
}

// ---- the driver underneath ----

npu_status fails(const std::string& text) {
  services->set_error(("faulty: " + text).c_str());
  return NPU_E_INVALID;
}

std::string base_path() {
  if (const char* given = std::getenv("NPU_FAULTY_BASE")) {
    return given;
  }
  Dl_info info{};
  ::dladdr(reinterpret_cast<void*>(&build_tables), &info);
  const fs::path here = fs::path(info.dli_fname).parent_path();
  for (const fs::path& place :
       {here / "libnpu_host.so", here / "../drivers/libnpu_host.so"}) {
    std::error_code error;
    if (fs::exists(place, error)) {
      return place.string();
    }
  }
  return "";
}

// A private copy of the library: the host driver may also be loaded for itself,
// and the two must not share their state.
void* open_copy(const std::string& path) {
  std::string copy = (fs::temp_directory_path() / "npu_faulty_XXXXXX").string();
  const int file = ::mkstemp(copy.data());
  if (file < 0) {
    return nullptr;
  }
  ::close(file);
  std::error_code error;
  fs::copy_file(path, copy, fs::copy_options::overwrite_existing, error);
  void* library =
      error ? nullptr : ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  fs::remove(copy, error);
  return library;
}

npu_status open_base(uint32_t host_abi) {
  const std::string path = base_path();
  if (path.empty()) {
    return fails(
        "no libnpu_host.so beside it or in ../drivers; set "
        "NPU_FAULTY_BASE to the path of a driver");
  }
  void* library = open_copy(path);
  if (library == nullptr) {
    return fails("cannot load NPU_FAULTY_BASE='" + path + "'");
  }
  const auto entry =
      reinterpret_cast<npu_driver_entry_fn>(::dlsym(library, NPU_DRIVER_ENTRY));
  if (entry == nullptr) {
    return fails("'" + path + "' is no driver");
  }
  return entry(host_abi, services, &base);
}

npu_status read_settings() {
  const char* access = std::getenv("NPU_FAULTY_HOST_ACCESS");
  if (access != nullptr && std::string_view(access) != "none") {
    return fails(
        "NPU_FAULTY_HOST_ACCESS='" + std::string(access) +
        "' is not allowed. Allowed: none");
  }
  no_host_access = access != nullptr;
  const char* flag = std::getenv("NPU_FAULTY_DECLINE");
  decline = flag != nullptr && std::string_view(flag) == "1";
  const char* notes = std::getenv("NPU_FAULTY_TALLY");
  tally_runs = notes != nullptr && std::string_view(notes) == "1";
  const char* chance = std::getenv("NPU_FAULTY_BY_CHANCE");
  by_chance = chance != nullptr && std::string_view(chance) == "1";
  const char* word = std::getenv("NPU_FAULTY_WRONG");
  if (!wrong.set(word != nullptr ? word : "")) {
    return fails("NPU_FAULTY_WRONG='" + std::string(word) + "': see wrong.h");
  }
  const char* lacks = std::getenv("NPU_FAULTY_LACKS");
  if (!sparing.read(lacks, std::getenv("NPU_FAULTY_ASKS"))) {
    return fails(
        "NPU_FAULTY_LACKS='" + std::string(lacks) + "': see sparing.h");
  }
  const char* spec = std::getenv("NPU_FAULT");
  return arm(spec != nullptr ? spec : "");
}

}  // namespace

extern "C" {

// Arms a fault, as NPU_FAULT; "" or NULL disarms. NPU_E_INVALID for a wrong
// one.
NPU_EXPORT npu_status npu_faulty_arm(const char* spec) {
  return arm(spec != nullptr ? spec : "");
}

// How many faults have fired since the start.
NPU_EXPORT int64_t npu_faulty_fired() {
  return fired;
}

// Calls of a slot so far, failed ones included; -1 for an unknown name.
NPU_EXPORT int64_t npu_faulty_calls(const char* slot) {
  for (int i = 0; i < kSlotCount; ++i) {
    if (kSlotNames[i] == slot) {
      return calls[i];
    }
  }
  return -1;
}

// What was made and not yet given back: "memory", "host", "stream", "event".
NPU_EXPORT int64_t npu_faulty_live(const char* what) {
  const std::string_view name = what;
  if (name == "memory") {
    return live_memory;
  }
  if (name == "host") {
    return live_host;
  }
  if (name == "stream") {
    return live_streams;
  }
  return name == "event" ? live_events.load() : -1;
}

// The calls that ran since the last time: lines "operator kind.code dtype".
// Valid until the next call.
NPU_EXPORT const char* npu_faulty_take_tally() {
  static std::string text;
  text = tally.take();
  return text.c_str();
}

// Processor time of the kinds since the last time: lines "kind nanoseconds".
// Valid until the next call.
NPU_EXPORT const char* npu_faulty_take_times() {
  static std::string text;
  text = tally.take_times();
  return text.c_str();
}

// What calls had that this driver did not offer to take, or did not have that
// it asked for: lines "operator: what". Valid until the next call.
NPU_EXPORT const char* npu_faulty_broken() {
  static std::string text;
  text = sparing.take_broken();
  return text.c_str();
}

// The i-th slot that can fail ("memory.alloc"); NULL after the last.
NPU_EXPORT const char* npu_faulty_slot(int32_t i) {
  return i >= 0 && i < kSlotCount ? kSlotNames[i].data() : nullptr;
}

NPU_EXPORT npu_status npu_driver_entry(
    uint32_t host_abi, const npu_host_services* given, const npu_driver** out) {
  services = given;
  npu_status status = read_settings();
  if (status == NPU_OK) {
    status = open_base(host_abi);
  }
  if (status != NPU_OK) {
    return status;
  }
  build_tables();
  *out = &driver;
  return NPU_OK;
}

}  // extern "C"
