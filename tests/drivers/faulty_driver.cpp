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
//   NPU_FAULTY_MINOR=0, =1               is built for contract 1.0, 1.1: its
//                                        tables end there, and run refuses what
//                                        came later
//   NPU_FAULTY_WRONG=<word>              misbehaves: the words are in wrong.h
//
// A test in the same process uses npu_faulty_arm and the counters below.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
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
    case npu::k_memory_alloc:
      ++live_memory;
      break;
    case npu::k_memory_free:
      --live_memory;
      break;
    case npu::k_memory_host_alloc:
      ++live_host;
      break;
    case npu::k_memory_host_free:
      --live_host;
      break;
    case npu::k_stream_create:
      ++live_streams;
      break;
    case npu::k_stream_destroy:
      --live_streams;
      break;
    case npu::k_event_create:
      ++live_events;
      break;
    case npu::k_event_destroy:
      --live_events;
      break;
    default:
      break;
  }
}

// ---- forwarding ----

npu::DriverTables base_tables;  // of the driver underneath
npu::DriverTables tables;       // this driver's own

bool no_host_access = false;
bool decline = false;
bool tally_runs = false;
bool by_chance = false;
uint32_t minor = NPU_ABI_MINOR;
RunTally tally;
Wrong wrong;
Sparing sparing;
auto& late_worker = *new LateWorker;  // its thread outlives main

// Over every slot that can fail.
struct Faults {
  static const npu::DriverTables& below() {
    return base_tables;
  }
  template <class Slot>
  static constexpr bool wants = Slot::fallible;

  template <class Slot, class... Args>
  static npu_status around(typename Slot::Function below, Args... args) {
    if (const npu_status status = fault(Slot::id); status != NPU_OK) {
      return status;
    }
    const npu_status status = below(args...);
    if (status == NPU_OK) {
      count_live(Slot::id);
    }
    const bool swallows =
        wrong.is("swallow") && wrong.value == kSlotNames[Slot::id];
    return swallows && status == NPU_E_ASYNC ? npu_status{NPU_OK} : status;
  }
};

template <class Slot>
constexpr auto forward = &npu::Layered<Faults, Slot>::call;

npu_status properties(npu_device device, npu_device_properties* out) {
  const npu_status status = forward<npu::Slot_device_properties>(device, out);
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
  return forward<npu::Slot_op_find>(name, slot);
}

// Capabilities end where the headers of that minor ended.
void be_older(const npu_kind_info* kind, npu_op_caps& caps) {
  constexpr uint32_t kOf12 =
      NPU_CAP_WIDE_STATISTICS | NPU_CAP_EPILOGUE_GRAD | NPU_CAP_DROPOUT_RULE;
  constexpr uint32_t kOf11 = NPU_CAP_DENSE_IN | NPU_CAP_DENSE_OUT |
                             NPU_CAP_CHANNELS_LAST | NPU_CAP_INNER_STRIDE_1 |
                             NPU_CAP_ONE_INPUT_DTYPE | NPU_CAP_EPILOGUE |
                             NPU_CAP_BIAS_GRADIENT;
  caps.flags &= minor < 2 ? ~kOf12 : ~0u;
  caps.flags &= minor < 1 ? ~kOf11 : ~0u;
  if (minor < 2 && kind != nullptr) {
    caps.plan_use = std::min(
        caps.plan_use, minor < 1 ? kind->plan_use_1_0 : kind->plan_use_1_1);
  }
}

npu_status caps(uint32_t slot, uint32_t code, npu_op_caps* out) {
  const npu_status status = forward<npu::Slot_op_caps>(slot, code, out);
  if (status == NPU_OK && by_chance) {
    out->flags &= ~NPU_CAP_DETERMINISTIC;
  }
  const npu_kind_info* kind = npu_kind_of(slot);
  if (status == NPU_OK && kind != nullptr && wrong.plans(slot)) {
    out->plan_use = kind->plan_use;
  }
  if (status == NPU_OK && wrong.is("ndim")) {
    out->max_ndim = static_cast<uint32_t>(wrong.number(0));
  }
  if (status == NPU_OK) {
    wrong.change_caps(slot, *out);
    sparing.limit(slot, *out);
    be_older(kind, *out);
  }
  return status;
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  const npu_status status = forward<npu::Slot_op_plan>(device, call, verdict);
  if (status == NPU_OK) {
    if (call->slot == NPU_KIND_GEMM) {
      wrong.planned_alpha = npu_gemm_unpack(call).attrs.alpha;
    }
    change_verdict(wrong, *call, *verdict);
    sparing.ask(*call, *verdict);
  }
  return status;
}

// ---- op.prepare ----

std::mutex prepared_mutex;
std::set<uint32_t> prepared_slots;

// Takes memory for the kind, once.
void take_kernel(npu_device device, uint32_t slot) {
  const std::lock_guard<std::mutex> lock(prepared_mutex);
  if (prepared_slots.insert(slot).second) {
    services->account(device, 64, "faulty: a kernel");
  }
}

npu_status prepare(npu_device device, const npu_call* call) {
  if (wrong.is("unprepared")) {
    services->set_error("faulty: cannot prepare, as asked");
    return NPU_E_INTERNAL;
  }
  if (wrong.is("prepared")) {
    take_kernel(device, call->slot);
  }
  return NPU_OK;
}

