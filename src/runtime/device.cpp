// SPDX-License-Identifier: Apache-2.0
// npu devices as PyTorch numbers them: count, current one, properties.
#include "runtime/device.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "driver/env.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/autograd_threads.h"
#include "runtime/device_peek.h"
#include "runtime/error.h"
#include "runtime/host_wait.h"
#include "runtime/parallel.h"
#include "runtime/sanitizer/sanitizer.h"

namespace npu {
namespace {

enum class State { kIdle, kReady, kBadFork };

struct Slot {
  npu_device number = -1;
  std::atomic<bool> open{false};
  std::atomic<bool> known{false};
  npu_device_properties properties{};
};

// Plain globals without destructors that do anything: usable at exit.
std::atomic<State> state{State::kIdle};
std::atomic<c10::DeviceIndex> ready_count{0};
std::array<Slot, kMaxDevices> slots;
std::mutex mutex;

std::atomic<void (*)()> init_follower{nullptr};

thread_local c10::DeviceIndex current = 0;

// ASCEND_RT_VISIBLE_DEVICES: ascending numbers; reading ends at the first
// character that is neither digit nor comma, the first number that does not
// ascend, and the first device that is not there.
std::vector<npu_device> parse_visible(const std::string& text, int count) {
  std::vector<npu_device> devices;
  std::size_t i = 0;
  while (i < text.size()) {
    if (text[i] == ',') {
      ++i;
      continue;
    }
    std::int64_t number = 0;
    const std::size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') {
      number = std::min<std::int64_t>(number * 10 + (text[i] - '0'), count);
      ++i;
    }
    const bool ascends = devices.empty() || number > devices.back();
    if (i == begin || !ascends || number >= count) {
      break;
    }
    devices.push_back(static_cast<npu_device>(number));
  }
  return devices;
}

std::vector<npu_device> visible_devices(const Driver& driver) {
  std::int32_t count = 0;
  check_driver(driver.device().count(&count), "count devices");
  std::vector<npu_device> devices;
  if (const auto text = env::text("ASCEND_RT_VISIBLE_DEVICES")) {
    devices = parse_visible(*text, count);
  } else {
    for (npu_device i = 0; i < count; ++i) {
      devices.push_back(i);
    }
  }
  if (devices.size() > static_cast<std::size_t>(kMaxDevices)) {
    devices.resize(kMaxDevices);
  }
  return devices;
}

// Only sets flags: hardly anything else is allowed between fork and exec.
void child_after_fork() {
  if (state.load(std::memory_order_relaxed) == State::kReady) {
    state.store(State::kBadFork, std::memory_order_relaxed);
    for (auto& number : detail::open_numbers) {
      number.store(0, std::memory_order_relaxed);
    }
  }
}

[[noreturn, gnu::cold]] void raise_bad_fork() {
  TORCH_CHECK(
      false,
      "Cannot re-initialize NPU in forked subprocess. To use NPU with "
      "multiprocessing, you must use the 'spawn' start method");
}

// A driver that cannot be used is no ValueError, whatever it was lacking.
Driver* loaded_driver() {
  try {
    return &active_driver();
  } catch (const Error& e) {
    TORCH_CHECK(false, e.what(), pta_error(Code::kUnavailable));
  }
}

// There is no compiler of operators to initialise; a wrong value is told as
// torch_npu tells it.
void check_op_init_mode() {
  const auto mode = env::text("ACL_OP_INIT_MODE");
  if (mode && *mode != "0" && *mode != "1" && *mode != "2" &&
      warnings_enabled()) {
    warn(
        "Get env ACL_OP_INIT_MODE not in [0, 1, 2], so reset it to the "
        "default value 0.",
        __func__,
        __FILE__,
        __LINE__);
  }
}

[[gnu::cold]] void init_slow() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (state.load() == State::kReady) {
    return;
  }
  if (state.load() == State::kBadFork) {
    raise_bad_fork();
  }
  check_error_environment();
  check_op_init_mode();
  Driver* const driver = loaded_driver();
  watch_forks();
  const auto devices =
      use_driver([driver] { return visible_devices(*driver); });
  TORCH_CHECK(
      !devices.empty(),
      "npu: device: driver '",
      driver->name(),
      "' shows no device. Check ASCEND_RT_VISIBLE_DEVICES and the driver.",
      pta_error(Code::kNotFound));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    slots[i].number = devices[i];
  }
  if (const auto fn = init_follower.load()) {
    use_driver([fn] { return fn(), true; });
  }
  static const int registered =
      pthread_atfork(nullptr, nullptr, &child_after_fork);
  TORCH_CHECK(registered == 0, "npu: device: pthread_atfork failed");
  const auto count = static_cast<c10::DeviceIndex>(devices.size());
  lend_torch_threads();
  start_autograd_threads(count);
  if (driver == &host_driver() && !env::flag("NPU_HOST_ASYNC", false)) {
    run_backward_on_this_thread();
  }
  ready_count.store(count);
  state.store(State::kReady);
}

