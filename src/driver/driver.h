// SPDX-License-Identifier: Apache-2.0
// One loaded driver, checked: every required slot is there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/interfaces.h"
#include "driver/launch_watch.h"
#include "driver/layers.h"
#include "npu/kinds.h"
#include "npu/pack.h"

namespace npu {

// Lives for ever once loaded: drivers are never unloaded.
class Driver {
 public:
  // Opens the library at `path`, checks version and required slots, calls its
  // entry. Throws Error with file, what is wrong and what to do. A library
  // that is loaded already is handed out again.
  static Driver* load(const std::string& path);
  // One that is loaded already, by its name; nullptr when there is none.
  static Driver* find_loaded(const char* name) noexcept;

  const char* name() const noexcept {
    return tables_.driver.name;
  }
  const std::string& path() const noexcept {
    return path_;
  }
  // Copies: what an older or sparing driver lacks is filled with the defaults,
  // so no function pointer is null, and the layers it needs are in front
  // (layers.h).
  const npu_driver& table() const noexcept {
    return tables_.driver;
  }
  const DriverTables& tables() const noexcept {
    return tables_;
  }
  const npu_device_table& device() const noexcept {
    return tables_.device;
  }
  const npu_memory_table& memory() const noexcept {
    return *memory_in_use_.load(std::memory_order_acquire);
  }
  const npu_stream_table& stream() const noexcept {
    return tables_.stream;
  }
  const npu_event_table& event() const noexcept {
    return tables_.event;
  }
  const npu_op_table& op() const noexcept {
    return tables_.op;
  }

  // Whose addresses and handles the driver deals in: NPU_PLATFORM_CPU,
  // NPU_PLATFORM_CUDA or another name; nullptr for none. A driver of 1.1 that
  // says NPU_DRIVER_DEVICE_IS_CPU is of platform "cpu".
  const char* platform() const noexcept {
    return tables_.driver.platform;
  }
  bool has_platform(std::string_view name) const noexcept {
    return tables_.driver.platform != nullptr &&
           name == tables_.driver.platform;
  }
  // Platform "cpu": the device is this computer's processor.
  bool device_is_cpu() const noexcept {
    return (tables_.driver.flags & NPU_DRIVER_DEVICE_IS_CPU) != 0;
  }
  // Random kinds do not give the contract's numbers.
  bool draws_own_random() const noexcept {
    return (tables_.driver.flags & NPU_DRIVER_OWN_RANDOM) != 0;
  }
  // Every kernel is to be used, whatever an imitated chip lacks.
  bool wants_every_kernel() const noexcept {
    return (tables_.driver.flags & NPU_DRIVER_EVERY_KERNEL) != 0;
  }
  // Work may be unfinished when the call that queued it returns.
  bool queues_work() const noexcept {
    return (tables_.driver.flags & NPU_DRIVER_INLINE) == 0;
  }
  // A pack's kernel is a host function that is done when it returns, called
  // here and not queued on the stream.
  bool calls_pack_kernels() const noexcept {
    return device_is_cpu();
  }
  // The profile for users who name none; "" = none.
  const char* default_profile() const noexcept {
    return tables_.driver.default_profile != nullptr
               ? tables_.driver.default_profile
               : "";
  }
  // Minor version of the contract it was built for.
  std::uint32_t minor() const noexcept {
    return tables_.driver.abi & 0xffffu;
  }
  // The last NPU_MATH_* it knows.
  std::uint16_t most_math_mode() const noexcept {
    return most_math_mode_;
  }
  // The size frames say to this driver: what it was built to take.
  std::uint32_t frame_bytes() const noexcept {
    return frame_bytes_;
  }

  // An optional interface: driver.interface<npu_capture>(). The driver is asked
  // once; nullptr when it has none, or one that is not whole, which is logged.
  // What an older driver's struct lacks is filled with the defaults.
  template <class Interface>
  const Interface* interface() const {
    return static_cast<const Interface*>(
        find_interface(interface_info<Interface>()));
  }

  // A kind by name: "gemm", "vendor.name/1" of an operator pack or of the
  // driver itself. 0 when there is none.
  std::uint32_t find(const char* name) const;
  // Adds the rows of a pack (NPU_OP_PACKS). Throws Error that names the file
  // and what is wrong; nothing of the pack is used then. False when the pack
  // says that it is not for this driver.
  bool add_pack(const std::string& path);

