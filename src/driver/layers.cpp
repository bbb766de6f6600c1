// SPDX-License-Identifier: Apache-2.0
// The stream lock, preparing and the launch watch.
#include "driver/layers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "driver/driver.h"
#include "driver/interface_lock.h"
#include "driver/services.h"
#include "driver/status.h"
#include "npu/kinds.h"

namespace npu {
namespace {

// Each driver with layers has functions of its own, made by number.
constexpr int kMaxLayered = 8;

// ---- one call at a time per stream ----

// One lock per stream, not per driver: a thread that synchronizes one stream
// must not stop another from queueing what the first waits for.
template <int N>
class StreamLock {
 public:
  static DriverTables& below() {
    return state().tables;
  }
  template <class Slot>
  static constexpr bool wants = Slot::fallible && (Slot::takes_stream ||
                                                   Slot::id == k_stream_create);

  template <class Slot, class... Args>
  static npu_status around(typename Slot::Function below, Args... args) {
    State& here = state();
    if constexpr (Slot::id == k_stream_create) {
      const npu_status status = below(args...);
      if (status == NPU_OK) {
        const std::unique_lock<std::shared_mutex> guard(here.mutex);
        here.locks[*last_of(args...)] = std::make_shared<std::mutex>();
      }
      return status;
    } else {
      const npu_stream stream = first_of<npu_stream>(args...);
      const npu_status status = locked(stream, [&] { return below(args...); });
      if (Slot::id == k_stream_destroy && status == NPU_OK) {
        const std::unique_lock<std::shared_mutex> guard(here.mutex);
        here.locks.erase(stream);
      }
      return status;
    }
  }

  static npu_status run(
      npu_stream stream,
      npu_status (*run)(npu_stream, const npu_call*),
      const npu_call* call) {
    return locked(stream, [&] { return run(stream, call); });
  }

  // A handle this layer did not create goes straight to the driver, which has
  // the error for it.
  template <class Fn>
  static npu_status locked(npu_stream stream, Fn fn) noexcept {
    std::shared_ptr<std::mutex> mutex;
    {
      State& here = state();
      const std::shared_lock<std::shared_mutex> guard(here.mutex);
      const auto found = here.locks.find(stream);
      if (found != here.locks.end()) {
        mutex = found->second;
      }
    }
    if (mutex == nullptr) {
      return fn();
    }
    const std::lock_guard<std::mutex> guard(*mutex);
    return fn();
  }

