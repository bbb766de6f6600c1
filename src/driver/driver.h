// SPDX-License-Identifier: Apache-2.0
// One loaded driver, checked: every required slot is there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu/op.h"

namespace npu {

// Lives for ever once loaded: drivers are never unloaded.
class Driver {
 public:
  // Opens the library at `path`, checks version and required slots, calls its
  // entry. Throws Error with file, what is wrong and what to do. A library
  // that is loaded already is handed out again.
  static Driver* load(const std::string& path);

  const char* name() const noexcept {
    return table_.name;
  }
  const std::string& path() const noexcept {
    return path_;
  }
  // Copies: what an older or sparing driver lacks is filled with the defaults,
  // so no function pointer is null.
  const npu_driver& table() const noexcept {
    return table_;
  }
  const npu_device_table& device() const noexcept {
    return device_;
  }
  const npu_memory_table& memory() const noexcept {
    return memory_;
  }
  const npu_stream_table& stream() const noexcept {
    return stream_;
  }
  const npu_event_table& event() const noexcept {
    return event_;
  }
  const npu_op_table& op() const noexcept {
    return op_;
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

  Driver() = default;
  void open_library();
  void adopt(const npu_driver* given);
  void fill_defaults() noexcept;
  void check_slots() const;
  void check_conditional_slots(const npu_memory_table& given) const;
  void ask_kinds();
  std::string identity() const;

  std::string path_;
  npu_driver table_{};
  npu_device_table device_{};
  npu_memory_table memory_{};
  npu_stream_table stream_{};
  npu_event_table event_{};
  npu_op_table op_{};
  std::uint64_t kinds_[kSlots / 64] = {};
  std::uint64_t disabled_[kSlots / 64] = {};
  // Standard kinds by slot, then code.
  std::vector<std::vector<std::optional<npu_op_caps>>> caps_;
  mutable std::mutex vendor_mutex_;
  mutable std::
      map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<npu_op_caps>>
          vendor_caps_;
};

// The slots NPU_DISABLE_KIND names (comma separated kinds). Throws Error for a
// name that is no kind, with the nearest one.
std::vector<std::uint32_t> disabled_kinds();

}  // namespace npu