  // A call's slot decides whether the driver or a pack is asked.
  npu_status plan(
      npu_device device, const npu_call& call, npu_verdict& verdict) const;
  npu_status run(npu_stream stream, const npu_call& call) const {
    return call.slot < NPU_FIRST_PACK_SLOT
               ? run_in_use_.load(std::memory_order_relaxed)(stream, &call)
               : run_row(stream, call);
  }
  // From now on `listener` sees kernels, copies and bytes set on their way to
  // the driver; nullptr: no listener. See src/driver/launch_watch.h.
  void watch_launches(LaunchListener* listener);
  void release_plan(std::uint32_t slot, void* plan) const noexcept;
  bool can_tune(std::uint32_t slot) const noexcept {
    return tunes_ && slot < NPU_FIRST_PACK_SLOT;
  }
  // memory.discard does something.
  bool can_discard() const noexcept {
    return discards_;
  }
  // op.warm, once per device and kind. Call::plan does it; who runs a frame
  // without planning does it before the first.
  void ensure_warm(npu_device device, std::uint32_t slot) const {
    if (warms_ && slot < NPU_FIRST_PACK_SLOT && !is_warm(device, slot)) {
      warm(device, slot);
    }
  }

  // True when the driver runs this kind at all (asked once, at load) and the
  // user did not switch it off.
  bool has_kind(std::uint32_t slot) const noexcept;
  // What a kind and code can do; nullptr when the driver lacks it. Standard
  // kinds were asked at load, a vendor's own are asked at first use.
  const npu_op_caps* caps(std::uint32_t slot, std::uint32_t code) const;

  // NPU_DISABLE_KIND, for this driver.
  void disable_kinds(const std::vector<std::uint32_t>& slots) noexcept;
  void enable_all_kinds() noexcept;
  bool is_disabled(std::uint32_t slot) const noexcept;

 private:
  static constexpr std::uint32_t kSlots = 256;
  static constexpr std::uint32_t kWarmDevices = 64;
  static constexpr std::uint32_t kMaxRows = 1024;

  Driver() = default;
  void open_library();
  void adopt(const npu_driver* given);
  void copy_tables();
  void fill_defaults() noexcept;
  void check_slots() const;
  void settle_platform();
  void check_conditional_slots(const npu_memory_table& given) const;
  void refuse_missing(const std::string& slots) const;
  void ask_kinds();
  std::uint32_t most_plan_use(const npu_kind_info& kind) const noexcept;
  npu_status ask_caps(
      std::uint32_t slot, std::uint32_t code, npu_op_caps& caps) const;
  std::string identity() const;
  const void* find_interface(const InterfaceInfo& info) const;
  const npu_op_row* row(std::uint32_t slot) const noexcept;
  npu_status run_row(npu_stream stream, const npu_call& call) const;
  npu_status run_kernel_of_pack(
      npu_stream stream, const npu_op_row& row, const npu_call& call) const;
  std::uint32_t find_row(const char* name) const noexcept;
  void add_row(const npu_op_row& row) noexcept;
  bool is_warm(npu_device device, std::uint32_t slot) const noexcept;
  void warm(npu_device device, std::uint32_t slot) const;

  std::string path_;
  // What is called: the driver's own functions, defaults and layers.
  DriverTables tables_;
  // Those of tables_, or of watched_.
  std::atomic<const npu_memory_table*> memory_in_use_{&tables_.memory};
  std::atomic<decltype(npu_op_table::run)> run_in_use_{nullptr};
  std::unique_ptr<DriverTables> watched_;  // tables_ below a launch watch
  std::uint32_t frame_bytes_ = sizeof(npu_call);
  std::uint16_t most_math_mode_ = NPU_MATH_HALF_PARTIALS;
  bool tunes_ = false;
  bool warms_ = false;
  bool prepares_ = false;
  bool discards_ = false;
  LockedRun locked_run_ = nullptr;  // of drivers that need stream locks
  std::uint64_t kinds_[kSlots / 64] = {};
  std::uint64_t disabled_[kSlots / 64] = {};
  // Standard kinds by slot, then code.
  std::vector<std::vector<std::optional<npu_op_caps>>> caps_;
  mutable std::mutex vendor_mutex_;
  mutable std::
      map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<npu_op_caps>>
          vendor_caps_;
  mutable std::mutex interface_mutex_;
  mutable std::map<std::string, std::unique_ptr<std::byte[]>> interfaces_;
  mutable std::mutex warm_mutex_;
  mutable std::set<std::pair<npu_device, std::uint32_t>> warm_kinds_;
  mutable std::array<std::atomic<std::uint64_t>, kWarmDevices * kSlots / 64>
      warmed_{};
  // Rows of packs by slot - NPU_FIRST_PACK_SLOT: only ever appended, so that
  // calls need no lock.
  std::mutex pack_mutex_;
  std::array<std::unique_ptr<const npu_op_row>, kMaxRows> rows_;
  std::atomic<std::uint32_t> n_rows_{0};
};

// Adds the packs NPU_OP_PACKS names (colon separated paths) to the driver. One
// that is wrong is left out with one line in the log.
void load_packs(Driver& driver);

// The slots NPU_DISABLE_KIND names (comma separated kinds). Throws Error for a
// name that is no kind, with the nearest one.
std::vector<std::uint32_t> disabled_kinds();

}  // namespace npu