 private:
  struct State {
    DriverTables tables;
    std::shared_mutex mutex;
    std::unordered_map<npu_stream, std::shared_ptr<std::mutex>> locks;
  };
  static State& state() {
    static auto* const only = new State;
    return *only;
  }
};

// One function of an optional interface.
template <int N, auto Member>
struct LockedFunction;
template <
    int N,
    class Table,
    class... Args,
    npu_status (*Table::*Member)(Args...)>
struct LockedFunction<N, Member> {
  static void put_into(Table& table) {
    below = std::exchange(table.*Member, &call);
  }
  static npu_status call(Args... args) {
    return StreamLock<N>::locked(
        first_of<npu_stream>(args...), [&] { return below(args...); });
  }
  static inline npu_status (*below)(Args...) = nullptr;
};

template <int N, auto... Members, class Table>
void lock_functions(Table& table) {
  (LockedFunction<N, Members>::put_into(table), ...);
}

template <int N>
void lock_table(std::string_view name, void* table) {
  if (name == NPU_CAPTURE_INTERFACE) {
    lock_functions<
        N,
        &npu_capture::join,
        &npu_capture::end,
        &npu_capture::status,
        &npu_capture::launch>(*static_cast<npu_capture*>(table));
  } else if (name == NPU_COMM_INTERFACE) {
    lock_functions<
        N,
        &npu_comm_table::all_reduce,
        &npu_comm_table::reduce,
        &npu_comm_table::broadcast,
        &npu_comm_table::all_gather,
        &npu_comm_table::reduce_scatter,
        &npu_comm_table::all_to_all,
        &npu_comm_table::send,
        &npu_comm_table::recv>(*static_cast<npu_comm_table*>(table));
  }
}

// By driver: its lock_table.
struct TableLocks {
  std::mutex mutex;
  std::unordered_map<const Driver*, void (*)(std::string_view, void*)> of;
  static TableLocks& get() {
    static auto* const all = new TableLocks;
    return *all;
  }
};

bool wants_lock(const npu_device_table& device) {
  int32_t count = 0;
  if (device.count(&count) != NPU_OK) {
    count = 0;
  }
  bool wants = false;
  for (npu_device i = 0; i < count; ++i) {
    npu_device_properties properties{};
    properties.size = sizeof(properties);
    wants = wants || (device.properties(i, &properties) == NPU_OK &&
                      properties.needs_stream_lock != 0);
  }
  host_services()->set_error(nullptr);
  return wants;
}

// ---- op.prepare ----

class KeyHash {
 public:
  void add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value() const noexcept {
    return value_ | 1;  // 0 is no key
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

// What npu/driver.h lists for prepare. The stream stands for the device of a
// call whose operands do not say (-1).
std::uint64_t prepare_key(
    npu_device device, npu_stream stream, const npu_call& call) noexcept {
  KeyHash hash;
  if (device < 0) {
    hash.add(reinterpret_cast<std::uintptr_t>(stream));
  }
  hash.add(std::uint64_t{call.slot} << 32 | call.code);
  hash.add(
      static_cast<std::uint64_t>(device) << 48 |
      static_cast<std::uint64_t>(call.compute_dtype) << 32 | call.flags);
  hash.add(std::uint64_t{call.math_mode} << 32 | call.deterministic);
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    const npu_tensor& t = call.tensors[i];
    const bool inner =
        t.dtype != NPU_ABSENT && t.ndim > 0 && t.strides[t.ndim - 1] == 1;
    hash.add(
        std::uint64_t{t.dtype} << 48 | std::uint64_t{t.format} << 33 |
        std::uint64_t{inner} << 32 | t.flags);
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    const npu_list& list = call.lists[i];
    hash.add(
        std::uint64_t{list.dtype} << 48 |
        std::uint64_t{list.tensors != nullptr} << 32 | list.flags);
  }
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  const auto* const bytes = static_cast<const unsigned char*>(call.attrs);
  for (std::uint32_t i = 0; kind != nullptr && i < kind->n_attrs; ++i) {
    const npu_attr_info& attr = kind->attrs[i];
    if (attr.key != NPU_KEY_VALUE ||
        attr.offset + attr.bytes > call.attr_bytes) {
      continue;
    }
    for (std::uint32_t at = 0; at < attr.bytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(
          &word,
          bytes + attr.offset + at,
          std::min<std::size_t>(sizeof(word), attr.bytes - at));
      hash.add(word);
    }
  }
  return hash.value();
}

// Keys that were prepared. Looking one up takes no lock while its place in the
// table is not shared with another.
class PreparedKeys {
 public:
  bool has(std::uint64_t key) const noexcept {
    return recent_[key % kRecent].load(std::memory_order_acquire) == key;
  }
  // Calls prepare() unless the key is known. A second thread waits for it.
  template <class Prepare>
  void add(std::uint64_t key, Prepare prepare) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (all_.insert(key).second) {
      prepare();
    }
    recent_[key % kRecent].store(key, std::memory_order_release);
  }

