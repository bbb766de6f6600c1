// SPDX-License-Identifier: Apache-2.0
// Loads a driver and refuses one that does not keep the contract's form.
#include "driver/driver.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "driver/library_file.h"
#include "driver/services.h"
#include "driver/slots.h"
#include "driver/status.h"
#include "npu/kinds.h"

namespace npu {

namespace {

// ---- defaults of optional slots ----

npu_status no_peer_access(npu_device, npu_device, int32_t* yes) {
  *yes = 0;
  return NPU_OK;
}

npu_status nothing_to_enable(npu_device, npu_device) {
  return NPU_OK;
}

void* no_device_handle(npu_device) {
  return nullptr;
}

npu_status no_host_register(void*, uint64_t) {
  host_services()->set_error("the driver has no memory.host_register");
  return NPU_E_UNSUPPORTED;
}

npu_status no_host_unregister(void*) {
  host_services()->set_error("the driver has no memory.host_unregister");
  return NPU_E_UNSUPPORTED;
}

npu_mailbox* no_mailbox(npu_stream) {
  return nullptr;
}

npu_status nothing_to_tune(npu_stream, const npu_call*, npu_verdict*) {
  return NPU_E_UNSUPPORTED;
}

npu_status nothing_to_prepare(npu_device, const npu_call*) {
  return NPU_OK;
}

npu_status nothing_to_discard(npu_stream, void*, uint64_t) {
  return NPU_OK;
}

npu_status nothing_to_trim(npu_device) {
  return NPU_OK;
}

npu_status no_peer_copy(
    npu_stream, npu_device, void*, npu_device, const void*, uint64_t) {
  host_services()->set_error("the driver has no memory.copy_peer");
  return NPU_E_UNSUPPORTED;
}

npu_status always_open(void*, uint64_t, uint32_t) {
  return NPU_OK;
}

npu_status one_priority(npu_device, int32_t* least, int32_t* greatest) {
  *least = 0;
  *greatest = 0;
  return NPU_OK;
}

void* stream_itself(npu_stream stream) {
  return stream;
}

void* event_itself(npu_event event) {
  return event;
}

void plan_owns_nothing(void*) {}

npu_status nothing_to_warm(npu_device, uint32_t) {
  return NPU_OK;
}

const void* no_interface(const char*) {
  return nullptr;
}

npu_status nothing_to_shut_down() {
  return NPU_OK;
}

// By slot; what npu/driver.h says.
template <class Slot>
constexpr typename Slot::Function kSlotDefault = nullptr;
#define NPU_DEFAULT(table, slot, function) \
  template <>                              \
  constexpr auto kSlotDefault<Slot_##table##_##slot> = &function;
NPU_DEFAULT(driver, get_interface, no_interface)
NPU_DEFAULT(driver, shutdown, nothing_to_shut_down)
NPU_DEFAULT(device, can_access_peer, no_peer_access)
NPU_DEFAULT(device, trim, nothing_to_trim)
NPU_DEFAULT(device, enable_peer, nothing_to_enable)
NPU_DEFAULT(device, native_handle, no_device_handle)
NPU_DEFAULT(memory, copy_peer, no_peer_copy)
NPU_DEFAULT(memory, host_open, always_open)
NPU_DEFAULT(memory, host_close, always_open)
NPU_DEFAULT(memory, host_register, no_host_register)
NPU_DEFAULT(memory, host_unregister, no_host_unregister)
NPU_DEFAULT(memory, discard, nothing_to_discard)
NPU_DEFAULT(stream, priority_range, one_priority)
NPU_DEFAULT(stream, native_handle, stream_itself)
NPU_DEFAULT(stream, mailbox, no_mailbox)
NPU_DEFAULT(event, native_handle, event_itself)
NPU_DEFAULT(op, release_plan, plan_owns_nothing)
NPU_DEFAULT(op, warm, nothing_to_warm)
NPU_DEFAULT(op, tune, nothing_to_tune)
NPU_DEFAULT(op, prepare, nothing_to_prepare)
#undef NPU_DEFAULT

bool bit(const std::uint64_t* set, std::uint32_t i) noexcept {
  return (set[i / 64] >> (i % 64) & 1) != 0;
}

void set_bit(std::uint64_t* set, std::uint32_t i) noexcept {
  set[i / 64] |= std::uint64_t{1} << (i % 64);
}

std::string canonical(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) {
    return path;  // check_library_file says why
  }
  std::string result = real;
  std::free(real);
  return result;
}

// Never destroyed: drivers may be called until the process ends.
struct Loaded {
  std::mutex load_mutex;  // held while a driver is loaded
  std::mutex mutex;
  std::map<std::string, Driver*> drivers;

