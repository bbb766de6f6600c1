// SPDX-License-Identifier: Apache-2.0
// One loaded driver, checked: every required slot is there.
#pragma once

#include <string>

#include "npu/op.h"

namespace npu {

// Lives for ever once loaded: drivers are never unloaded.
class Driver {
 public:
  // Opens the library at `path`, checks version and required slots, calls its
  // entry. Throws Error with file, what is wrong and what to do.
  static Driver* load(const std::string& path);

  const char* name() const noexcept {
    return table_->name;
  }
  const std::string& path() const noexcept {
    return path_;
  }
  const npu_driver& table() const noexcept {
    return *table_;
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
  // True when the driver runs this kind at all (asked once, at load).
  bool has_kind(std::uint32_t slot) const noexcept;

 private:
  Driver() = default;
  std::string path_;
  const npu_driver* table_ = nullptr;
  // Copies: an older driver's missing tail is filled with the defaults.
  npu_device_table device_{};
  npu_memory_table memory_{};
  npu_stream_table stream_{};
  npu_event_table event_{};
  npu_op_table op_{};
  std::uint64_t kinds_[4] = {0, 0, 0, 0};
};

}  // namespace npu
