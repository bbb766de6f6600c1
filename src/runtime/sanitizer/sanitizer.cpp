// SPDX-License-Identifier: Apache-2.0
// The stream sanitizer of the process.
#include "runtime/sanitizer/sanitizer.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>

#include <exception>
#include <mutex>
#include <utility>

#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/sanitizer/launches.h"
#include "runtime/stream.h"

namespace npu::sanitizer {
namespace {

// Threads may be inside of a hook at exit, and after find_races(false): tables
// are kept.
struct State {
  std::mutex mutex;
  std::atomic<RaceTable*> table{new RaceTable};
  std::atomic<unsigned> mode{0};
  Frontend frontend;
};

State& state() {
  static auto* const only = new State;
  return *only;
}

thread_local int quiet_depth = 0;
thread_local const void* group_work = nullptr;
// Of the call that this thread is inside of.
thread_local bool exception_pending = false;
thread_local std::string sync_pending;

void set_pending(bool& flag) {
  if (!std::exchange(flag, true)) {
    detail::pending.fetch_add(1, std::memory_order_relaxed);
  }
}

// A deleter, an event's destructor: nothing may be thrown there.
template <class F>
void quietly(F body) noexcept {
  try {
    body();
  } catch (const std::exception&) {
    // Out of memory: a race may be missed.
  }
}

void watch(unsigned bit, bool on) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const unsigned before = detail::watching.load();
  const unsigned after = on ? before | bit : before & ~bit;
  detail::watching.store(after);
  observe_operators(after != 0);
}

const char* dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kFloat:
      return "float32";
    case c10::kDouble:
      return "float64";
    case c10::kHalf:
      return "float16";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kLong:
      return "int64";
    case c10::kInt:
      return "int32";
    case c10::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

}  // namespace

namespace detail {

std::atomic<unsigned> watching{0};
std::atomic<unsigned> pending{0};

bool is_quiet() noexcept {
  return quiet_depth != 0;
}

void raise_pending_slowly() {
  if (quiet_depth != 0) {
    return;
  }
  if (std::exchange(exception_pending, false)) {
    pending.fetch_sub(1, std::memory_order_relaxed);
    state().frontend.raise();
  }
  if (!sync_pending.empty()) {
    pending.fetch_sub(1, std::memory_order_relaxed);
    const std::string text = std::exchange(sync_pending, {});
    TORCH_CHECK(false, text, pta_error(Code::kNotSupported));
  }
}

void record(const void* event, c10::Stream stream) {
  table().record(event, name_of(stream));
  if (group_work != nullptr) {
    table().add_to_event(event, group_work);
  }
}

void wait(c10::Stream stream, const void* event) {
  table().wait(name_of(stream), event);
}

void forget_event(const void* event) noexcept {
  quietly([&] { table().forget_event(event); });
}

void synchronized_event(const void* event) {
  if (quiet_depth == 0) {
    table().synchronize_event(event);
  }
}

void synchronized(c10::Stream stream) {
  if (quiet_depth == 0) {
    table().synchronize_stream(name_of(stream));
  }
}

void synchronized_device(c10::DeviceIndex device) {
  if (quiet_depth == 0) {
    table().synchronize_device(device);
  }
}

void allocated(
    c10::DeviceIndex device,
    const void* data,
    std::size_t bytes,
    c10::StreamId stream) {
  table().allocated(
      device,
      data,
      bytes,
      {device, stream},
      facts_of_launch("allocated", nullptr));
}

void freed(c10::DeviceIndex device, const void* data) noexcept {
  quietly([&] {
    std::vector<MissingRecord> found;
    table().freed(device, data, found);
    const auto show_missing = state().frontend.show_missing;
    for (const MissingRecord& missing : found) {
      if (show_missing != nullptr) {
        show_missing(missing);
      }
    }
  });
}

void use_recorded(const void* data, c10::Stream stream) {
  table().use_recorded(stream.device_index(), data, name_of(stream));
}

void forget_memory(int device, const void* data, std::size_t bytes) noexcept {
  quietly([&] { table().forget(device, data, bytes); });
}

}  // namespace detail

RaceTable& table() {
  return *state().table.load(std::memory_order_acquire);
}

StreamName name_of(c10::Stream stream) noexcept {
  return {stream.device_index(), stream.id()};
}

void set_frontend(const Frontend& frontend) {
  state().frontend = frontend;
}

void find_races(bool on) {
  if (on) {
    state().table.store(new RaceTable, std::memory_order_release);
    forget_forward_stacks();
  }
  watch(detail::kRaces, on);
}

void set_sync_mode(SyncMode mode) {
  state().mode.store(static_cast<unsigned>(mode));
  watch(detail::kSyncs, mode != SyncMode::kDefault);
}

SyncMode sync_mode() noexcept {
  return static_cast<SyncMode>(state().mode.load());
}