 private:
  static constexpr std::size_t kRecent = 4096;
  std::array<std::atomic<std::uint64_t>, kRecent> recent_{};
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> all_;
};

// Asked for kinds that are not planned: the others prepare in plan.
bool is_prepared_by_plan(const Driver& driver, const npu_call& call) {
  const npu_op_caps* const caps = driver.caps(call.slot, call.code);
  return caps != nullptr && caps->plan_use != NPU_PLAN_NONE;
}

void ask_to_prepare(
    const Driver& driver,
    const npu_op_table& op,
    npu_device device,
    const npu_call& call) {
  if (is_prepared_by_plan(driver, call)) {
    return;
  }
  npu_call question = call;
  question.workspace = question.host_workspace = question.carry = nullptr;
  question.workspace_bytes = question.host_workspace_bytes =
      question.carry_bytes = 0;
  const npu_status status = op.prepare(device, &question);
  if (status != NPU_OK) {
    if (status != NPU_E_UNSUPPORTED && log_enabled(NPU_LOG_WARNING)) {
      const std::string what = std::string(driver.name()) + " op.prepare of " +
                               npu_kind_name(call.slot) +
                               " on npu:" + std::to_string(device);
      log(NPU_LOG_WARNING, failure_text(status, what.c_str()));
    }
    host_services()->set_error(nullptr);
  }
}

// The device of a frame, by its operands; -1 when they do not say.
npu_device device_of(const npu_call& call) noexcept {
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    if (call.tensors[i].dtype != NPU_ABSENT &&
        (call.tensors[i].flags & NPU_TENSOR_HOST_SCALAR) == 0) {
      return call.tensors[i].device;
    }
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    if (call.lists[i].n > 0 && call.lists[i].tensors != nullptr) {
      return call.lists[i].tensors[0].device;
    }
  }
  return -1;
}

template <int N>
class Preparing {
 public:
  static DriverTables& below() {
    return state().tables;
  }
  static void belongs_to(const Driver& driver) {
    state().driver = &driver;
  }
  template <class Slot>
  static constexpr bool wants =
      Slot::id == k_op_run || Slot::id == k_stream_create;

  template <class Slot, class... Args>
  static npu_status around(typename Slot::Function below, Args... args) {
    if constexpr (Slot::id == k_stream_create) {
      const npu_status status = below(args...);
      if (status == NPU_OK) {
        State& here = state();
        const std::lock_guard<std::mutex> guard(here.mutex);
        here.devices[*last_of(args...)] = first_of<npu_device>(args...);
      }
      return status;
    } else {
      prepare_for(first_of<npu_stream>(args...), *last_of(args...));
      return below(args...);
    }
  }

 private:
  struct State {
    DriverTables tables;
    const Driver* driver = nullptr;
    PreparedKeys keys;
    std::mutex mutex;
    std::unordered_map<npu_stream, npu_device> devices;
  };
  static void prepare_for(npu_stream stream, const npu_call& call) {
    State& here = state();
    const npu_device device = device_of(call);
    const std::uint64_t key = prepare_key(device, stream, call);
    if (here.keys.has(key) || (call.flags & NPU_CALL_CAPTURE) != 0) {
      return;
    }
    here.keys.add(key, [&] {
      ask_to_prepare(
          *here.driver,
          here.tables.op,
          device >= 0 ? device : device_of_stream(stream),
          call);
    });
  }
  static npu_device device_of_stream(npu_stream stream) {
    State& here = state();
    const std::lock_guard<std::mutex> guard(here.mutex);
    const auto found = here.devices.find(stream);
    return found == here.devices.end() ? 0 : found->second;
  }
  static State& state() {
    static auto* const only = new State;
    return *only;
  }
};

// ---- which layers ----

struct Wanted {
  const Driver& driver;
  bool lock;
  bool prepare;
};

template <int N>
LockedRun add_layers(const Wanted& wanted, DriverTables& tables) {
  LockedRun locked_run = nullptr;
  if (wanted.lock) {
    StreamLock<N>::below() = tables;
    add_layer<StreamLock<N>>(tables);
    locked_run = &StreamLock<N>::run;
    TableLocks& locks = TableLocks::get();
    const std::lock_guard<std::mutex> guard(locks.mutex);
    locks.of[&wanted.driver] = &lock_table<N>;
  }
  if (wanted.prepare) {
    Preparing<N>::belongs_to(wanted.driver);
    Preparing<N>::below() = tables;
    add_layer<Preparing<N>>(tables);
  }
  return locked_run;
}

template <int... N>
constexpr std::array<LockedRun (*)(const Wanted&, DriverTables&), sizeof...(N)>
numbered(std::integer_sequence<int, N...>) {
  return {&add_layers<N>...};
}

}  // namespace

LockedRun add_needed_layers(
    const Driver& driver, DriverTables& tables, bool prepares) {
  const Wanted wanted{driver, wants_lock(tables.device), prepares};
  if (!wanted.lock && !wanted.prepare) {
    return nullptr;
  }
  constexpr auto kAdd =
      numbered(std::make_integer_sequence<int, kMaxLayered>());
  static std::atomic<std::size_t> used{0};
  const std::size_t number = used++;
  if (number >= kAdd.size()) {
    throw Error(
        NPU_E_UNSUPPORTED,
        "npu: driver: more than " + std::to_string(kMaxLayered) +
            " drivers that need stream locks or have op.prepare in one "
            "process. Load fewer.");
  }
  return kAdd[number](wanted, tables);
}

