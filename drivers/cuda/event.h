// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda.h"

namespace npu::cuda {

// A destroyed event's CUDA event is used again: making one takes microseconds.
struct Event {
  npu_device device = 0;
  std::uint32_t flags = 0;
  cudaEvent_t handle = nullptr;
  std::atomic<bool> recorded{false};
  std::atomic<bool> in_capture{false};
};

inline Event* event_of(npu_event event) noexcept {
  return reinterpret_cast<Event*>(event);
}

}  // namespace npu::cuda