  static Loaded& get() {
    static auto* all = new Loaded;
    return *all;
  }
};

}  // namespace

Driver* Driver::find_loaded(const char* name) noexcept {
  Loaded& loaded = Loaded::get();
  const std::lock_guard<std::mutex> lock(loaded.mutex);
  for (const auto& [path, driver] : loaded.drivers) {
    if (name != nullptr && std::strcmp(driver->name(), name) == 0) {
      return driver;
    }
  }
  return nullptr;
}

Driver* Driver::load(const std::string& path) {
  Loaded& loaded = Loaded::get();
  const std::lock_guard<std::mutex> lock(loaded.load_mutex);
  const std::string real = canonical(path);
  {
    const std::lock_guard<std::mutex> look(loaded.mutex);
    const auto known = loaded.drivers.find(real);
    if (known != loaded.drivers.end()) {
      return known->second;
    }
  }
  if (forked_child()) {
    throw Error(
        NPU_E_SHUTDOWN,
        "npu: driver '" + path +
            "': cannot be loaded in a forked child. Use the 'spawn' start "
            "method.");
  }
  std::unique_ptr<Driver> driver(new Driver);
  driver->path_ = real;
  driver->open_library();
  driver->ask_kinds();
  driver->locked_run_ =
      add_needed_layers(*driver, driver->tables_, driver->prepares_);
  driver->run_in_use_ = driver->tables_.op.run;
  if (log_enabled(NPU_LOG_INFO)) {
    log(NPU_LOG_INFO, "loaded " + driver->identity() + " from " + real);
  }
  const std::lock_guard<std::mutex> publish(loaded.mutex);
  return loaded.drivers[real] = driver.release();
}

std::string Driver::identity() const {
  std::string text = "driver '";
  text += tables_.driver.name != nullptr ? tables_.driver.name : path_.c_str();
  text += "'";
  if (tables_.driver.version != nullptr && *tables_.driver.version != '\0') {
    text += " ";
    text += tables_.driver.version;
  }
  return text;
}

void Driver::open_library() {
  const auto entry = reinterpret_cast<npu_driver_entry_fn>(
      npu::open_library(path_, "driver", NPU_DRIVER_ENTRY));
  const npu_driver* given = nullptr;
  host_services()->set_error(nullptr);
  const npu_status status = entry(NPU_ABI, host_services(), &given);
  if (status != NPU_OK) {
    const std::string what = "driver '" + path_ + "' failed to initialise";
    const std::string text = failure_text(status, what.c_str());
    host_services()->set_error(nullptr);
    throw Error(status, text);
  }
  if (given == nullptr) {
    throw Error(
        NPU_E_INTERNAL,
        "npu: driver '" + path_ +
            "': its entry answered ok but gave no driver. Fix the driver.");
  }
  adopt(given);
}