bool is_prepared(const npu_call& call) {
  npu_op_caps can{};
  can.size = sizeof(can);
  const std::lock_guard<std::mutex> lock(prepared_mutex);
  return prepared_slots.count(call.slot) != 0 ||
         base->op->caps(call.slot, call.code, &can) != NPU_OK ||
         can.plan_use != NPU_PLAN_NONE;
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

// What a driver of an older minor must never see.
const char* came_later(const npu_call& call) {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  if (minor < 2 && call.math_mode > NPU_MATH_F16_ACCUMULATE) {
    return "math mode";
  }
  if (minor < 1 && call.size != NPU_CALL_BYTES_1_0) {
    return "frame";
  }
  const uint32_t known = kind != nullptr ? kind->n_out + kind->n_in : 0;
  for (uint32_t i = 0; minor < 2 && i < call.n_out + call.n_in; ++i) {
    if (i < known && kind->operands[i].cap != 0) {
      return kind->operands[i].name;
    }
  }
  return nullptr;
}

npu_status run(npu_stream stream, const npu_call* call) {
  if (const char* const later = came_later(*call)) {
    services->set_error(
        (std::string("faulty: newer than this driver: ") + later).c_str());
    return NPU_E_INVALID;
  }
  if (wrong.is("prepared") && !is_prepared(*call)) {
    services->set_error("faulty: this call was not prepared");
    return NPU_E_INTERNAL;
  }
  if (wrong.is("lazy")) {
    take_kernel(0, call->slot);
  }
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
  const npu_status status = forward<npu::Slot_op_run>(stream, changed.get());
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
template <class Slot>
npu_status late_copy(
    npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  if (bytes < 4096) {
    return forward<Slot>(stream, dst, src, bytes);
  }
  late_worker.push([=] { forward<Slot>(stream, dst, src, bytes); });
  return NPU_OK;
}

template <class Slot, class... Args>
npu_status after_late_work(Args... args) {
  late_worker.wait();
  return forward<Slot>(args...);
}

void make_copies_late() {
  tables.memory.copy_to_host = &late_copy<npu::Slot_memory_copy_to_host>;
  tables.memory.copy_on_device = &late_copy<npu::Slot_memory_copy_on_device>;
  tables.memory.free =
      &after_late_work<npu::Slot_memory_free, npu_device, void*>;
  tables.stream.destroy =
      &after_late_work<npu::Slot_stream_destroy, npu_stream>;
  tables.memory.host_free = &after_late_work<npu::Slot_memory_host_free, void*>;
}

// The tables end where the headers of that minor ended.
void be_older() {
  tables.driver.abi = NPU_ABI_MAKE(1, minor);
  const bool first = minor == 0;
  tables.driver.size =
      first ? offsetof(npu_driver, flags) : offsetof(npu_driver, platform);
  tables.op.size =
      first ? offsetof(npu_op_table, tune) : offsetof(npu_op_table, prepare);
  if (first) {
    tables.device.size = offsetof(npu_device_table, enable_peer);
    tables.memory.size = offsetof(npu_memory_table, host_register);
    tables.stream.size = offsetof(npu_stream_table, mailbox);
  }
}

void build_tables() {
  npu::copy_struct(base_tables.driver, base);
  npu::copy_struct(base_tables.device, base->device);
  npu::copy_struct(base_tables.memory, base->memory);
  npu::copy_struct(base_tables.stream, base->stream);
  npu::copy_struct(base_tables.event, base->event);
  npu::copy_struct(base_tables.op, base->op);
  tables = base_tables;
  npu::add_layer<Faults>(tables);
  tables.device.properties = &properties;
  tables.op.find = &find;
  tables.op.plan = &plan;
  tables.op.run = &run;
  tables.op.caps = &caps;
  if (wrong.is("lazy") || wrong.is("prepared") || wrong.is("unprepared")) {
    tables.op.prepare = &prepare;
  }
  if (wrong.is("late")) {
    make_copies_late();
  }
  if (wrong.is("no_wait")) {
    tables.stream.wait_event = [](npu_stream, npu_event) {
      return npu_status{NPU_OK};
    };
  }
  if (wrong.is("idle")) {
    tables.stream.query = [](npu_stream) { return npu_status{NPU_OK}; };
  }
  if (wrong.is("tune")) {
    tables.op.tune = [](npu_stream, const npu_call*, npu_verdict* verdict) {
      verdict->workspace_bytes += 64;
      return npu_status{NPU_OK};
    };
    tables.driver.call_flags_known |= NPU_CALL_BENCHMARK;
  }
  tables.driver.name = "faulty";
  tables.driver.vendor = "OpenNPU tests";
  // Stands for a vendor's device, whatever is underneath.
  tables.driver.flags = wrong.is("inline")  ? NPU_DRIVER_INLINE
                        : wrong.draws_own() ? NPU_DRIVER_OWN_RANDOM
                                            : 0;
  tables.driver.default_profile = nullptr;
  tables.driver.platform = wrong.is("platform") ? NPU_PLATFORM_CPU : nullptr;
  if (minor < 2) {
    be_older();
  }
  tables.driver.device = &tables.device;
  tables.driver.memory = &tables.memory;
  tables.driver.stream = &tables.stream;
  tables.driver.event = &tables.event;
  tables.driver.op = &tables.op;
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
  if (const char* text = std::getenv("NPU_FAULTY_MINOR")) {
    minor = static_cast<uint32_t>(std::atoi(text));
  }
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
    if (std::string_view(kSlotNames[i]) == slot) {
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
  for (int slot = 0; slot < kSlotCount; ++slot) {
    if (kCanFail[slot] && i-- == 0) {
      return kSlotNames[slot];
    }
  }
  return nullptr;
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
  *out = &tables.driver;
  return NPU_OK;
}

}  // extern "C"