std::vector<MissingRecord> missing_records() {
  return table().missing_records();
}

LaunchPtr facts_of_launch(std::string name, std::shared_ptr<void> forward) {
  auto facts = std::make_shared<LaunchFacts>();
  facts->name = std::move(name);
  if (const auto stack = state().frontend.stack; stack != nullptr) {
    facts->stack = stack();
  }
  facts->forward_stack = std::move(forward);
  return facts;
}

void show(std::vector<Race>& found) {
  const auto show_race = state().frontend.show_race;
  for (const Race& race : found) {
    if (show_race != nullptr && show_race(race)) {
      set_pending(exception_pending);
    }
  }
  found.clear();
}

bool describe(const at::TensorBase& tensor, Access& access) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // Tensors that are only traced have no memory, and perhaps no sizes either.
  if (!impl.has_storage() || impl.key_set().has(c10::DispatchKey::Python) ||
      impl.has_symbolic_sizes_strides() || impl.numel() == 0) {
    return false;
  }
  const void* const base = impl.unsafe_storage()
                               .unsafeGetStorageImpl()
                               ->_mutable_data_ptr_no_checks()
                               .get();
  if (base == nullptr) {
    return false;
  }
  const std::size_t item = impl.itemsize();
  access.region = Region(
      static_cast<const char*>(base) +
          static_cast<std::size_t>(impl.storage_offset()) * item,
      item,
      {impl.sizes().data(), impl.sizes().size()},
      {impl.strides().data(), impl.strides().size()});
  access.tensor = dtype_name(c10::typeMetaToScalarType(impl.dtype()));
  access.tensor += '[';
  for (std::size_t d = 0; d < impl.sizes().size(); ++d) {
    access.tensor += (d == 0 ? "" : ", ") + std::to_string(impl.sizes()[d]);
  }
  access.tensor += ']';
  return true;
}

// ---- work that no operator shows ----

Quiet::Quiet() noexcept {
  ++quiet_depth;
}
Quiet::~Quiet() {
  --quiet_depth;
}

AfterGroupWork::AfterGroupWork(const void* key) noexcept
    : before_(std::exchange(group_work, key)) {}
AfterGroupWork::~AfterGroupWork() {
  group_work = before_;
}

namespace {

void enter(
    RaceTable::Point point,
    const LaunchPtr& facts,
    c10::DeviceIndex device,
    const std::vector<Operand>& operands) {
  std::vector<Race> found;
  for (const Operand& operand : operands) {
    Access access;
    if (operand.tensor->defined() &&
        operand.tensor->device().type() == kDeviceType &&
        operand.tensor->device().index() == device &&
        describe(*operand.tensor, access)) {
      access.write = operand.write;
      access.launch = facts;
      access.argument = operand.name;
      table().access(device, point, std::move(access), found);
    }
  }
  show(found);
}

}  // namespace

void on_work(const std::string& name, const std::vector<Operand>& operands) {
  if (!finds_races() || detail::is_quiet()) {
    return;
  }
  const LaunchPtr facts = facts_of_launch(name, nullptr);
  std::vector<c10::DeviceIndex> devices;
  for (const Operand& operand : operands) {
    if (operand.tensor->defined() &&
        operand.tensor->device().type() == kDeviceType &&
        std::ranges::find(devices, operand.tensor->device().index()) ==
            devices.end()) {
      devices.push_back(operand.tensor->device().index());
    }
  }
  for (const c10::DeviceIndex device : devices) {
    const auto point = table().launch({device, current_stream_id(device)});
    enter(point, facts, device, operands);
  }
}

void on_group_work(
    const void* key,
    const std::string& name,
    c10::DeviceIndex device,
    const std::vector<Operand>& operands) {
  if (!finds_races() || detail::is_quiet()) {
    return;
  }
  // Every call is a stream of its own: only what waits for it comes after it.
  static std::atomic<std::int64_t> calls{0};
  const StreamName stream{
      device, kFirstGroupStream + calls.fetch_add(1) % kFirstGroupStream};
  table().record(key, {device, current_stream_id(device)});
  table().wait(stream, key);
  const auto point = table().launch(stream);
  enter(point, facts_of_launch(name, nullptr), device, operands);
  table().record_launch(key, point);
}

void on_host_wait(const std::string& what) {
  if (!reports_syncs() || detail::is_quiet()) {
    return;
  }
  const auto line = state().frontend.line;
  const std::string place = line != nullptr ? line() : std::string();
  const std::string text = "called a synchronizing NPU operation: " + what +
                           (place.empty() ? "" : " (" + place + ")");
  if (sync_mode() == SyncMode::kWarn) {
    const auto warn = state().frontend.warn;
    if (warn != nullptr && warn(text)) {
      set_pending(exception_pending);
    }
  } else if (sync_mode() == SyncMode::kError && sync_pending.empty()) {
    sync_pending = text;
    detail::pending.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace npu::sanitizer