void lock_interface(
    const Driver& driver, std::string_view name, void* table) noexcept {
  TableLocks& locks = TableLocks::get();
  const std::lock_guard<std::mutex> guard(locks.mutex);
  if (const auto found = locks.of.find(&driver); found != locks.of.end()) {
    found->second(name, table);
  }
}

// ---- the launch watch ----

namespace {

// One driver at a time is watched: the one the process uses.
std::atomic<LaunchListener*> launch_listener{nullptr};
std::atomic<const Driver*> watched_driver{nullptr};

template <class Give>
class LaunchOf final : public Launch {
 public:
  LaunchOf(
      Kind what,
      npu_stream where,
      std::uint64_t n,
      const npu_call* frame,
      Give give)
      : Launch(what, where, n, frame), give_(std::move(give)) {}
  npu_status give(std::uint64_t correlation) const override {
    return give_(correlation);
  }

 private:
  const Give give_;
};

template <class Give>
npu_status show(
    Launch::Kind kind,
    npu_stream stream,
    std::uint64_t bytes,
    const npu_call* call,
    Give give) {
  LaunchListener* const listener =
      launch_listener.load(std::memory_order_acquire);
  if (listener == nullptr) {
    return give(0);
  }
  return listener->on_launch(LaunchOf(kind, stream, bytes, call, give));
}

// A frame is the caller's: the number goes into a copy.
template <class Run>
npu_status show_call(npu_stream stream, const npu_call& call, Run run) {
  return show(
      Launch::kKernel, stream, 0, &call, [&](std::uint64_t correlation) {
        npu_call numbered = call;
        numbered.correlation = correlation;
        return run(stream, &numbered);
      });
}

constexpr Launch::Kind kind_of(SlotMoves moves) {
  switch (moves) {
    case SlotMoves::kToDevice:
      return Launch::kToDevice;
    case SlotMoves::kToHost:
      return Launch::kToHost;
    case SlotMoves::kOnDevice:
      return Launch::kOnDevice;
    case SlotMoves::kPeer:
      return Launch::kPeer;
    case SlotMoves::kSet:
      return Launch::kSet;
    default:
      return Launch::kKernel;
  }
}

struct LaunchWatch {
  static const DriverTables& below() {
    return watched_driver.load()->tables();
  }
  template <class Slot>
  static constexpr bool wants = Slot::moves != SlotMoves::kNothing;

  template <class Slot, class... Args>
  static npu_status around(typename Slot::Function below, Args... args) {
    if constexpr (Slot::moves == SlotMoves::kKernel) {
      return show_call(first_of<npu_stream>(args...), *last_of(args...), below);
    } else {
      return show(
          kind_of(Slot::moves),
          first_of<npu_stream>(args...),
          last_of(args...),
          nullptr,
          [=](std::uint64_t) { return below(args...); });
    }
  }
};

}  // namespace

void Driver::watch_launches(LaunchListener* listener) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (listener == nullptr) {
    run_in_use_.store(tables_.op.run, std::memory_order_release);
    memory_in_use_.store(&tables_.memory, std::memory_order_release);
    launch_listener.store(nullptr, std::memory_order_release);
    return;
  }
  watched_driver.store(this);
  if (!watched_) {
    watched_ = std::make_unique<DriverTables>(tables_);
    add_layer<LaunchWatch>(*watched_);
  }
  launch_listener.store(listener, std::memory_order_release);
  memory_in_use_.store(&watched_->memory, std::memory_order_release);
  run_in_use_.store(watched_->op.run, std::memory_order_release);
}

npu_status Driver::run_kernel_of_pack(
    npu_stream stream, const npu_op_row& row, const npu_call& call) const {
  const auto run = [&](npu_stream s, const npu_call* given) {
    return locked_run_ != nullptr ? locked_run_(s, row.run, given)
                                  : row.run(s, given);
  };
  const bool watched = watched_driver.load(std::memory_order_relaxed) == this;
  return watched ? show_call(stream, call, run) : run(stream, &call);
}

}  // namespace npu