void Driver::adopt(const npu_driver* given) {
  const bool sized = given->size >= offsetof(npu_driver, get_interface);
  if (sized) {
    copy_struct(tables_.driver, given);
  }
  // The version comes first: with another major nothing else can be trusted.
  if (given->abi >> 16 != NPU_ABI_MAJOR) {
    throw Error(
        NPU_E_INVALID,
        "npu: driver '" + path_ + "': built for contract " +
            version_text(given->abi) + ", this host speaks " +
            version_text(NPU_ABI) +
            ". Rebuild the driver or install a matching opennpu.");
  }
  if (!sized) {
    throw Error(
        NPU_E_INVALID,
        "npu: driver '" + path_ + "': its npu_driver says size " +
            std::to_string(given->size) + ", at least " +
            std::to_string(offsetof(npu_driver, get_interface)) +
            " is needed. Set the field 'size'.");
  }
  if (given->name == nullptr || *given->name == '\0') {
    throw Error(
        NPU_E_INVALID,
        "npu: driver '" + path_ + "': has no name. Set the field 'name'.");
  }
  settle_platform();
  copy_tables();
  check_slots();
  frame_bytes_ = minor() == 0 ? NPU_CALL_BYTES_1_0 : sizeof(npu_call);
  most_math_mode_ =
      minor() < 2 ? NPU_MATH_F16_ACCUMULATE : NPU_MATH_HALF_PARTIALS;
  warms_ = tables_.op.warm != nullptr;
  tunes_ = tables_.op.tune != nullptr;
  prepares_ = tables_.op.prepare != nullptr;
  discards_ = tables_.memory.discard != nullptr;
  const npu_memory_table as_given = tables_.memory;
  fill_defaults();
  check_conditional_slots(as_given);
}

// One answer from the field of 1.2 and the flag of 1.1.
void Driver::settle_platform() {
  const char*& platform = tables_.driver.platform;
  if (platform != nullptr && *platform == '\0') {
    platform = nullptr;
  }
  const bool flagged = (tables_.driver.flags & NPU_DRIVER_DEVICE_IS_CPU) != 0;
  if (platform == nullptr && flagged) {
    platform = NPU_PLATFORM_CPU;
  }
  if (has_platform(NPU_PLATFORM_CPU)) {
    tables_.driver.flags |= NPU_DRIVER_DEVICE_IS_CPU;
  } else if (flagged) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + identity() + ": says platform '" + platform +
            "' and the flag NPU_DRIVER_DEVICE_IS_CPU. Take the flag away (" +
            path_ + ").");
  }
}

void Driver::copy_tables() {
  std::string missing;
  const auto copy = [&](auto& mine, const auto* given, const char* name) {
    if (given == nullptr || given->size < 2 * sizeof(std::uint32_t)) {
      missing += (missing.empty() ? "" : ", ") + std::string(name) +
                 " (the whole table, or its 'size')";
    } else {
      copy_struct(mine, given);
    }
  };
  const npu_driver& given = tables_.driver;
  copy(tables_.device, given.device, "device");
  copy(tables_.memory, given.memory, "memory");
  copy(tables_.stream, given.stream, "stream");
  copy(tables_.event, given.event, "event");
  copy(tables_.op, given.op, "op");
  refuse_missing(missing);
}

void Driver::refuse_missing(const std::string& slots) const {
  if (!slots.empty()) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + identity() + ": required slots are missing: " + slots +
            ". Fill them in (" + path_ + ").");
  }
}

void Driver::check_slots() const {
  std::string missing;
  for_each_slot([&](auto slot) {
    using S = decltype(slot);
    if (S::required && S::in(tables_) == nullptr) {
      missing += (missing.empty() ? "" : ", ") + std::string(kSlotNames[S::id]);
    }
  });
  refuse_missing(missing);
}

void Driver::fill_defaults() noexcept {
  for_each_slot([&](auto slot) {
    using S = decltype(slot);
    if constexpr (!S::required) {
      static_assert(
          kSlotDefault<S> != nullptr, "an optional slot has a default");
      if (S::in(tables_) == nullptr) {
        S::in(tables_) = kSlotDefault<S>;
      }
    }
  });
  tables_.driver.device = &tables_.device;
  tables_.driver.memory = &tables_.memory;
  tables_.driver.stream = &tables_.stream;
  tables_.driver.event = &tables_.event;
  tables_.driver.op = &tables_.op;
}

