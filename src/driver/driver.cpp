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
#include "driver/stream_lock.h"
#include "driver/write_watch.h"
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

template <class Function>
void default_to(Function& slot, Function otherwise) noexcept {
  if (slot == nullptr) {
    slot = otherwise;
  }
}

// A driver of another minor: the shorter of both, zero behind it.
template <class Struct>
void copy_struct(Struct& mine, const Struct* given) noexcept {
  mine = Struct{};
  std::memcpy(&mine, given, std::min<std::size_t>(given->size, sizeof(mine)));
  mine.size = sizeof(mine);
}

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
  driver->locked_run_ = lock_streams_if_needed(
      driver->device_,
      driver->memory_,
      driver->stream_,
      driver->event_,
      driver->op_);
  watch_writes_if_needed(
      driver->device_, driver->memory_, driver->stream_, driver->op_);
  driver->run_in_use_ = driver->op_.run;
  if (log_enabled(NPU_LOG_INFO)) {
    log(NPU_LOG_INFO, "loaded " + driver->identity() + " from " + real);
  }
  const std::lock_guard<std::mutex> publish(loaded.mutex);
  return loaded.drivers[real] = driver.release();
}

std::string Driver::identity() const {
  std::string text = "driver '";
  text += table_.name != nullptr ? table_.name : path_.c_str();
  text += "'";
  if (table_.version != nullptr && *table_.version != '\0') {
    text += " ";
    text += table_.version;
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
    copy_struct(table_, given);
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
  check_slots();
  copy_struct(device_, given->device);
  copy_struct(memory_, given->memory);
  copy_struct(stream_, given->stream);
  copy_struct(event_, given->event);
  copy_struct(op_, given->op);
  frame_bytes_ = minor() == 0 ? NPU_CALL_BYTES_1_0 : sizeof(npu_call);
  warms_ = op_.warm != nullptr;
  tunes_ = op_.tune != nullptr;
  const npu_memory_table as_given = memory_;
  fill_defaults();
  check_conditional_slots(as_given);
}

void Driver::check_slots() const {
  std::string missing;
  const auto add = [&missing](const char* name) {
    missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
#define NPU_CHECK_TABLE(name)                                               \
  if (table_.name == nullptr || table_.name->size < 2 * sizeof(uint32_t)) { \
    add(#name " (the whole table, or its 'size')");                         \
  }
  NPU_CHECK_TABLE(device)
  NPU_CHECK_TABLE(memory)
  NPU_CHECK_TABLE(stream)
  NPU_CHECK_TABLE(event)
  NPU_CHECK_TABLE(op)
#undef NPU_CHECK_TABLE
  if (missing.empty()) {
#define NPU_CHECK_SLOT(table, slot)                                           \
  if (table_.table->size <                                                    \
          offsetof(npu_##table##_table, slot) + sizeof(table_.table->slot) || \
      table_.table->slot == nullptr) {                                        \
    add(#table "." #slot);                                                    \
  }
    NPU_REQUIRED_SLOTS(NPU_CHECK_SLOT)
#undef NPU_CHECK_SLOT
  }
  if (!missing.empty()) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + identity() + ": required slots are missing: " + missing +
            ". Fill them in (" + path_ + ").");
  }
}

void Driver::fill_defaults() noexcept {
  default_to(device_.can_access_peer, &no_peer_access);
  default_to(device_.trim, &nothing_to_trim);
  default_to(device_.enable_peer, &nothing_to_enable);
  default_to(device_.native_handle, &no_device_handle);
  default_to(memory_.copy_peer, &no_peer_copy);
  default_to(memory_.host_open, &always_open);
  default_to(memory_.host_close, &always_open);
  default_to(memory_.host_register, &no_host_register);
  default_to(memory_.host_unregister, &no_host_unregister);
  default_to(stream_.priority_range, &one_priority);
  default_to(stream_.native_handle, &stream_itself);
  default_to(stream_.mailbox, &no_mailbox);
  default_to(event_.native_handle, &event_itself);
  default_to(op_.release_plan, &plan_owns_nothing);
  default_to(op_.warm, &nothing_to_warm);
  default_to(op_.tune, &nothing_to_tune);
  default_to(table_.get_interface, &no_interface);
  default_to(table_.shutdown, &nothing_to_shut_down);
  table_.device = &device_;
  table_.memory = &memory_;
  table_.stream = &stream_;
  table_.event = &event_;
  table_.op = &op_;
}

// Slots that depend on what the devices are. A driver that cannot say yet is
// believed; its error comes at first use of the device.
void Driver::check_conditional_slots(const npu_memory_table& given) const {
  int32_t count = 0;
  if (device_.count(&count) != NPU_OK) {
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
    if (device_.properties(device, &properties) != NPU_OK) {
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
  if (!missing.empty()) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + identity() + ": required slots are missing: " + missing +
            ". Fill them in (" + path_ + ").");
  }
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
    if (op_.find(kind.name, &slot) != NPU_OK) {
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
        caps_[slot][code] = caps;
        set_bit(kinds_, slot);
      }
    }
  }
  host_services()->set_error(nullptr);
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
  const npu_status status = pack_row != nullptr ? pack_row->caps(code, out)
                                                : op_.caps(slot, code, out);
  if (std::any_of(room + given, std::end(room), [](unsigned char byte) {
        return byte != kUntouched;
      })) {
    throw Error(
        NPU_E_INVALID,
        "npu: " + identity() + ": caps of slot " + std::to_string(slot) +
            ", code " + std::to_string(code) +
            " wrote past the end of what it was given. Write no more than "
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
    return code < codes.size() && codes[code] ? &*codes[code] : nullptr;
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

}  // namespace npu
