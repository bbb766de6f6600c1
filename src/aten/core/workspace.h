// SPDX-License-Identifier: Apache-2.0
// The workspaces of a planned frame.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>

#include "aten/core/recorder.h"
#include "driver/call.h"
#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {

// Memory a frame uses until the stream has passed it.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    if (Recorder* const watching = recorder()) {
      give(*watching, device_);
      give(*watching, host_);
    }
  }

  // NPU_REASON_NONE, or NPU_REASON_WORKSPACE when the driver cannot do with the
  // memory there is. `verdict` becomes that of the smaller plan.
  npu_reason take(Call& call, npu_verdict& verdict, c10::DeviceIndex index) {
    if (verdict.workspace_bytes != 0) {
      verdict = fit_workspace(
          call,
          active_driver(),
          driver_device(index),
          verdict,
          [&](std::uint64_t bytes) { return try_allocate(bytes, index); });
      if (verdict.answer != NPU_VERDICT_YES) {
        return verdict.reason;
      }
    }
    if (verdict.host_workspace_bytes != 0) {
      host_ = pinned_allocator()->allocate(verdict.host_workspace_bytes);
      call.set_host_workspace(host_.get(), verdict.host_workspace_bytes);
    }
    return NPU_REASON_NONE;
  }
  // Device memory goes back in the order of the stream as it is.
  void queued(c10::DeviceIndex index) {
    if (host_) {
      record_pinned(host_.get(), host_.get_context(), current_stream(index));
    }
  }

 private:
  void* try_allocate(std::uint64_t bytes, c10::DeviceIndex index) {
    try {
      device_ = allocate(bytes, index);
    } catch (const c10::OutOfMemoryError&) {
      return nullptr;
    }
    return device_.get();
  }
  static void give(Recorder& watching, c10::DataPtr& memory) {
    if (memory) {
      watching.on_temporary(std::move(memory));
    }
  }

  c10::DataPtr device_;
  c10::DataPtr host_;
};

}  // namespace npu