[[noreturn, gnu::cold]] void raise_bad_index(c10::DeviceIndex device) {
  const auto count = device_count();
  TORCH_CHECK(
      false,
      "npu: device: Invalid device ID ",
      static_cast<int>(device),
      ": this process sees ",
      static_cast<int>(count),
      count == 1 ? " npu device" : " npu devices",
      ". Check whether the device ID is valid.",
      pta_error(Code::kParam));
}

void open_slow(Slot& slot) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (slot.open.load()) {
    return;
  }
  const std::string what = "open device " + std::to_string(slot.number);
  check_driver(active_driver().device().open(slot.number), what.c_str());
  slot.open.store(true);
}

Slot& ready_slot(c10::DeviceIndex device) {
  init();
  check_device_index(device);
  return slots[static_cast<std::size_t>(device)];
}

}  // namespace

c10::DeviceIndex device_count() noexcept {
  if (state.load(std::memory_order_acquire) != State::kIdle) {
    return ready_count.load(std::memory_order_relaxed);
  }
  try {
    const Driver* const driver = active_driver_or_null();
    return driver == nullptr
               ? 0
               : static_cast<c10::DeviceIndex>(visible_devices(*driver).size());
  } catch (const std::exception&) {
    return 0;  // init() tells why
  }
}

void init() {
  if (state.load(std::memory_order_acquire) != State::kReady) [[unlikely]] {
    init_slow();
  }
}

bool is_initialized() noexcept {
  return state.load(std::memory_order_acquire) == State::kReady;
}

void after_init(void (*fn)()) noexcept {
  init_follower.store(fn);
}

bool in_bad_fork() noexcept {
  return state.load(std::memory_order_acquire) == State::kBadFork;
}

void check_device_index(c10::DeviceIndex device) {
  if (device < 0 || device >= device_count()) [[unlikely]] {
    init();  // a driver that did not load is the better reason
    raise_bad_index(device);
  }
}

npu_device detail::open_device(c10::DeviceIndex device) {
  Slot& slot = ready_slot(device);
  if (!slot.open.load(std::memory_order_acquire)) {
    open_slow(slot);
  }
  open_numbers[static_cast<std::size_t>(device)].store(
      slot.number + 1, std::memory_order_release);
  return slot.number;
}

bool device_is_open(c10::DeviceIndex device) noexcept {
  return is_initialized() && device >= 0 && device < kMaxDevices &&
         slots[static_cast<std::size_t>(device)].open.load();
}

c10::DeviceIndex current_device() noexcept {
  return current;
}

void set_device(c10::DeviceIndex device) {
  exchange_device(device);
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  const auto previous = current;
  if (device != previous) {
    check_device_index(device);
    current = device;
  }
  return previous;
}

c10::DeviceIndex exchange_device_unchecked(c10::DeviceIndex device) noexcept {
  return std::exchange(current, device);
}

c10::DeviceIndex device_or_current(c10::DeviceIndex device) {
  return device == -1 ? current : device;
}

const npu_device_properties& device_properties(c10::DeviceIndex device) {
  const auto at = static_cast<std::size_t>(device);
  if (at < slots.size() && is_initialized() &&
      slots[at].known.load(std::memory_order_acquire)) [[likely]] {
    return slots[at].properties;
  }
  Slot& slot = ready_slot(device);
  if (!slot.known.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!slot.known.load()) {
      npu_device_properties properties{};
      properties.size = sizeof(properties);
      check_driver(
          active_driver().device().properties(slot.number, &properties),
          "read device properties");
      slot.properties = properties;
      slot.known.store(true);
    }
  }
  return slot.properties;
}

npu_device_properties peek_properties(c10::DeviceIndex device) {
  if (state.load(std::memory_order_acquire) != State::kIdle) {
    return device_properties(device);
  }
  check_device_index(device);
  const Driver* const driver = use_driver([] { return &active_driver(); });
  const auto devices =
      use_driver([driver] { return visible_devices(*driver); });
  npu_device_properties properties{};
  properties.size = sizeof(properties);
  check_driver(
      driver->device().properties(
          devices.at(static_cast<std::size_t>(device)), &properties),
      "read device properties");
  return properties;
}

void synchronize_device(c10::DeviceIndex device) {
  const npu_device number = driver_device(device);
  const HostWait wait(WaitFor::kDevice, device);
  check_driver(
      active_driver().device().synchronize(number), "synchronize device");
  sanitizer::on_device_done(device);
}

}  // namespace npu