// Slots that depend on what the devices are. A driver that cannot say yet is
// believed; its error comes at first use of the device.
void Driver::check_conditional_slots(const npu_memory_table& given) const {
  int32_t count = 0;
  if (tables_.device.count(&count) != NPU_OK) {
    host_services()->set_error(nullptr);
    return;
  }
  std::string missing;
  if (count > 1 && given.copy_peer == nullptr) {
    missing =
        "memory.copy_peer (there are " + std::to_string(count) + " devices)";
  }
  for (npu_device device = 0; device < count; ++device) {
    npu_device_properties properties{};
    properties.size = sizeof(properties);
    if (tables_.device.properties(device, &properties) != NPU_OK) {
      host_services()->set_error(nullptr);
      continue;
    }
    if (properties.host_access == NPU_HOST_ACCESS_EXPLICIT &&
        (given.host_open == nullptr || given.host_close == nullptr)) {
      missing += missing.empty() ? "" : ", ";
      missing += "memory.host_open and memory.host_close (npu:" +
                 std::to_string(device) + " has explicit host access)";
      break;
    }
  }
  refuse_missing(missing);
}

// ---- kinds ----

namespace {

void check_rows(
    const std::string& driver,
    const npu_kind_info& kind,
    const npu_op_caps& caps) {
  if (caps.dtype_rule == NPU_DTYPES_ROWS && caps.n_dtype_rows > 0 &&
      caps.dtype_rows == nullptr) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + driver + ": kind '" + kind.name +
            "': its caps say NPU_DTYPES_ROWS, " +
            std::to_string(caps.n_dtype_rows) +
            " rows, and dtype_rows is NULL. Point it to the table.");
  }
}

}  // namespace

void Driver::ask_kinds() {
  caps_.resize(NPU_KIND_LIMIT);
  for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
    const npu_kind_info& kind = *npu_kind_at(i);
    std::uint32_t slot = 0;
    if (tables_.op.find(kind.name, &slot) != NPU_OK) {
      continue;
    }
    if (slot != kind.slot) {
      throw Error(
          NPU_E_INVALID,
          "npu: " + identity() + ": gives slot " + std::to_string(slot) +
              " to kind '" + kind.name + "', the contract fixes " +
              std::to_string(kind.slot) +
              ". Use npu_kind_find of npu/kinds.h.");
    }
    caps_[slot].resize(kind.n_codes);
    for (std::uint32_t code = 0; code < kind.n_codes; ++code) {
      npu_op_caps caps{};
      if (ask_caps(slot, code, caps) == NPU_OK) {
        check_rows(identity(), kind, caps);
        caps.plan_use = std::min(caps.plan_use, most_plan_use(kind));
        caps_[slot][code] = caps;
        set_bit(kinds_, slot);
      }
    }
  }
  host_services()->set_error(nullptr);
}

// How far the plans of a driver of this minor may go.
std::uint32_t Driver::most_plan_use(const npu_kind_info& kind) const noexcept {
  return minor() == 0   ? kind.plan_use_1_0
         : minor() == 1 ? kind.plan_use_1_1
                        : kind.plan_use;
}

// An older driver is told the size it was built with. One built with a newer
// header has a larger struct: what it writes past that size lands in bytes that
// are there for it, and is an error.
npu_status Driver::ask_caps(
    std::uint32_t slot, std::uint32_t code, npu_op_caps& caps) const {
  constexpr std::size_t kBeyond = 256;
  constexpr unsigned char kUntouched = 0xA5;
  alignas(npu_op_caps) unsigned char room[sizeof(caps) + kBeyond];
  const std::size_t given =
      minor() == 0 ? offsetof(npu_op_caps, dtype_rows) : sizeof(caps);
  std::memset(room, 0, given);
  std::memset(room + given, kUntouched, sizeof(room) - given);
  auto* const out = reinterpret_cast<npu_op_caps*>(room);
  out->size = static_cast<std::uint32_t>(given);
  const npu_op_row* pack_row = row(slot);
  const npu_status status = pack_row != nullptr
                                ? pack_row->caps(code, out)
                                : tables_.op.caps(slot, code, out);
  if (std::any_of(room + given, std::end(room), [](unsigned char byte) {
        return byte != kUntouched;
      })) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + identity() + ": caps of slot " + std::to_string(slot) +
            ", code " + std::to_string(code) +
            " wrote past the end of the struct it was given. Write no more "
            "than "
            "out->size bytes, here " +
            std::to_string(given) + ".");
  }
  std::memcpy(&caps, room, given);
  caps.size = sizeof(caps);
  return status;
}

bool Driver::has_kind(std::uint32_t slot) const noexcept {
  return slot < kSlots && bit(kinds_, slot) && !bit(disabled_, slot);
}

const npu_op_caps* Driver::caps(std::uint32_t slot, std::uint32_t code) const {
  if (slot < NPU_KIND_LIMIT) {
    const auto& codes = caps_[slot];
    if (code >= codes.size()) {
      return nullptr;
    }
    const auto& caps = codes[code];
    return caps ? &*caps : nullptr;
  }
  if (slot < NPU_FIRST_VENDOR_SLOT) {
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(vendor_mutex_);
  const auto [entry, is_new] = vendor_caps_.try_emplace({slot, code});
  if (is_new) {
    auto caps = std::make_unique<npu_op_caps>();
    if (ask_caps(slot, code, *caps) == NPU_OK) {
      entry->second = std::move(caps);
    }
    host_services()->set_error(nullptr);
  }
  return entry->second.get();
}

void Driver::disable_kinds(const std::vector<std::uint32_t>& slots) noexcept {
  for (const std::uint32_t slot : slots) {
    set_bit(disabled_, slot);
  }
}

void Driver::enable_all_kinds() noexcept {
  std::fill(std::begin(disabled_), std::end(disabled_), 0);
}

bool Driver::is_disabled(std::uint32_t slot) const noexcept {
  return slot < kSlots && bit(disabled_, slot);
}

// ---- op.warm: once per device and kind ----

namespace {

std::uint64_t bit_of(std::uint32_t slot) noexcept {
  return std::uint64_t{1} << (slot % 64);
}

}  // namespace

// Standard kinds have a bit each; a vendor's own are looked up under the lock.
bool Driver::is_warm(npu_device device, std::uint32_t slot) const noexcept {
  if (slot >= kSlots || device < 0 ||
      device >= static_cast<npu_device>(kWarmDevices)) {
    return false;
  }
  const auto word = static_cast<std::uint32_t>(device) * (kSlots / 64);
  return (warmed_[word + slot / 64].load(std::memory_order_acquire) &
          bit_of(slot)) != 0;
}

void Driver::warm(npu_device device, std::uint32_t slot) const {
  const std::lock_guard<std::mutex> lock(warm_mutex_);
  if (!warm_kinds_.emplace(device, slot).second) {
    return;
  }
  if (const npu_status status = tables_.op.warm(device, slot);
      status != NPU_OK) {
    if (log_enabled(NPU_LOG_WARNING)) {
      const std::string what = std::string(name()) + " op.warm of " +
                               npu_kind_name(slot) +
                               " on npu:" + std::to_string(device);
      log(NPU_LOG_WARNING, failure_text(status, what.c_str()));
    }
    host_services()->set_error(nullptr);
  }
  if (slot < kSlots && device >= 0 &&
      device < static_cast<npu_device>(kWarmDevices)) {
    const auto word = static_cast<std::uint32_t>(device) * (kSlots / 64);
    warmed_[word + slot / 64].fetch_or(bit_of(slot), std::memory_order_release);
  }
}

}  // namespace npu
